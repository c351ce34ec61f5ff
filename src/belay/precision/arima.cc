#include "belay/precision/arima.h"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <numbers>

#include "belay/base/check.h"

namespace belay {
namespace {

constexpr ArimaOrder kOrders[] = {
    {0, 0, 0, true},  {1, 0, 0, true},  {2, 0, 0, true},  {0, 0, 1, true},
    {1, 0, 1, true},  {2, 0, 1, true},  {0, 1, 0, false}, {1, 1, 0, false},
    {2, 1, 0, false}, {0, 1, 1, false}, {1, 1, 1, false}, {2, 1, 1, false},
    {0, 1, 0, true},  {1, 1, 0, true},  {0, 1, 1, true},  {1, 1, 1, true}};

// Errors are counted from this point of the series on, whatever the order.
constexpr std::size_t kFirstCounted = kArimaLags + 1;
// What a model with a level pays on top of AIC. Against the same model with a unit root it has two
// parameters more, and under a unit root twice the logarithm of their likelihood ratio is not
// chi-square: 5% of series exceed 9.18 (Dickey & Fuller, Econometrica 49, 1981, table IV). AIC
// alone asks for 4, and would find levels in random walks.
constexpr double kLevelPenalty = 9.18 - 4;
constexpr int kMaxParameters = 2 * kArimaLags + 1;
constexpr std::size_t kMaxLongLags = 12;

using Square =
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, 0, kMaxParameters, kMaxParameters>;
using Column = Eigen::Matrix<double, Eigen::Dynamic, 1, 0, kMaxParameters, 1>;
using Coefficients = std::array<double, kArimaLags>;

// Pulls the roots of 1 - a_1 B - a_2 B^2 outside the circle of radius 1 / limit: multiplying a_i by
// r^i multiplies every inverse root by r. The condition is the triangle of Box & Jenkins, section
// 3.2.4.
void pull_inside(Coefficients& a, double limit) {
  constexpr int kTries = 100;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const double first = a[0] / limit;
    const double second = a[1] / (limit * limit);
    if (std::abs(second) < 1 && second + first < 1 && second - first < 1) return;
    a[0] *= 0.97;
    a[1] *= 0.97 * 0.97;
  }
  a = {};
}

void keep_valid(ArimaModel& model) {
  pull_inside(model.ar, 0.995);
  Coefficients negated{-model.ma[0], -model.ma[1]};
  pull_inside(negated, 0.98);
  model.ma = {-negated[0], -negated[1]};
}

int coefficients(const ArimaOrder& order) {
  return order.p + order.q;
}
bool has_mean(const ArimaOrder& order) {
  return order.d == 0 || order.drift;
}

template <class Array>
auto& at(Array& values, int index) {
  return values[static_cast<std::size_t>(index)];
}

// One pass over the errors of a model: their sum of squares and, if wanted, the normal equations of
// the Gauss-Newton step. Derivatives follow the recursion of the errors themselves.
class ErrorPass {
 public:
  ErrorPass(const ArimaModel& model, std::span<const double> w) : m_(model), w_(w) {}

  template <bool kDerivatives>
  double run(Square* normal, Column* right) {
    const ArimaOrder& order = m_.order;
    const int count = coefficients(order) + (has_mean(order) ? 1 : 0);
    std::array<std::array<double, kMaxParameters>, kArimaLags> d_lag{};
    double squares = 0;
    const double ar_sum = m_.ar[0] + m_.ar[1];
    if constexpr (kDerivatives) {
      normal->setZero(count, count);
      right->setZero(count);
    }
    const auto begin = static_cast<std::size_t>(order.p);
    const std::size_t counted = kFirstCounted - static_cast<std::size_t>(order.d);
    for (std::size_t t = begin; t < w_.size(); ++t) {
      double e = w_[t] - m_.mean;
      for (int i = 0; i < order.p; ++i) e -= at(m_.ar, i) * lagged(t, i);
      for (int j = 0; j < order.q; ++j) e -= at(m_.ma, j) * at(lag_, j);
      if constexpr (kDerivatives) {
        std::array<double, kMaxParameters> d{};
        for (int i = 0; i < order.p; ++i) at(d, i) = -lagged(t, i);
        for (int j = 0; j < order.q; ++j) at(d, order.p + j) = -at(lag_, j);
        if (has_mean(order)) at(d, count - 1) = -(1 - ar_sum);
        for (int j = 0; j < order.q; ++j) {
          for (int k = 0; k < count; ++k) at(d, k) -= at(m_.ma, j) * at(at(d_lag, j), k);
        }
        if (t >= counted) {
          for (int row = 0; row < count; ++row) {
            (*right)(row) += at(d, row) * e;
            for (int column = 0; column <= row; ++column) {
              (*normal)(row, column) += at(d, row) * at(d, column);
            }
          }
        }
        for (std::size_t j = kArimaLags - 1; j > 0; --j) d_lag[j] = d_lag[j - 1];
        d_lag[0] = d;
      }
      for (std::size_t j = kArimaLags - 1; j > 0; --j) lag_[j] = lag_[j - 1];
      lag_[0] = e;
      if (t >= counted) squares += e * e;
    }
    return squares;
  }

