/* SPDX-License-Identifier: MIT
 *
 * The kernels of convolution of one ISA; a part of kernels_tmpl.h. */

/* kernel(m, nv) for each height, and for widths of 1, 2 and all vectors, as constants. */
#define TILE_ROWS(m, kernel)                \
  case m:                                   \
    if (n <= LANES) {                       \
      kernel(m, 1);                         \
    } else if (NV == 2 || n <= 2 * LANES) { \
      kernel(m, 2);                         \
    } else {                                \
      kernel(m, NV);                        \
    }                                       \
    break;
#define ROWS_1_TO_4(kernel) TILE_ROWS(1, kernel) TILE_ROWS(2, kernel) TILE_ROWS(3, kernel) TILE_ROWS(4, kernel)
#if MR > 4
#define ROWS_5_TO_6(kernel) TILE_ROWS(5, kernel) TILE_ROWS(6, kernel)
#else
#define ROWS_5_TO_6(kernel)
#endif
#if MR > 6
#define ROWS_7_TO_9(kernel) TILE_ROWS(7, kernel) TILE_ROWS(8, kernel) TILE_ROWS(9, kernel)
#define ROWS_10_TO_12(kernel) TILE_ROWS(10, kernel) TILE_ROWS(11, kernel) TILE_ROWS(12, kernel)
#else
#define ROWS_7_TO_9(kernel)
#define ROWS_10_TO_12(kernel)
#endif

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

/* Apart from its caller, so that the compiler need not know when second is written before it is read. */
__attribute__((noinline)) static void taps_any(int64_t m, int64_t n, int64_t runs, const tc_run *run, const float *a, int64_t lda,
                                               const float *b, float *out, int64_t ldout, double *second) {
#define TAPS(m, nv) taps_rows(m, nv, runs, run, a, lda, b, out, ldout, second)
  switch (m) { ROWS_1_TO_4(TAPS) ROWS_5_TO_6(TAPS) ROWS_7_TO_9(TAPS) ROWS_10_TO_12(TAPS) }
}

static void NAME(taps)(int64_t m, int64_t n, int64_t runs, const tc_run *run, const float *a, int64_t lda, const float *b,
                       float *out, int64_t ldout) {
  double second[MR * NR];
  taps_any(m, n, runs, run, a, lda, b, out, ldout, second);
}

__attribute__((always_inline)) static inline void outer_rows(int m, int nv, int64_t runs, const tc_run *run,
                                                             const float *restrict a, int64_t lda, const float *restrict b,
                                                             int64_t ldb, double *restrict acc, int64_t ldacc) {
  vector sum[MR][NV];
  for (int i = 0; i < m; i++) {
    for (int v = 0; v < nv; v++) sum[i][v] = (vector){0};
  }
  for (const tc_run *r = run; r < run + runs; r++) {
    const float *ap = a + r->a, *bp = b + r->b;
    for (int64_t p = 0; p < r->n; p++, ap += lda, bp += ldb) {
      vector bv[NV];
      for (int v = 0; v < nv; v++) bv[v] = *(const unaligned_vector *)(bp + v * LANES);
      for (int i = 0; i < m; i++) {
        for (int v = 0; v < nv; v++) sum[i][v] += ap[i] * bv[v];
      }
    }
  }
  for (int i = 0; i < m; i++) {
    for (int v = 0; v < nv; v++) *(wide_vector *)(acc + i * ldacc + v * LANES) += __builtin_convertvector(sum[i][v], wide_vector);
  }
}

static void NAME(outer)(int64_t m, int64_t n, int64_t runs, const tc_run *run, const float *a, int64_t lda, const float *b,
                        int64_t ldb, double *acc, int64_t ldacc) {
#define OUTER(m, nv) outer_rows(m, nv, runs, run, a, lda, b, ldb, acc, ldacc)
  switch (m) { ROWS_1_TO_4(OUTER) ROWS_5_TO_6(OUTER) ROWS_7_TO_9(OUTER) ROWS_10_TO_12(OUTER) }
}

enum { SIDE = 8, ROWS_MAX = 32 };

#ifndef HAS_SPREAD_BLOCK
enum { SPREAD_COLUMNS = SIDE };

/* dst[at[x] + r] = src[r*ld + x], widened, for r < rows <= ROWS_MAX and x < n <= SPREAD_COLUMNS. */
static inline void spread_block(int64_t rows, int64_t n, const uint16_t *src, int64_t ld, float *dst, const int64_t *at) {
  const int64_t whole = n == SIDE ? rows / SIDE * SIDE : 0;
  uint16_t block[SIDE][ROWS_MAX];
  for (int64_t r = 0; r < whole; r += SIDE) {
    const uint16_t *row[SIDE];
    for (int i = 0; i < SIDE; i++) row[i] = src + (r + i) * ld;
    transpose_8x8(row, 0, &block[0][r], ROWS_MAX);
  }
  for (int64_t r = whole; r < rows; r++) {
    for (int64_t x = 0; x < n; x++) block[x][r] = src[r * ld + x];
  }
  for (int64_t x = 0; x < n; x++) NAME(widen)(rows, block[x], dst + at[x]);
}
#endif

enum { LINE_OF_HALVES = 32 };

