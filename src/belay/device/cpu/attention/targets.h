// Instruction sets that attention is compiled for: AVX-512, AVX2 and a portable baseline. Included
// before Highway's foreach_target.h; the ones left out would cost compile time for processors on
// which nobody trains.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
