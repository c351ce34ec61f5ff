#include "belay/precision/norm_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "belay/base/check.h"
#include "belay/precision/state_text.h"

namespace belay {
namespace {

constexpr double kCodesPerOctave = 480;
constexpr double kLowest = -64;
constexpr long kLargestCode = kNotFinite - 1;

}  // namespace

NormCode norm_code(double norm) {
  if (!std::isfinite(norm)) return kNotFinite;
  if (norm <= 0) return 0;
  const double code = (std::log2(norm) - kLowest) * kCodesPerOctave;
  return static_cast<NormCode>(std::clamp(1 + std::lround(code), 1L, kLargestCode));
}

double log2_norm(NormCode code) {
  if (code == kNotFinite) return std::numeric_limits<double>::infinity();
  return kLowest + std::max(static_cast<double>(code) - 1, 0.0) / kCodesPerOctave;
}

NormHistory::NormHistory(int layers, std::int64_t capacity)
    : layers_(layers),
      capacity_(capacity),
      codes_(static_cast<std::size_t>(layers) * static_cast<std::size_t>(capacity)) {
  BELAY_CHECK(layers > 0 && capacity > 0);
}

void NormHistory::push(std::span<const double> norms) {
  BELAY_CHECK(norms.size() == static_cast<std::size_t>(layers_));
  const auto at = static_cast<std::size_t>(seen_ % capacity_) * norms.size();
  std::transform(norms.begin(), norms.end(), codes_.begin() + static_cast<std::ptrdiff_t>(at),
                 norm_code);
  ++seen_;
  size_ = std::min(size_ + 1, capacity_);
}

std::span<const NormCode> NormHistory::row(std::int64_t index) const {
  BELAY_CHECK(index >= 0 && index < size_);
  const std::int64_t at = (seen_ - size_ + index) % capacity_;
  const auto width = static_cast<std::size_t>(layers_);
  return {codes_.data() + static_cast<std::size_t>(at) * width, width};
}

void NormHistory::copy(int layer, std::span<double> out) const {
  const std::int64_t first = size_ - static_cast<std::int64_t>(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = log2_norm(row(first + static_cast<std::int64_t>(i))[static_cast<std::size_t>(layer)]);
  }
}

std::string NormHistory::state() const {
  std::string text = fmt::format("{} {} {}", layers_, size_, seen_);
  if (size_ > 0) text += ' ';
  for (std::int64_t step = 0; step < size_; ++step) {
    for (const NormCode code : row(step)) fmt::format_to(std::back_inserter(text), "{:04x}", code);
  }
  return text;
}

void NormHistory::restore(std::string_view text) {
  StateReader reader("gradient norms", text);
  const std::int64_t layers = reader.whole();
  const std::int64_t size = reader.whole();
  const std::int64_t seen = reader.whole();
  const std::string_view digits = size == 0 ? std::string_view() : reader.word();
  reader.finish();
  constexpr std::size_t kDigits = 4;
  if (layers != layers_ || size < 0 || seen < size || digits.size() % kDigits != 0 ||
      digits.size() / kDigits / static_cast<std::size_t>(layers_) !=
          static_cast<std::size_t>(size) ||
      digits.size() / kDigits % static_cast<std::size_t>(layers_) != 0) {
    reader.refuse();
  }
  std::vector<NormCode> codes;
  for (std::size_t at = 0; at < digits.size(); at += kDigits) {
    const char* const begin = digits.data() + at;
    NormCode code = 0;
    const auto result = std::from_chars(begin, begin + kDigits, code, 16);
    if (result.ec != std::errc() || result.ptr != begin + kDigits) reader.refuse();
    codes.push_back(code);
  }
  size_ = std::min(size, capacity_);
  seen_ = seen;
  const auto width = static_cast<std::size_t>(layers_);
  for (std::int64_t back = 1; back <= size_; ++back) {
    const auto from = codes.end() - static_cast<std::ptrdiff_t>(width) * back;
    const auto to = static_cast<std::size_t>((seen_ - back) % capacity_) * width;
    std::copy_n(from, width, codes_.begin() + static_cast<std::ptrdiff_t>(to));
  }
}

}  // namespace belay
