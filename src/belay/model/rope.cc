#include "belay/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace belay {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

struct Frequencies {
  std::vector<double> inverse;  // radians per position, one per pair
  double factor = 1.0;          // on cosines and sines
};

std::vector<double> plain_frequencies(double theta, std::int64_t dim) {
  std::vector<double> inverse;
  for (std::int64_t j = 0; j < dim / 2; ++j) {
    inverse.push_back(std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(dim)));
  }
  return inverse;
}

void scale_llama3(const RopeConfig& rope, double original, std::vector<double>& inverse) {
  for (double& f : inverse) {
    const double wavelength = kTwoPi / f;
    if (wavelength < original / rope.high_freq_factor) continue;
    if (wavelength > original / rope.low_freq_factor) {
      f /= rope.factor;
      continue;
    }
    const double smooth = (original / wavelength - rope.low_freq_factor) /
                          (rope.high_freq_factor - rope.low_freq_factor);
    f = (1.0 - smooth) * f / rope.factor + smooth * f;
  }
}

void scale_yarn(const RopeConfig& rope, double original, std::int64_t dim, Frequencies& result) {
  const auto width = static_cast<double>(dim);
  const auto correction = [&](double rotations) {
    return width * std::log(original / (kTwoPi * rotations)) / (2.0 * std::log(rope.theta));
  };
  const double low = std::max(std::floor(correction(rope.beta_fast)), 0.0);
  double high = std::min(std::ceil(correction(rope.beta_slow)), width - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t j = 0; j < result.inverse.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    double& f = result.inverse[j];
    f = f / rope.factor * ramp + f * (1.0 - ramp);
  }
  result.factor =
      rope.attention_factor > 0.0 ? rope.attention_factor : 0.1 * std::log(rope.factor) + 1.0;
}

Frequencies frequencies(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const std::int64_t dim = config.head_dim;
  const auto seq_len = static_cast<double>(config.seq_len);
  const double original =
      rope.original_seq_len > 0 ? static_cast<double>(rope.original_seq_len) : seq_len;
  Frequencies result{plain_frequencies(rope.theta, dim)};
  switch (rope.scaling) {
    case RopeScaling::none:
      break;
    case RopeScaling::linear:
      for (double& f : result.inverse) f /= rope.factor;
      break;
    case RopeScaling::dynamic:
      if (seq_len > original) {
        const double stretch = rope.factor * seq_len / original - (rope.factor - 1.0);
        const double power = static_cast<double>(dim) / static_cast<double>(dim - 2);
        result.inverse = plain_frequencies(rope.theta * std::pow(stretch, power), dim);
      }
      break;
    case RopeScaling::yarn:
      scale_yarn(rope, original, dim, result);
      break;
    case RopeScaling::llama3:
      scale_llama3(rope, original, result.inverse);
      break;
  }
  return result;
}

}  // namespace

std::vector<float> rope_table(const ModelConfig& config) {
  const Frequencies f = frequencies(config);
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(config.seq_len * config.head_dim));
  for (std::int64_t position = 0; position < config.seq_len; ++position) {
    // Angles are rounded to f32 first, as the published implementations compute them.
    const auto angle = [&](double inverse) {
      return static_cast<double>(static_cast<float>(position) * static_cast<float>(inverse));
    };
    for (const double inverse : f.inverse) {
      table.push_back(static_cast<float>(std::cos(angle(inverse)) * f.factor));
    }
    for (const double inverse : f.inverse) {
      table.push_back(static_cast<float>(std::sin(angle(inverse)) * f.factor));
    }
  }
  return table;
}

}  // namespace belay
