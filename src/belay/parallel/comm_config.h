#pragma once
// [comm]: how ranks talk to each other.

#include <cstdint>
#include <span>

#include "belay/base/config.h"
#include "belay/parallel/gradient_exchange.h"

namespace belay {

struct CommConfig {
  double timeout_s = 600;
  double bucket_mb = 25;
  std::int64_t buckets = 4;
  bool overlap = true;
  bool order_stable = false;

  [[nodiscard]] ExchangeOptions exchange() const {
    return {static_cast<std::size_t>(bucket_mb * 1e6), static_cast<int>(buckets), overlap};
  }

  static constexpr std::string_view kSection = "comm";
  static std::span<const config::Field> fields();
};

}  // namespace belay
