/* SPDX-License-Identifier: MIT
 *
 * The kernels of convolution of one ISA; a part of kernels_tmpl.h. */

/* The body for a constant m and nv. Rows of a are addressed from every fourth one, which needs few registers. */
__attribute__((always_inline)) static inline void taps_rows(int m, int nv, int64_t runs, const tc_run *run, const float *restrict a,
                                                            int64_t lda, const float *restrict b, float *restrict out,
                                                            int64_t ldout, double *restrict second) {
  vector sum[MR][NV];
  for (const tc_run *r = run; r < run + runs;) {
    const bool first = r == run;
    for (int i = 0; i < m; i++) {
      for (int v = 0; v < nv; v++) sum[i][v] = (vector){0};
    }
    do {
      const float *a0 = a + r->a, *a4 = a0 + 4 * lda, *a8 = a4 + 4 * lda, *bp = b + r->b;
      for (int64_t p = 0; p < r->n; p++, a0++, a4++, a8++, bp += NR) {
        vector bv[NV];
        for (int v = 0; v < nv; v++) bv[v] = *(const unaligned_vector *)(bp + v * LANES);
        for (int i = 0; i < m; i++) {
          const float *row = i < 4 ? a0 : i < 8 ? a4 : a8;
          for (int v = 0; v < nv; v++) sum[i][v] += row[i % 4 * lda] * bv[v];
        }
      }
    } while (!r++->ends);
    const bool last = r == run + runs;
    for (int i = 0; i < m; i++) {
      for (int v = 0; v < nv; v++) {
        wide_vector *const held = (wide_vector *)(second + i * NR + v * LANES);
        vector result = sum[i][v];
        if (!first || !last) {
          const wide_vector wide = __builtin_convertvector(sum[i][v], wide_vector);
          if (first) {
            *held = wide;
          } else {
            *held += wide;
          }
          if (last) result = __builtin_convertvector(*held, vector);
        }
        if (last) *(unaligned_vector *)(out + i * ldout + v * LANES) = result;
      }
    }
  }
}

typedef void tc_taps_rows(int64_t runs, const tc_run *run, const float *a, int64_t lda, const float *b, float *out, int64_t ldout,
                          double *second);

#define TAPS(m, nv)                                                                                                     \
  static void taps_##m##_##nv(int64_t runs, const tc_run *run, const float *a, int64_t lda, const float *b, float *out, \
                              int64_t ldout, double *second) {                                                          \
    taps_rows(m, nv, runs, run, a, lda, b, out, ldout, second);                                                         \
  }