/* Lines of many rows, which no hardware sees coming, are fetched first. A last block that isn't full overlaps the one before. */
static void NAME(spread)(int64_t rows, int64_t n, const uint16_t *src, int64_t ld, float *dst, const int64_t *at) {
  for (int64_t r = 0; r < rows; r += ROWS_MAX) {
    const int64_t part = rows - r < ROWS_MAX ? rows - r : ROWS_MAX;
    for (int64_t s = r; s < r + part; s++) {
      for (int64_t x = 0; x < n; x += LINE_OF_HALVES) __builtin_prefetch(src + s * ld + x);
    }
    for (int64_t x = 0; x < n; x += SPREAD_COLUMNS) {
      const int64_t columns = n < SPREAD_COLUMNS ? n : SPREAD_COLUMNS, from = x + columns <= n ? x : n - columns;
      spread_block(part, columns, src + r * ld + from, ld, dst + r, at + from);
    }
  }
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

static void NAME(pick)(int64_t n, const uint16_t *src, int64_t step, uint16_t *dst) {
  if (step == 2) {
    for (int64_t x = 0; x < n; x++) dst[x] = src[2 * x]; /* whole vectors of them */
  } else {
    for (int64_t x = 0; x < n; x++) dst[x] = src[step * x];
  }
}

#ifndef HAS_WIDEN_EVEN
/* dst[x] = src[2*x], widened. */
static inline void widen_even(int64_t n, const uint16_t *src, float *dst) {
  uint16_t dense[64];
  for (int64_t x = 0; x < n; x += 64) {
    const int64_t part = n - x < 64 ? n - x : 64;
    NAME(pick)(part, src + x * 2, 2, dense);
    NAME(widen)(part, dense, dst + x);
  }
}
#endif

static inline void widen_apart(int64_t n, const uint16_t *src, int64_t step, float *dst) {
  uint16_t dense[64];
  for (int64_t x = 0; x < n; x += 64) {
    const int64_t part = n - x < 64 ? n - x : 64;
    NAME(pick)(part, src + x * step, step, dense);
    NAME(widen)(part, dense, dst + x);
  }
}

static void NAME(widen_rows)(int64_t rows, int64_t n, const uint16_t *src, int64_t ld, int64_t step, float *dst, int64_t to) {
  for (int64_t r = 0; r < rows; r++, src += ld, dst += to) {
    if (step == 1) {
      NAME(widen)(n, src, dst);
    } else if (step == 2) {
      widen_even(n, src, dst);
    } else {
      widen_apart(n, src, step, dst);
    }
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
      float few[LANES];
      for (int64_t x = 0; x < n; x++) few[x] = bias ? src[x] + bias[r] : src[x];
      narrow_few(n, few, dst);
    }
  }
}

__attribute__((always_inline)) static inline void planes_block(int nv, int64_t terms, const float *weight, const int64_t *at,
                                                               const float *src, float *out) {
  vector sum[8];
  for (int v = 0; v < nv; v++) sum[v] = (vector){0};
  for (int64_t t = 0; t < terms; t++) {
    for (int v = 0; v < nv; v++) sum[v] += weight[t] * *(const unaligned_vector *)(src + at[t] + v * LANES);
  }
  for (int v = 0; v < nv; v++) *(unaligned_vector *)(out + v * LANES) = sum[v];
}

static void NAME(planes)(int64_t n, int64_t terms, const float *weight, const int64_t *at, const float *src, float *out) {
  int64_t x = 0;
  for (; x + 8 * LANES <= n; x += 8 * LANES) planes_block(8, terms, weight, at, src + x, out + x);
  if (x + 4 * LANES <= n) {
    planes_block(4, terms, weight, at, src + x, out + x);
    x += 4 * LANES;
  }
  for (; x < n; x += LANES) planes_block(1, terms, weight, at, src + x, out + x);
}

/* Vectors that make up TC_LANES, and terms at once, so that there are eight sums. */
enum { DOT_VECTORS = TC_LANES / LANES, DOT_TERMS = 8 / DOT_VECTORS };

__attribute__((always_inline)) static inline void dots_block(int terms, int64_t n, const float *a, const float *b,
                                                             const int64_t *at, double *acc) {
  vector sum[DOT_TERMS][DOT_VECTORS];
  for (int t = 0; t < terms; t++) {
    for (int v = 0; v < DOT_VECTORS; v++) sum[t][v] = (vector){0};
  }
  int64_t x = 0;
  for (; x + TC_LANES <= n; x += TC_LANES) {
    for (int v = 0; v < DOT_VECTORS; v++) {
      const vector av = *(const unaligned_vector *)(a + x + v * LANES);
      for (int t = 0; t < terms; t++) sum[t][v] += av * *(const unaligned_vector *)(b + at[t] + x + v * LANES);
    }
  }
  for (int t = 0; t < terms; t++) {
    float lanes[TC_LANES];
    memcpy(lanes, sum[t], sizeof lanes);
    for (int64_t rest = x; rest < n; rest++) lanes[rest - x] += a[rest] * b[at[t] + rest];
    for (int l = 0; l < TC_LANES; l++) acc[t] += (double)lanes[l];
  }
}

static void NAME(dots)(int64_t n, int64_t terms, const float *a, const float *b, const int64_t *at, double *acc) {
  for (int64_t x = 0; x < n; x += TC_LANES * TC_KC) {
    const int64_t part = n - x < TC_LANES * TC_KC ? n - x : TC_LANES * TC_KC;
    int64_t t = 0;
    for (; t + DOT_TERMS <= terms; t += DOT_TERMS) dots_block(DOT_TERMS, part, a + x, b + x, at + t, acc + t);
    for (; t < terms; t++) dots_block(1, part, a + x, b + x, at + t, acc + t);
  }
}

static bool NAME(finite)(int64_t n, const uint16_t *src) {
  unsigned special = 0;
  for (int64_t i = 0; i < n; i++) special |= (src[i] & 0x7c00u) == 0x7c00u;
  return !special;
}
