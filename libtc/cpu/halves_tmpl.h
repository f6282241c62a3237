/* SPDX-License-Identifier: MIT
 *
 * The kernels of one ISA that read fp16 where it lies; a part of kernels_tmpl.h. */

#if defined(__clang__) || __GNUC__ >= 12
#define PICK8(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK8(a, b, ...) __builtin_shuffle(a, b, (eight){__VA_ARGS__})
#endif

enum { SUMS = MR * NV, LINE_HALVES = 32 };

/* m rows by nv vectors, both constants, so that the sums stay in registers. The strip to the right is fetched meanwhile: its lines
 * lie far apart, and no hardware sees them coming. */
__attribute__((always_inline)) static inline void half_strip(int m, int nv, int64_t k, const float *restrict a, int64_t lda,
                                                             const uint16_t *restrict b, int64_t ldb, float *restrict out,
                                                             int64_t ldout) {
  vector sum[MR][8];
  for (int i = 0; i < m; i++) {
    for (int v = 0; v < nv; v++) sum[i][v] = (vector){0};
  }
  for (int64_t p = 0; p < k; p++, a += lda, b += ldb) {
    vector bv[8];
    for (int v = 0; v < nv; v++) widen_lanes(b + v * LANES, (float *)&bv[v]);
    for (int x = 0; x < nv * LANES; x += LINE_HALVES) __builtin_prefetch(b + nv * LANES + x);
    for (int i = 0; i < m; i++) {
      for (int v = 0; v < nv; v++) sum[i][v] += a[i] * bv[v];
    }
  }
  for (int i = 0; i < m; i++) {
    for (int v = 0; v < nv; v++) *(unaligned_vector *)(out + i * ldout + v * LANES) = sum[i][v];
  }
}

/* Strips as wide as the registers allow. A last vector that isn't full computes some columns once more. */
__attribute__((always_inline)) static inline void half_rows(int m, int64_t n, int64_t k, const float *a, int64_t lda,
                                                            const uint16_t *b, int64_t ldb, float *out, int64_t ldout) {
  int64_t j = 0;
  if (8 * m <= SUMS) {
    for (; j + 8 * LANES <= n; j += 8 * LANES) half_strip(m, 8, k, a, lda, b + j, ldb, out + j, ldout);
  }
  if (4 * m <= SUMS) {
    for (; j + 4 * LANES <= n; j += 4 * LANES) half_strip(m, 4, k, a, lda, b + j, ldb, out + j, ldout);
  }
  for (; j + 2 * LANES <= n; j += 2 * LANES) half_strip(m, 2, k, a, lda, b + j, ldb, out + j, ldout);
  for (; j + LANES <= n; j += LANES) half_strip(m, 1, k, a, lda, b + j, ldb, out + j, ldout);
  if (j < n) half_strip(m, 1, k, a, lda, b + n - LANES, ldb, out + n - LANES, ldout);
}

static void NAME(gemm_half)(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const uint16_t *b, int64_t ldb,
                            float *out, int64_t ldout) {
  switch (m) {
#define HALF_ROWS(m)                                \
  case m:                                           \
    half_rows(m, n, k, a, lda, b, ldb, out, ldout); \
    break;
    HALF_ROWS(1)
    HALF_ROWS(2)
    HALF_ROWS(3)
    HALF_ROWS(4)
#if MR > 4
    HALF_ROWS(5)
    HALF_ROWS(6)
#endif
#if MR > 6
    HALF_ROWS(7) HALF_ROWS(8) HALF_ROWS(9) HALF_ROWS(10) HALF_ROWS(11) HALF_ROWS(12)
#endif
  }
}

typedef uint16_t eight __attribute__((vector_size(16)));
typedef uint16_t unaligned_eight __attribute__((vector_size(16), aligned(2), may_alias));

/* dst[q * ldd + r] = row[r][q] for r and q < 8: pairs, fours, then eights of rows come together. */
static inline void transpose_8x8(const uint16_t *const *row, int64_t p, uint16_t *dst, int64_t ldd) {
  eight by1[8], by2[8], by4[8];
  for (int r = 0; r < 8; r++) by1[r] = *(const unaligned_eight *)(row[r] + p);
  for (int r = 0; r < 8; r += 2) {
    by2[r] = PICK8(by1[r], by1[r + 1], 0, 8, 1, 9, 2, 10, 3, 11);
    by2[r + 1] = PICK8(by1[r], by1[r + 1], 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (int r = 0; r < 8; r += 4) {
    for (int h = 0; h < 2; h++) {
      by4[r + 2 * h] = PICK8(by2[r + h], by2[r + h + 2], 0, 1, 8, 9, 2, 3, 10, 11);
      by4[r + 2 * h + 1] = PICK8(by2[r + h], by2[r + h + 2], 4, 5, 12, 13, 6, 7, 14, 15);
    }
  }
  for (int q = 0; q < 4; q++) {
    *(unaligned_eight *)(dst + 2 * q * ldd) = PICK8(by4[q], by4[q + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    *(unaligned_eight *)(dst + (2 * q + 1) * ldd) = PICK8(by4[q], by4[q + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

/* dst[q * ldd + r] = row[r][p + q] for all rows and q < BLOCK_TERMS. */
#ifndef HAS_TRANSPOSE_BLOCK
enum { BLOCK_TERMS = 8 };

static inline void transpose_block(const uint16_t *const row[TC_HALF_COLUMNS], int64_t p, uint16_t *dst, int64_t ldd) {
  for (int r = 0; r < TC_HALF_COLUMNS; r += 8) transpose_8x8(row + r, p, dst + r, ldd);
}
#endif

/* Terms that fill no block any more; the last eight do some of them once more, if there are enough. */
static void transpose_rest(const uint16_t *const row[TC_HALF_COLUMNS], int64_t p, int64_t k, uint16_t *dst, int64_t ldd) {
  for (; p < k; p += 8) {
    const int64_t first = p + 8 <= k ? p : k - 8;
    for (int r = 0; first >= 0 && r < TC_HALF_COLUMNS; r += 8) transpose_8x8(row + r, first, dst + first * ldd + r, ldd);
    for (int64_t q = p; first < 0 && q < k; q++) {
      for (int r = 0; r < TC_HALF_COLUMNS; r++) dst[q * ldd + r] = row[r][q];
    }
  }
}

static void NAME(transpose)(int64_t n, int64_t k, const uint16_t *src, int64_t lds, uint16_t *dst, int64_t ldd) {
  for (int64_t r = 0; r < n; r += TC_HALF_COLUMNS) {
    const uint16_t *row[TC_HALF_COLUMNS];
    for (int64_t i = 0; i < TC_HALF_COLUMNS; i++) row[i] = src + (r + i < n ? r + i : n - 1) * lds;
    int64_t p = 0;
    for (; p + BLOCK_TERMS <= k; p += BLOCK_TERMS) {
      for (int i = 0; i < TC_HALF_COLUMNS; i++) __builtin_prefetch(row[i] + TC_HALF_COLUMNS * lds + p);
      transpose_block(row, p, dst + p * ldd + r, ldd);
    }
    transpose_rest(row, p, k, dst + r, ldd);
  }
}
