/* SPDX-License-Identifier: MIT */
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "compile this file with -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#define ISA avx512
#define LANES 16
#define MR 12
#define NR 32

#include <immintrin.h>
#include <stdint.h>

static inline void widen_lanes(const uint16_t *src, float *dst) {
  _mm512_storeu_ps(dst, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)src)));
}

static inline void narrow_lanes(const float *src, uint16_t *dst) {
  _mm256_storeu_si256((__m256i *)dst, _mm512_cvtps_ph(_mm512_loadu_ps(src), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#define HAS_WIDEN_FEW
static inline void widen_few(int64_t n, const uint16_t *src, float *dst) {
  const __mmask16 few = (__mmask16)((1u << n) - 1u);
  _mm512_mask_storeu_ps(dst, few, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(few, src)));
}

#include "cpu/kernels_tmpl.h"