  // The errors of the last points, newest first.
  [[nodiscard]] const Coefficients& last() const { return lag_; }

 private:
  [[nodiscard]] double lagged(std::size_t t, int i) const {
    return w_[t - 1 - static_cast<std::size_t>(i)] - m_.mean;
  }

  const ArimaModel& m_;
  std::span<const double> w_;
  Coefficients lag_{};
};

double squares_of(const ArimaModel& model, std::span<const double> w) {
  return ErrorPass(model, w).run<false>(nullptr, nullptr);
}

}  // namespace

std::span<const ArimaOrder> arima_orders() {
  return kOrders;
}

std::string to_string(const ArimaOrder& order) {
  return fmt::format("({},{},{}){}", order.p, order.d, order.q,
                     order.d > 0 && order.drift ? " with drift" : "");
}

ArimaFitter::ArimaFitter(std::size_t capacity) : w_(capacity), shocks_(capacity) {}

// The long autoregression by Durbin's recursion on the autocovariances (Durbin, Revue de l'Institut
// International de Statistique 28, 1960).
bool ArimaFitter::prepare(std::span<const double> series, int d) {
  BELAY_CHECK(series.size() <= w_.size() && (d == 0 || d == 1));
  if (series.size() < kFewestPoints) return false;
  count_ = series.size() - static_cast<std::size_t>(d);
  double sum = 0;
  for (std::size_t t = 0; t < count_; ++t) {
    w_[t] = d == 0 ? series[t] : series[t + 1] - series[t];
    sum += w_[t];
  }
  const auto n = static_cast<double>(count_);
  mean_ = sum / n;
  const std::size_t lags = std::min(kMaxLongLags, count_ / 8);
  std::array<double, kMaxLongLags + 1> covariance{};
  for (std::size_t lag = 0; lag <= lags; ++lag) {
    for (std::size_t t = lag; t < count_; ++t) {
      covariance[lag] += (w_[t] - mean_) * (w_[t - lag] - mean_);
    }
  }
  const double scale = mean_ * mean_ * n + covariance[0];
  if (!std::isfinite(covariance[0]) || covariance[0] <= 1e-24 * scale) return false;
  std::array<double, kMaxLongLags + 1> phi{};
  double error = covariance[0];
  for (std::size_t order = 1; order <= lags; ++order) {
    double reflection = covariance[order];
    for (std::size_t i = 1; i < order; ++i) reflection -= phi[i] * covariance[order - i];
    reflection /= error;
    std::array<double, kMaxLongLags + 1> next = phi;
    next[order] = reflection;
    for (std::size_t i = 1; i < order; ++i) next[i] = phi[i] - reflection * phi[order - i];
    phi = next;
    error *= 1 - reflection * reflection;
    if (error <= 1e-12 * covariance[0]) break;
  }
  for (std::size_t t = 0; t < count_; ++t) {
    double e = w_[t] - mean_;
    for (std::size_t i = 1; i <= std::min(lags, t); ++i) e -= phi[i] * (w_[t - i] - mean_);
    shocks_[t] = e;
  }
  return true;
}

bool ArimaFitter::start_values(ArimaModel& model) const {
  const ArimaOrder& order = model.order;
  model.mean = has_mean(order) ? mean_ : 0;
  const int count = coefficients(order);
  if (count == 0) return true;
  Square normal = Square::Zero(count, count);
  Column right = Column::Zero(count);
  const std::size_t first = kMaxLongLags + kArimaLags;
  for (std::size_t t = std::min(first, count_ / 4); t < count_; ++t) {
    std::array<double, kMaxParameters> x{};
    std::size_t filled = 0;
    for (std::size_t i = 1; i <= static_cast<std::size_t>(order.p); ++i) {
      x[filled++] = w_[t - i] - model.mean;
    }
    for (std::size_t j = 1; j <= static_cast<std::size_t>(order.q); ++j) {
      x[filled++] = shocks_[t - j];
    }
    for (int row = 0; row < count; ++row) {
      const double value = x[static_cast<std::size_t>(row)];
      right(row) += value * (w_[t] - model.mean);
      for (int column = 0; column <= row; ++column) {
        normal(row, column) += value * x[static_cast<std::size_t>(column)];
      }
    }
  }
  const Column solution = normal.selfadjointView<Eigen::Lower>().ldlt().solve(right);
  if (!solution.allFinite()) return false;
  for (int i = 0; i < order.p; ++i) at(model.ar, i) = solution(i);
  for (int j = 0; j < order.q; ++j) at(model.ma, j) = solution(order.p + j);
  keep_valid(model);
  return true;
}

