#pragma once
// Eight bits a value, in blocks of 256 that share a scale (symmetric: a value is code / 127 of the
// block's largest magnitude). A value is off by at most half a code, scale / 254, and what is at
// the largest magnitude, or zero, is exact; so blocks of one value, or of zeros, are exact too.
//
// A block that holds something infinite or NaN gets the scale NaN, and so decodes to NaN all over:
// what is wrong stays visible, and in its own block. Finite blocks are untouched by it.

#include <cstdint>
#include <span>

namespace belay::comm {

inline constexpr std::int64_t kQuantBlock = 256;

constexpr std::int64_t quant_blocks(std::int64_t count) {
  return (count + kQuantBlock - 1) / kQuantBlock;
}

// codes: quant_blocks * kQuantBlock bytes, the last block filled up with zeros; scales: one per
// block. errors, unless null, becomes values less what they decode to, and may be `values`; in a
// block that is not finite it means nothing.
void quantise(const float* values, std::int64_t count, std::int8_t* codes, float* scales,
              float* errors);

void dequantise(const std::int8_t* codes, const float* scales, std::int64_t count, float* dst);
// dst += the same.
void add_dequantised(const std::int8_t* codes, const float* scales, std::int64_t count, float* dst);

// dst = first + factor * second; dst may be either.
void add_scaled(const float* first, const float* second, float factor, float* dst,
                std::int64_t count);

}  // namespace belay::comm
