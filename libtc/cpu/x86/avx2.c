/* SPDX-License-Identifier: MIT */
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "compile this file with -mavx2 -mfma -mf16c"
#endif

#define ISA avx2
#define LANES 8
#define MR 6
#define NR 16
#define WIDENS_AT_ONCE true

#include <immintrin.h>
#include <stdint.h>

static inline void widen_lanes(const uint16_t *src, float *dst) {
  _mm256_storeu_ps(dst, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)src)));
}

static inline void narrow_lanes(const float *src, uint16_t *dst) {
  _mm_storeu_si128((__m128i *)dst, _mm256_cvtps_ph(_mm256_loadu_ps(src), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#include "cpu/kernels_tmpl.h"
