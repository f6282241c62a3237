/* SPDX-License-Identifier: MIT */
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "compile this file with -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#define ISA avx512
#define LANES 16
#define MR 12
#define NR 32
#define WIDENS_AT_ONCE true

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

#define HAS_NARROW_FEW
static inline void narrow_few(int64_t n, const float *src, uint16_t *dst) {
  const __mmask16 few = (__mmask16)((1u << n) - 1u);
  const __m512 values = _mm512_maskz_loadu_ps(few, src);
  const __mmask16 numbers = _mm512_cmp_ps_mask(values, values, _CMP_ORD_Q);
  const __m512 canonical = _mm512_mask_blend_ps(numbers, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)), values);
  _mm256_mask_storeu_epi16(dst, few, _mm512_cvtps_ph(canonical, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#define HAS_WIDEN_EVEN
static inline void widen_even(int64_t n, const uint16_t *src, float *dst) {
  for (int64_t x = 0; x < n; x += 16) {
    const int64_t part = n - x < 16 ? n - x : 16;
    const __m512i pairs = _mm512_maskz_loadu_epi16((__mmask32)((1ull << (2 * part - 1)) - 1), src + 2 * x);
    _mm512_mask_storeu_ps(dst + x, (__mmask16)((1u << part) - 1u), _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs)));
  }
}

#define HAS_SPREAD_BLOCK
enum { SPREAD_COLUMNS = 32 };

/* dst[at[x] + r] = src[r*ld + x], widened, for r < rows and x < n, both at most 32: 8x8 blocks within lanes of 128 bits, then the lanes
 * themselves. */
static inline void spread_block(int64_t rows, int64_t n, const uint16_t *src, int64_t ld, float *dst, const int64_t *at) {
  const __mmask32 columns = (__mmask32)((1ull << n) - 1), wanted = (__mmask32)((1ull << rows) - 1);
  __m512i by8[4][8];
  for (int64_t b = 0; b < (rows <= 8 ? 1 : 4); b++) {
    __m512i row[8], by2[8], by4[8];
    for (int64_t r = 0; r < 8; r++) {
      row[r] = b * 8 + r < rows ? _mm512_maskz_loadu_epi16(columns, src + (b * 8 + r) * ld) : _mm512_setzero_si512();
    }
    for (int r = 0; r < 4; r++) {
      by2[2 * r] = _mm512_unpacklo_epi16(row[r], row[r + 4]);
      by2[2 * r + 1] = _mm512_unpackhi_epi16(row[r], row[r + 4]);
    }
    for (int r = 0; r < 4; r++) {
      by4[2 * r] = _mm512_unpacklo_epi16(by2[r], by2[r + 4]);
      by4[2 * r + 1] = _mm512_unpackhi_epi16(by2[r], by2[r + 4]);
    }
    for (int r = 0; r < 4; r++) {
      by8[b][2 * r] = _mm512_unpacklo_epi16(by4[r], by4[r + 4]);
      by8[b][2 * r + 1] = _mm512_unpackhi_epi16(by4[r], by4[r + 4]);
    }
  }
  if (rows <= 8) {
    for (int64_t x = 0; x < n; x++) {
      const __m128i column = _mm_load_si128((const __m128i *)&by8[0][x % 8] + x / 8);
      _mm256_mask_storeu_ps(dst + at[x], (__mmask8)wanted, _mm256_cvtph_ps(column));
    }
    return;
  }
  for (int64_t x = 0; x < 8; x++) {
    const __m512i low01 = _mm512_shuffle_i32x4(by8[0][x], by8[1][x], 0x44),
                  low23 = _mm512_shuffle_i32x4(by8[2][x], by8[3][x], 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(by8[0][x], by8[1][x], 0xee),
                  high23 = _mm512_shuffle_i32x4(by8[2][x], by8[3][x], 0xee);
    const __m512i column[4] = {_mm512_shuffle_i32x4(low01, low23, 0x88), _mm512_shuffle_i32x4(low01, low23, 0xdd),
                               _mm512_shuffle_i32x4(high01, high23, 0x88), _mm512_shuffle_i32x4(high01, high23, 0xdd)};
    for (int64_t lane = 0; lane < 4 && lane * 8 + x < n; lane++) {
      float *to = dst + at[lane * 8 + x];
      _mm512_mask_storeu_ps(to, (__mmask16)wanted, _mm512_cvtph_ps(_mm512_castsi512_si256(column[lane])));
      if (rows > 16) {
        _mm512_mask_storeu_ps(to + 16, (__mmask16)(wanted >> 16), _mm512_cvtph_ps(_mm512_extracti64x4_epi64(column[lane], 1)));
      }
    }
  }
}

/* Sixteen rows of 32 halves. Unpacking brings two, four, then eight rows together, for every eighth term in a vector; what stays in
 * its 128 bits is then joined with that of the other eight rows. */
#define HAS_TRANSPOSE_BLOCK
enum { BLOCK_TERMS = 32 };

static inline void store_terms(__m512i terms, uint16_t *dst, int64_t distance) {
  _mm256_storeu_si256((__m256i *)dst, _mm512_castsi512_si256(terms));
  _mm256_storeu_si256((__m256i *)(dst + distance), _mm512_extracti64x4_epi64(terms, 1));
}

static inline void transpose_block(const uint16_t *const row[16], int64_t p, uint16_t *dst, int64_t ldd) {
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  __m512i by2[16], by4[16], by8[16];
  for (int r = 0; r < 16; r += 2) {
    const __m512i even = _mm512_loadu_si512(row[r] + p), odd = _mm512_loadu_si512(row[r + 1] + p);
    by2[r] = _mm512_unpacklo_epi16(even, odd);
    by2[r + 1] = _mm512_unpackhi_epi16(even, odd);
  }
  for (int r = 0; r < 16; r += 4) {
    for (int h = 0; h < 2; h++) {
      by4[r + 2 * h] = _mm512_unpacklo_epi32(by2[r + h], by2[r + h + 2]);
      by4[r + 2 * h + 1] = _mm512_unpackhi_epi32(by2[r + h], by2[r + h + 2]);
    }
  }
  for (int r = 0; r < 16; r += 8) {
    for (int q = 0; q < 4; q++) {
      by8[r + 2 * q] = _mm512_unpacklo_epi64(by4[r + q], by4[r + q + 4]);
      by8[r + 2 * q + 1] = _mm512_unpackhi_epi64(by4[r + q], by4[r + q + 4]);
    }
  }
  for (int q = 0; q < 8; q++) {
    store_terms(_mm512_permutex2var_epi64(by8[q], low, by8[q + 8]), dst + q * ldd, 8 * ldd);
    store_terms(_mm512_permutex2var_epi64(by8[q], high, by8[q + 8]), dst + (q + 16) * ldd, 8 * ldd);
  }
}

#include "cpu/kernels_tmpl.h"
