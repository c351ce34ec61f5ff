#include "belay/machine/bandwidth.h"

#include <gtest/gtest.h>

namespace belay {
namespace {

TEST(BandwidthTest, RatesArePlausibleAndConsistent) {
  const MachineRates rates = measure_rates();
  // A byte per nanosecond is below any machine this runs on; 10 TB/s above any.
  EXPECT_GT(rates.memory_bytes_per_s, 1e9);
  EXPECT_LT(rates.memory_bytes_per_s, 1e13);
  EXPECT_GE(rates.memory_bytes_per_s, rates.copy_bytes_per_s);
  EXPECT_GE(rates.memory_bytes_per_s, rates.triad_bytes_per_s);
  EXPECT_GT(rates.read_bytes_per_s, 1e9);
  EXPECT_GT(rates.gemm_f32_flops_per_s, 1e9);
  EXPECT_GE(rates.gemm_bf16_flops_per_s, 0.0);
}

}  // namespace
}  // namespace belay
