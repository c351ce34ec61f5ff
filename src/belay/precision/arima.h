#pragma once
// ARIMA models of short series (Box & Jenkins, Time Series Analysis, 1970, chapters 4, 5 and 7).
// With B the lag operator, w_t = (1 - B)^d x_t - mean and white noise e_t:
//   w_t = sum_i ar_i w_{t-i} + e_t + sum_j ma_j e_{t-j}
// Fitting: the regression on lagged values and on the residuals of a long autoregression (Hannan &
// Rissanen, Biometrika 69, 1982) starts a few Gauss-Newton steps on the conditional sum of squares
// (Box & Jenkins, section 7.1.2 and 7.2). The order with the smallest AIC wins (Akaike, IEEE Trans.
// Automatic Control 19, 1974): n ln(SSE / n) + 2 k. One-step errors of the differenced series are
// those of the series itself, so with errors counted over the same points for every order, models
// with and without differences compare; a level pays a little more, see arima.cc.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace belay {

struct ArimaOrder {
  int p = 0;          // 0 to 2
  int d = 0;          // 0 or 1
  int q = 0;          // 0 to 2
  bool drift = true;  // the mean of w is estimated; for d = 0 it always is

  friend bool operator==(const ArimaOrder&, const ArimaOrder&) = default;
};

// "(1,1,1) with drift"
std::string to_string(const ArimaOrder& order);

inline constexpr int kArimaLags = 2;  // largest p and q

struct ArimaModel {
  ArimaOrder order;
  std::array<double, kArimaLags> ar{};
  std::array<double, kArimaLags> ma{};
  double mean = 0;          // of w: the level for d = 0, the drift per point for d = 1
  double variance = 0;      // of e
  double aic = 0;           // with the level's penalty
  std::int64_t points = 0;  // that were fitted
};

// The orders that choose() compares unless told otherwise.
std::span<const ArimaOrder> arima_orders();

// Point h (from 1) ahead: the mean of the forecast and its variance, the errors of the estimated
// mean included, those of the other coefficients not.
struct ArimaForecast {
  double mean = 0;
  double variance = 0;
};

class ArimaFitter {
 public:
  static constexpr std::size_t kFewestPoints = 32;

  // For series of up to `capacity` points. Nothing is allocated after construction.
  explicit ArimaFitter(std::size_t capacity);

  // None when the series is shorter than kFewestPoints, constant or not finite.
  std::optional<ArimaModel> fit(std::span<const double> series, const ArimaOrder& order);
  std::optional<ArimaModel> choose(std::span<const double> series,
                                   std::span<const ArimaOrder> orders = arima_orders());

  // Fills `ahead` with the forecasts of the points that follow the series, which is the one that
  // was fitted.
  void forecast(std::span<const double> series, const ArimaModel& model,
                std::span<ArimaForecast> ahead);

 private:
  // w without its mean taken off, from series index d on; and the residuals of the long
  // autoregression of it. Kept for the d that was last asked for.
  bool prepare(std::span<const double> series, int d);
  [[nodiscard]] bool start_values(ArimaModel& model) const;
  void refine(ArimaModel& model) const;

  std::vector<double> w_;
  std::vector<double> shocks_;
  std::size_t count_ = 0;  // points of w
  double mean_ = 0;        // of w
};

// x such that a normal deviate is below it with probability p, 0 < p < 1.
double normal_quantile(double p);

}  // namespace belay
