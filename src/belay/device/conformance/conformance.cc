#include "belay/device/conformance/conformance.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "belay/base/arena.h"
#include "belay/base/parallel.h"
#include "belay/device/reference/element.h"

namespace belay::conformance {
namespace {

double tolerance_of(const Tolerance& tolerance, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return tolerance.f64;
    case DType::f32:
      return tolerance.f32;
    case DType::bf16:
      return tolerance.bf16;
    case DType::f16:
      return tolerance.f16;
    default:
      return 0;
  }
}

// The exact result as far as the range of `dtype` goes: f16 becomes infinite where rounding leaves
// it.
double within_range(DType dtype, double value) {
  const bool beyond = dtype == DType::f16 && std::abs(value) >= 65520.0;
  return beyond ? std::copysign(HUGE_VAL, value) : value;
}

// The first complaint about a result, or an empty string.
std::string compare(const std::string& name, const Tensor& got, const Tensor& want,
                    double tolerance, double zero) {
  double error_squares = 0;
  double want_squares = 0;
  double largest = 0;
  double worst = 0;
  std::int64_t worst_at = 0;
  for (std::int64_t i = 0; i < want.elements(); ++i) {
    const double w = within_range(got.dtype, load(want, i));
    const double g = load(got, i);
    if (std::isnan(w) && std::isnan(g)) continue;
    if (std::isinf(w) && w == g) continue;
    if (!std::isfinite(w) || !std::isfinite(g) || (w == 0 && !(std::abs(g) <= zero))) {
      return fmt::format("{}[{}] is {}, want {}", name, i, g, w);
    }
    const double error = std::abs(g - w);
    error_squares += error * error;
    want_squares += w * w;
    largest = std::max(largest, std::abs(w));
    if (error > worst) {
      worst = error;
      worst_at = i;
    }
  }
  const double relative = want_squares > 0 ? std::sqrt(error_squares / want_squares) : 0;
  if (relative > tolerance || worst > 4 * tolerance * largest) {
    return fmt::format("{} errs by {:.3g} (allowed {:.3g}); {}[{}] is {}, want {}", name, relative,
                       tolerance, name, worst_at, load(got, worst_at), load(want, worst_at));
  }
  return {};
}

// Bytes that may differ after the call.
std::vector<bool> written_bytes(const CaseMemory& host, std::size_t size) {
  std::vector<bool> written(size, false);
  for (const Operand& operand : host.operands()) {
    if (operand.role == Role::input) continue;
    const std::size_t bytes =
        static_cast<std::size_t>(operand.shape.elements()) * size_of(operand.dtype);
    std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(operand.offset), bytes, true);
  }
  return written;
}

// Which operand a byte belongs to, for messages.
std::string place_of(const CaseMemory& host, std::size_t byte) {
  for (const Operand& operand : host.operands()) {
    const std::size_t end = operand.offset + static_cast<std::size_t>(operand.shape.elements()) *
                                                 size_of(operand.dtype);
    if (byte < operand.offset) {
      return fmt::format("{} bytes before {}", operand.offset - byte, operand.name);
    }
    if (byte < end) {
      return fmt::format("in {}, element {}", operand.name,
                         (byte - operand.offset) / size_of(operand.dtype));
    }
    if (byte < end + kAlignment) return fmt::format("{} bytes past {}", byte - end, operand.name);
  }
  return fmt::format("at byte {}", byte);
}

class ThreadCountScope {
 public:
  ThreadCountScope() : saved_(thread_count()) {}
  ~ThreadCountScope() { set_thread_count(saved_); }
  ThreadCountScope(const ThreadCountScope&) = delete;
  ThreadCountScope& operator=(const ThreadCountScope&) = delete;

 private:
  int saved_;
};

}  // namespace

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) sum += load(a, i) * load(b, i);
  return sum;
}

std::vector<std::string> check_image(const CaseMemory& exact, const CaseMemory& host,
                                     const std::vector<std::byte>& start, const RunImage& run,
                                     const Tolerance& tolerance) {
  const ThreadCountScope restore;
  std::vector<std::string> failures;
  std::vector<std::byte> first;
  for (const int threads : {2, 2, 1, 3}) {
    set_thread_count(threads);
    std::vector<std::byte> image = start;
    run(image);
    if (first.empty()) {
      first = std::move(image);
      continue;
    }
    const auto differs = std::mismatch(first.begin(), first.end(), image.begin());
    if (differs.first != first.end()) {
      const auto byte = static_cast<std::size_t>(differs.first - first.begin());
      failures.push_back(fmt::format("run again with {} threads gives other bits {}", threads,
                                     place_of(host, byte)));
      break;
    }
  }
  const std::vector<bool> written = written_bytes(host, start.size());
  for (std::size_t byte = 0; byte < start.size(); ++byte) {
    if (written[byte] || first[byte] == start[byte]) continue;
    failures.push_back("writes where it must not: " + place_of(host, byte));
    break;
  }
  for (std::size_t i = 0; i < host.operands().size(); ++i) {
    const Operand& operand = host.operands()[i];
    if (operand.role == Role::input) continue;
    const Tensor got{first.data() + operand.offset, operand.dtype, operand.shape};
    std::string complaint = compare(operand.name, got, exact.tensor(i),
                                    tolerance_of(tolerance, operand.dtype), tolerance.zero);
    if (!complaint.empty()) failures.push_back(std::move(complaint));
  }
  return failures;
}

std::vector<std::string> check_gradient(const GradientCase& gradient_case) {
  // Central differences in f64 err by about step^2, and by 1e-16 / step from rounding.
  constexpr double kStep = 1e-5;
  constexpr double kTolerance = 1e-7;
  constexpr std::int64_t kSamples = 48;
  const ThreadCountScope restore;
  set_thread_count(1);  // thousands of tiny calls
  CaseMemory memory(CaseMemory::Mode::exact, nullptr, 0);
  const Gradient gradient = gradient_case.build(memory);
  gradient.loss();
  gradient.backward();
  std::vector<std::string> failures;
  for (const auto& [input, derived] : gradient.inputs) {
    const std::int64_t count = input.elements();
    double scale = 0;
    for (std::int64_t i = 0; i < count; ++i) scale = std::max(scale, std::abs(load(derived, i)));
    const std::int64_t stride = std::max<std::int64_t>(1, count / kSamples);
    for (std::int64_t i = 0; i < count; i += stride) {
      const double value = load(input, i);
      store(input, i, value + kStep);
      const double above = gradient.loss();
      store(input, i, value - kStep);
      const double below = gradient.loss();
      store(input, i, value);
      const double numeric = (above - below) / (2 * kStep);
      const double error = std::abs(numeric - load(derived, i));
      if (error <= kTolerance * std::max(scale, 1.0)) continue;
      failures.push_back(fmt::format(
          "gradient: {} '{}': element {} is {}, differences give {}; again: BELAY_CASE='{}/{}' "
          "belay_tests --gtest_filter='*Conformance*'",
          gradient_case.op, gradient_case.name, i, load(derived, i), numeric, gradient_case.op,
          gradient_case.name));
      break;
    }
  }
  return failures;
}

}  // namespace belay::conformance
