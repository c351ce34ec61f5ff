#pragma once
// TensorBoard's event records: a TFRecord frame around a serialized Event protocol buffer
// (tensorflow/core/util/event.proto). Only scalars are needed, so the few fields are written by
// hand into fixed buffers.

#include <cstdint>
#include <string_view>

#include "belay/observe/line_buffer.h"

namespace belay {

class EventRecord {
 public:
  // The first record of a file.
  std::string_view file_version(double wall_time);

  // Tells readers that the run starts again at `step`: what older files hold from there on is void
  // (SessionLog START of event.proto).
  std::string_view restart(double wall_time, std::int64_t step);

  // Any number of scalars for one step: begin, scalar..., finish. The view is valid until the next
  // begin or file_version. wall_time in seconds since 1970.
  void begin(double wall_time, std::int64_t step);
  void scalar(std::string_view tag, float value);
  std::string_view finish();

 private:
  std::string_view framed();

  LineBuffer<4096> event_;
  LineBuffer<4096> summary_;
  LineBuffer<4096> frame_;
};

}  // namespace belay