void ArimaFitter::refine(ArimaModel& model) const {
  constexpr int kSteps = 8;
  constexpr int kHalvings = 4;
  const std::span<const double> w(w_.data(), count_);
  const ArimaOrder& order = model.order;
  const int count = coefficients(order) + (has_mean(order) ? 1 : 0);
  if (count == 0) return;
  Square normal(count, count);
  Column right(count);
  for (int step = 0; step < kSteps; ++step) {
    const double before = ErrorPass(model, w).run<true>(&normal, &right);
    // A whiff of the diagonal keeps nearly cancelling factors from running away.
    for (int k = 0; k < count; ++k) normal(k, k) *= 1 + 1e-9;
    const Column change = normal.selfadjointView<Eigen::Lower>().ldlt().solve(right);
    if (!change.allFinite()) return;
    double share = 1;
    double after = before;
    for (int halving = 0; halving <= kHalvings; ++halving, share /= 2) {
      ArimaModel tried = model;
      for (int i = 0; i < order.p; ++i) {
        at(tried.ar, i) -= share * change(i);
      }
      for (int j = 0; j < order.q; ++j) {
        at(tried.ma, j) -= share * change(order.p + j);
      }
      if (has_mean(order)) tried.mean -= share * change(count - 1);
      keep_valid(tried);
      after = squares_of(tried, w);
      if (after < before) {
        model = tried;
        break;
      }
    }
    if (!(after < before * (1 - 1e-5))) return;
  }
}

std::optional<ArimaModel> ArimaFitter::fit(std::span<const double> series,
                                           const ArimaOrder& order) {
  return choose(series, {&order, 1});
}

std::optional<ArimaModel> ArimaFitter::choose(std::span<const double> series,
                                              std::span<const ArimaOrder> orders) {
  std::optional<ArimaModel> best;
  int prepared = -1;
  bool usable = false;
  for (const ArimaOrder& order : orders) {
    BELAY_CHECK(order.p >= 0 && order.p <= kArimaLags && order.q >= 0 && order.q <= kArimaLags);
    if (order.d != prepared) {
      usable = prepare(series, order.d);
      prepared = order.d;
    }
    if (!usable) continue;
    ArimaModel model;
    model.order = order;
    if (!start_values(model)) continue;
    refine(model);
    const double squares = squares_of(model, {w_.data(), count_});
    const auto n = static_cast<double>(series.size() - kFirstCounted);
    const int parameters = coefficients(order) + (has_mean(order) ? 1 : 0);
    if (!(squares > 0) || !std::isfinite(squares)) continue;
    model.aic =
        n * std::log(squares / n) + 2.0 * (parameters + 1) + (order.d == 0 ? kLevelPenalty : 0);
    model.variance = squares / (n - parameters);
    model.points = static_cast<std::int64_t>(series.size());
    if (!best || model.aic < best->aic) best = model;
  }
  return best;
}

void ArimaFitter::forecast(std::span<const double> series, const ArimaModel& model,
                           std::span<ArimaForecast> ahead) {
  const ArimaOrder& order = model.order;
  const bool ready = prepare(series, order.d);
  BELAY_CHECK(ready);
  const std::span<const double> w(w_.data(), count_);
  ErrorPass pass(model, w);
  pass.run<false>(nullptr, nullptr);
  Coefficients errors = pass.last();
  Coefficients values{w[count_ - 1] - model.mean, w[count_ - 2] - model.mean};
  Coefficients slopes{-1, -1};  // of the values by the mean
  Coefficients psi{};           // the last weights of the moving-average form, newest first
  Coefficients ma = model.ma;   // those of the weights to come
  double level = order.d == 0 ? 0 : series.back();
  double weight = 0;  // of the integrated process
  double slope = 0;
  double sum = 0;
  double long_run = 1 + model.ma[0] + model.ma[1];
  long_run /= 1 - model.ar[0] - model.ar[1];
  // Also where no drift was found: one too small to be seen is still possible.
  const double mean_error =
      model.variance * long_run * long_run / static_cast<double>(model.points);
  for (std::size_t h = 0; h < ahead.size(); ++h) {
    const double value = model.ar[0] * values[0] + model.ar[1] * values[1] +
                         model.ma[0] * errors[0] + model.ma[1] * errors[1];
    const double value_slope = model.ar[0] * slopes[0] + model.ar[1] * slopes[1];
    const double new_psi = h == 0 ? 1.0 : ma[0] + model.ar[0] * psi[0] + model.ar[1] * psi[1];
    if (h > 0) ma = {ma[1], 0};
    values = {value, values[0]};
    errors = {0, errors[0]};
    slopes = {value_slope, slopes[0]};
    psi = {new_psi, psi[0]};
    const double step = value + model.mean;
    level = order.d == 0 ? step : level + step;
    weight = order.d == 0 ? new_psi : weight + new_psi;
    slope = order.d == 0 ? 1 + value_slope : slope + 1 + value_slope;
    sum += weight * weight;
    ahead[h] = {level, model.variance * sum + mean_error * slope * slope};
  }
}

double normal_quantile(double p) {
  BELAY_CHECK(p > 0 && p < 1);
  double low = -40;
  double high = 40;
  for (int halving = 0; halving < 100; ++halving) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace belay