#if NR / LANES == 2
#define EACH_NV(m) TAPS(m, 1) TAPS(m, 2)
#define NAMES(m) \
  { taps_##m##_1, taps_##m##_2 }
#else
#define EACH_NV(m) TAPS(m, 1) TAPS(m, 2) TAPS(m, 3) TAPS(m, 4)
#define NAMES(m) \
  { taps_##m##_1, taps_##m##_2, taps_##m##_3, taps_##m##_4 }
#endif

EACH_NV(1)
EACH_NV(2)
EACH_NV(3) EACH_NV(4)
#if MR > 4
    EACH_NV(5) EACH_NV(6)
#endif
#if MR > 6
        EACH_NV(7) EACH_NV(8) EACH_NV(9) EACH_NV(10) EACH_NV(11) EACH_NV(12)
#endif

            static void NAME(taps)(int64_t m, int64_t n, int64_t runs, const tc_run *run, const float *a, int64_t lda,
                                   const float *b, float *out, int64_t ldout) {
  static tc_taps_rows *const rows[MR][NV] = {
    NAMES(1),
    NAMES(2),
    NAMES(3),
    NAMES(4),
#if MR > 4
    NAMES(5),
    NAMES(6),
#endif
#if MR > 6
    NAMES(7),
    NAMES(8),
    NAMES(9),
    NAMES(10),
    NAMES(11),
    NAMES(12),
#endif
  };
  double second[MR * NR];
  rows[m - 1][(n - 1) / LANES](runs, run, a, lda, b, out, ldout, second);
}

enum { SIDE = 8, ROWS_MAX = 32 };

/* One row, its elements apart. */
static inline void spread_row(int64_t n, const uint16_t *src, float *dst, const int64_t *at) {
  float wide[64];
  for (int64_t x = 0; x < n; x += 64) {
    const int64_t step = n - x < 64 ? n - x : 64;
    NAME(widen)(step, src + x, wide);
    for (int64_t s = 0; s < step; s++) dst[at[x + s]] = wide[s];
  }
}

/* Blocks of 8 columns; the last one overlaps the one before. */
static void NAME(spread)(int64_t rows, int64_t n, const uint16_t *src, int64_t ld, float *dst, const int64_t *at) {
  int64_t r = 0;
  for (; n >= SIDE && rows - r >= SIDE; r += rows - r < ROWS_MAX ? (rows - r) / SIDE * SIDE : ROWS_MAX) {
    const int64_t part = rows - r < ROWS_MAX ? (rows - r) / SIDE * SIDE : ROWS_MAX;
    uint16_t block[SIDE][ROWS_MAX];
    for (int64_t x = 0; x < n; x += SIDE) {
      const int64_t from = x + SIDE <= n ? x : n - SIDE;
      for (int64_t s = 0; s < part; s += SIDE) {
        const uint16_t *row[SIDE];
        for (int i = 0; i < SIDE; i++) row[i] = src + (r + s + i) * ld;
        transpose_8x8(row, from, &block[0][s], ROWS_MAX);
      }
      for (int s = 0; s < SIDE; s++) NAME(widen)(part, block[s], dst + at[from + s] + r);
    }
  }
  for (; r < rows; r++) spread_row(n, src + r * ld, dst + r, at);
}

enum { PART = LANES < SIDE ? SIDE : LANES };

/* rows <= PART of columns <= SIDE. */
static inline void gather_block(int64_t rows, int64_t columns, const float *src, int64_t from, const float *bias, uint16_t *dst,
                                int64_t ld) {
  uint16_t block[SIDE][PART];
  for (int64_t x = 0; x < columns; x++) {
    for (int r = 0; r < PART; r += LANES) {
      vector values = *(const unaligned_vector *)(src + x * from + r);
      if (bias) values += *(const unaligned_vector *)(bias + r);
      narrow_canonical((const float *)&values, &block[x][r]);
    }
  }
  int64_t r = 0;
  for (; columns == SIDE && rows - r >= SIDE; r += SIDE) {
    const uint16_t *pixel[SIDE];
    for (int x = 0; x < SIDE; x++) pixel[x] = block[x];
    transpose_8x8(pixel, r, dst + r * ld, ld);
  }
  for (; r < rows; r++) {
    for (int64_t x = 0; x < columns; x++) dst[r * ld + x] = block[x][r];
  }
}

static void NAME(gather)(int64_t rows, int64_t n, const float *src, int64_t from, const float *bias, uint16_t *dst, int64_t ld) {
  for (int64_t r = 0; r < rows; r += PART) {
    const int64_t part = rows - r < PART ? rows - r : PART;
    for (int64_t x = 0; x < n; x += SIDE) {
      const int64_t at = n < SIDE || x + SIDE <= n ? x : n - SIDE, columns = n < SIDE ? n : SIDE;
      gather_block(part, columns, src + at * from + r, from, bias ? bias + r : NULL, dst + r * ld + at, ld);
    }
  }
}

static inline void widen_row(int64_t n, const uint16_t *src, int64_t step, float *dst) {
  uint16_t dense[64];
  for (int64_t x = 0; x < n; x += 64) {
    const int64_t part = n - x < 64 ? n - x : 64;
    if (step == 2) {
      for (int64_t s = 0; s < part; s++) dense[s] = src[(x + s) * 2];
    } else {
      for (int64_t s = 0; s < part; s++) dense[s] = src[(x + s) * step];
    }
    NAME(widen)(part, dense, dst + x);
  }
}

static void NAME(widen_rows)(int64_t rows, int64_t n, const uint16_t *src, int64_t ld, int64_t step, float *dst, int64_t to) {
  if (step == 1) {
    for (int64_t r = 0; r < rows; r++) NAME(widen)(n, src + r * ld, dst + r * to);
  } else {
    for (int64_t r = 0; r < rows; r++) widen_row(n, src + r * ld, step, dst + r * to);
  }
}

static inline void narrow_biased(const float *src, vector bias, bool biased, uint16_t *dst) {
  vector values = *(const unaligned_vector *)src;
  if (biased) values += bias;
  narrow_canonical((const float *)&values, dst);
}

static void NAME(narrow_rows)(int64_t rows, int64_t n, const float *src, int64_t ld, const float *bias, uint16_t *dst, int64_t to) {
  for (int64_t r = 0; r < rows; r++, src += ld, dst += to) {
    const vector added = (vector){0} + (bias ? bias[r] : 0);
    if (n >= LANES) {
      for (int64_t x = 0; x < n - LANES; x += LANES) narrow_biased(src + x, added, bias, dst + x);
      narrow_biased(src + n - LANES, added, bias, dst + n - LANES);
    } else {
      float few[LANES] = {0};
      uint16_t narrowed[LANES];
      for (int64_t x = 0; x < n; x++) few[x] = src[x];
      narrow_biased(few, added, bias, narrowed);
      for (int64_t x = 0; x < n; x++) dst[x] = narrowed[x];
    }
  }
}

static bool NAME(finite)(int64_t n, const uint16_t *src) {
  unsigned special = 0;
  for (int64_t i = 0; i < n; i++) special |= (src[i] & 0x7c00u) == 0x7c00u;
  return !special;
}
