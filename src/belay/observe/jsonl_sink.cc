#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "belay/base/error.h"
#include "belay/observe/append_file.h"
#include "belay/observe/fields.h"
#include "belay/observe/line_buffer.h"
#include "belay/observe/sinks.h"

namespace belay {
namespace {

// Cuts off the records after `step` and a line without an end, so that a resumed run continues the
// file as if it had never been interrupted.
void rewind_to(const std::string& path, std::int64_t step) {
  if (!std::filesystem::is_regular_file(path)) return;
  std::ifstream file(path, std::ios::binary);
  std::uintmax_t keep = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
    const auto number = record.is_object() ? record.find("step") : record.end();
    if (number == record.end() || !number->is_number_integer() ||
        number->get<std::int64_t>() > step) {
      break;
    }
    keep += line.size() + 1;
  }
  file.close();
  std::error_code error;
  std::filesystem::resize_file(path, keep, error);
  if (error) fail(ExitCode::data, "cannot rewind {}: {}", path, error.message());
}

class JsonlSink final : public MetricSink {
 public:
  explicit JsonlSink(const std::string& path) : file_(path) {}

  void step(const StepMetrics& metrics) override {
    begin(metrics.step);
    for (const IntegerField& field : kIntegerFields) {
      if (field.name != "step") integer(field.name, metrics.*field.member);
    }
    for (const RealField& field : kRealFields) real(field.name, metrics.*field.member);
    end();
  }
  void evaluation(const EvaluationMetrics& metrics) override {
    begin(metrics.step);
    real("val_loss", metrics.loss);
    integer("val_tokens", metrics.tokens);
    real("eval_ms", metrics.ms);
    end();
  }
  void snapshot(const SnapshotMetrics& metrics) override {
    begin(metrics.step);
    integer("snapshot_bytes", metrics.bytes);
    real("snapshot_ms", metrics.ms);
    end();
  }
  // Names come from the parameter table: letters, digits, dots.
  void skipped_step(const SkippedStepMetrics& metrics) override {
    begin(metrics.step);
    text("skipped_tensor", metrics.tensor);
    text("skipped_layer", metrics.layer);
    integer("rank", metrics.rank);
    real("skipped_scale", metrics.loss_scale);
    real("next_scale", metrics.next_scale);
    end();
  }
  void link(const LinkMetrics& metrics) override {
    begin(metrics.step);
    text("link_event", metrics.event);
    integer("from_rank", metrics.from);
    integer("to_rank", metrics.to);
    real("link_value", metrics.value);
    real("link_typical", metrics.typical);
    integer("comm_epoch", metrics.epoch);
    end();
  }

 private:
  void begin(std::int64_t step) {
    line_.clear();
    non_finite_.clear();
    line_.append("{\"step\":");
    line_.append(step);
  }
  void key(std::string_view name) {
    line_.append(",\"");
    line_.append(name);
    line_.append("\":");
  }
  void integer(std::string_view name, std::int64_t value) {
    key(name);
    line_.append(value);
  }
  void text(std::string_view name, std::string_view value) {
    key(name);
    line_.append("\"");
    line_.append(value);
    line_.append("\"");
  }
  void real(std::string_view name, double value) {
    key(name);
    if (std::isfinite(value)) return line_.append(value);
    line_.append("null");
    non_finite_.append(non_finite_.size() == 0 ? "\"" : ",\"");
    non_finite_.append(name);
    non_finite_.append("\"");
  }
  void end() {
    if (non_finite_.size() > 0) {
      key("non_finite");
      line_.append("[");
      line_.append(non_finite_.view());
      line_.append("]");
    }
    line_.append("}\n");
    file_.append(line_.view());
  }

  AppendFile file_;
  LineBuffer<2048> line_;
  LineBuffer<512> non_finite_;
};

}  // namespace

std::unique_ptr<MetricSink> make_jsonl_sink(const std::string& path, std::int64_t resumed_step) {
  rewind_to(path, resumed_step);
  return std::make_unique<JsonlSink>(path);
}

}  // namespace belay
