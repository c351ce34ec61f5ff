#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "belay/base/log.h"
#include "belay/observe/line_buffer.h"
#include "belay/observe/sinks.h"

namespace belay {
namespace {

using Clock = std::chrono::steady_clock;
using Line = LineBuffer<1024>;

constexpr std::string_view kClear = "\r\033[K";
constexpr std::size_t kWindow = 20;  // records behind the shown rate and the remaining time

void emit(std::string_view text) {
  // A closed terminal must not end the run: what cannot be shown is not shown.
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

int terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// "950", "12.3k", "4.56M".
void append_count(Line& line, double value) {
  constexpr std::string_view kUnits[] = {"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  line.append(value, unit == 0 || value >= 100 ? 0 : (value >= 10 ? 1 : 2));
  line.append(kUnits[unit]);
}

// "42s", "3m05s", "2h07m".
void append_duration(Line& line, double seconds) {
  const auto total = static_cast<std::int64_t>(std::min(std::max(seconds, 0.0) + 0.5, 1e9));
  const auto padded = [&](std::int64_t value, std::string_view unit) {
    if (value < 10) line.append("0");
    line.append(value);
    line.append(unit);
  };
  if (total < 60) {
    line.append(total);
    line.append("s");
  } else if (total < 3600) {
    line.append(total / 60);
    line.append("m");
    padded(total % 60, "s");
  } else {
    line.append(total / 3600);
    line.append("h");
    padded(total / 60 % 60, "m");
  }
}

class ConsoleSink final : public MetricSink {
 public:
  explicit ConsoleSink(const ConsoleOptions& options)
      : options_(options), live_(isatty(STDERR_FILENO) != 0) {
    if (!log::enabled(log::Level::info)) {
      live_ = false;
      options_.every = 0;
      quiet_ = true;
    }
    if (live_) log::set_before_write([] { emit(kClear); });
  }
  ~ConsoleSink() override { log::set_before_write(nullptr); }

  void step(const StepMetrics& metrics) override {
    remember(metrics);
    const bool last = metrics.step >= options_.total_steps;
    if (live_) {
      const auto now = Clock::now();
      if (!last && now - shown_ < std::chrono::milliseconds(100)) return;
      shown_ = now;
      line_.clear();
      line_.append(kClear);
      append_bar(metrics.step);
      append_state(metrics);
      emit(line_.view());
    } else if (options_.every > 0 && (metrics.step % options_.every == 0 || last || first_)) {
      line_.clear();
      line_.append("step ");
      line_.append(metrics.step);
      line_.append("/");
      line_.append(options_.total_steps);
      append_state(metrics);
      line_.append("\n");
      emit(line_.view());
    }
    first_ = false;
  }

  void evaluation(const EvaluationMetrics& metrics) override {
    begin_note(metrics.step);
    line_.append("validation loss ");
    append_loss(metrics.loss);
    line_.append(" over ");
    append_count(line_, static_cast<double>(metrics.tokens));
    line_.append(" tokens");
    end_note(metrics.ms);
  }

  void snapshot(const SnapshotMetrics& metrics) override {
    begin_note(metrics.step);
    line_.append("snapshot of ");
    append_count(line_, static_cast<double>(metrics.bytes));
    line_.append("B");
    end_note(metrics.ms);
  }

  void close() override {
    log::set_before_write(nullptr);
    if (live_ && !first_) emit("\n");
    live_ = false;
  }

 private:
  void remember(const StepMetrics& metrics) {
    Sample& slot = window_[records_++ % kWindow];
    const std::int64_t steps = first_ ? 1 : metrics.step - last_step_;
    last_step_ = metrics.step;
    slot = {steps, metrics.step_ms * static_cast<double>(steps),
            metrics.tokens_per_s * metrics.step_ms * 1e-3 * static_cast<double>(steps)};
    sum_ = {};
    for (const Sample& sample : window_) {
      sum_.steps += sample.steps;
      sum_.ms += sample.ms;
      sum_.tokens += sample.tokens;
    }
  }

  void append_bar(std::int64_t step) {
    constexpr int kCells = 20;
    const double share = options_.total_steps > 0
                             ? static_cast<double>(step) / static_cast<double>(options_.total_steps)
                             : 0;
    const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * kCells);
    // A narrow terminal keeps the numbers and gives up the bar.
    if (terminal_columns() >= 100) {
      if (options_.color) line_.append("\033[36m");
      for (int cell = 0; cell < kCells; ++cell) line_.append(cell < filled ? "━" : "╌");
      if (options_.color) line_.append("\033[0m");
      line_.append(" ");
    }
    line_.append(step);
    line_.append("/");
    line_.append(options_.total_steps);
  }

  void append_loss(double loss) {
    if (std::isfinite(loss)) {
      line_.append(loss, 4);
    } else {
      line_.append("not finite");
    }
  }

  void append_state(const StepMetrics& metrics) {
    line_.append("  loss ");
    append_loss(metrics.loss);
    line_.append("  lr ");
    line_.append_scientific(metrics.lr, 2);
    if (sum_.ms > 0) {
      line_.append("  ");
      append_count(line_, sum_.tokens / sum_.ms * 1e3);
      line_.append(" tok/s  ");
      const std::int64_t left = std::max<std::int64_t>(options_.total_steps - metrics.step, 0);
      append_duration(line_, static_cast<double>(left) * sum_.ms * 1e-3 /
                                 static_cast<double>(std::max<std::int64_t>(sum_.steps, 1)));
      line_.append(" left");
    }
  }

  void begin_note(std::int64_t step) {
    line_.clear();
    if (live_) line_.append(kClear);
    line_.append("step ");
    line_.append(step);
    line_.append("  ");
  }
  void end_note(double ms) {
    line_.append("  (");
    line_.append(ms * 1e-3, 1);
    line_.append("s)\n");
    if (!quiet_) emit(line_.view());
  }

  struct Sample {
    std::int64_t steps = 0;
    double ms = 0;
    double tokens = 0;
  };

  ConsoleOptions options_;
  bool live_;
  bool quiet_ = false;
  bool first_ = true;
  std::int64_t last_step_ = 0;
  Clock::time_point shown_;
  std::array<Sample, kWindow> window_{};
  std::size_t records_ = 0;
  Sample sum_;
  Line line_;
};

}  // namespace

std::unique_ptr<MetricSink> make_console_sink(const ConsoleOptions& options) {
  return std::make_unique<ConsoleSink>(options);
}

}  // namespace belay
