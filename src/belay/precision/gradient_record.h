#pragma once
// The record of every layer's gradient norm, a file that grows by one entry a step:
//   "belay gradient norms 1\n", u32 layers, u32 zero, f64 head room, per layer: u16 length, name
//   per step: u32 step, i16 log2 of the loss scale, per layer: u16 NormCode
// Little-endian. Norms are of the gradient of the mean loss, unscaled and before clipping.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belay/observe/append_file.h"
#include "belay/precision/norm_history.h"

namespace belay {

inline constexpr std::string_view kGradientRecordName = "gradient-norms.bin";

struct GradientRecord {
  std::vector<std::string> layers;
  double limit = 0;                 // head room: norm x scale must stay below
  std::vector<std::int64_t> steps;  // increasing
  std::vector<int> log2_scale;      // per step
  std::vector<NormCode> codes;      // [steps, layers]

  [[nodiscard]] NormCode code(std::size_t index, std::size_t layer) const {
    return codes[index * layers.size() + layer];
  }
};

// An incomplete last entry is left out. Error(data) names `source` and what is wrong.
GradientRecord parse_gradient_record(std::string_view bytes, const std::string& source);
GradientRecord read_gradient_record(const std::string& path);

class GradientRecordWriter {
 public:
  // Continues an existing record after `resumed_step`: later entries and an incomplete one are cut
  // off. A file of other layers or that is no record is begun anew, with a warning. Throws
  // Error(data) or Error(capacity).
  GradientRecordWriter(const std::string& path, std::span<const std::string> layers, double limit,
                       std::int64_t resumed_step);

  // One entry; allocates nothing.
  void append(std::int64_t step, double scale, std::span<const double> norms);

 private:
  std::unique_ptr<AppendFile> file_;
  std::string entry_;
};

}  // namespace belay
