#include "belay/train/summary.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace belay {

std::string to_json(const TrainSummary& s) {
  using Json = nlohmann::ordered_json;
  Json json = {{"first_step", s.first_step},
               {"last_step", s.last_step},
               {"finished", s.finished},
               {"loss", std::isfinite(s.loss) ? Json(s.loss) : nullptr},
               {"val_loss", s.val_loss ? Json(*s.val_loss) : nullptr},
               {"predicted_step_ms", s.predicted_step_ms},
               {"measured_step_ms", s.measured_step_ms},
               {"planned_bytes", s.planned_bytes},
               {"peak_rss_bytes", s.peak_rss_bytes},
               {"ranks", s.ranks},
               {"comm_bytes", s.comm_bytes},
               {"comm_dense_bytes", s.comm_dense_bytes},
               {"steps_without_labels", s.steps_without_labels},
               {"steps_non_finite", s.steps_non_finite},
               {"loss_scale", s.loss_scale},
               {"guard_ms_per_step", s.guard_ms_per_step},
               {"snapshot", s.snapshot}};
  return json.dump(2) + "\n";
}

}  // namespace belay
