#pragma once
// Which instruction sets the vectorised kernels are compiled for: AVX-512, AVX2 and the portable
// baseline. Include before hwy/foreach_target.h. Fewer targets keep the build short; the ones left
// out (SSSE3, SSE4, AVX3_DL) add nothing these kernels use.

#include "hwy/detect_targets.h"

#undef HWY_DISABLED_TARGETS
#ifdef BELAY_PORTABLE_SIMD
// Sanitized builds check the kernels' own logic, which is the same for every instruction set, and
// instrumented vector code takes minutes to compile: the baseline only.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
