#pragma once
// What the guard's forecasts say about a run, from its record of gradient norms: for every layer
// the norm now and at the horizon, with the band, against the head room of the loss scale. Made as
// of any step, so that a forecast can be laid beside what came of it.

#include <cstdint>
#include <string>
#include <vector>

#include "belay/observe/plot.h"
#include "belay/precision/arima.h"
#include "belay/precision/gradient_record.h"
#include "belay/precision/precision_config.h"

namespace belay {

struct ForecastOptions {
  std::int64_t at = 0;       // forecast as of this step; 0: the last one recorded
  std::string layer;         // to draw; empty: the one nearest to the head room
  double limit = 0;          // head room; 0: the run's
  PrecisionConfig settings;  // its forecast_ keys
};

// Norms are those of the gradient of the mean loss; shares are of the head room, norm x scale /
// limit.
struct LayerOutlook {
  std::string name;
  bool fitted = false;  // false: too short or constant; the numbers below are then 0
  ArimaOrder order;
  double now = 0;                        // median of the last 20 steps
  double median = 0, low = 0, high = 0;  // at the horizon
  double share_now = 0, share_median = 0, share_high = 0;
  std::int64_t leaves_in = 0;      // steps until the median leaves the head room; 0: not within
  std::int64_t endangered_in = 0;  // the same for the upper edge
  std::int64_t compared = 0;       // points ahead that have happened since
  std::int64_t inside = 0;         // of those, within the band
};

struct ForecastReport {
  std::int64_t step = 0;  // forecast as of this step
  std::int64_t horizon = 0;
  double confidence = 0;
  double scale = 1;
  double limit = 0;
  std::int64_t overflows = 0;  // steps up to `step` in which some layer was not finite
  std::vector<LayerOutlook> layers;
  std::size_t drawn = 0;  // index of the layer that the plot shows
  Plot plot;
};

// Error(usage) when the layer or the step is not in the record, Error(data) when the record is
// empty.
ForecastReport forecast_report(const GradientRecord& record, const ForecastOptions& options);

// A table, one line per layer.
std::string report_text(const ForecastReport& report);
std::string report_json(const ForecastReport& report);

}  // namespace belay
