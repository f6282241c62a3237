/* SPDX-License-Identifier: MIT
 *
 * The kernels of one ISA, written once with vector extensions and compiled with each ISA's own flags. The including file defines
 *   ISA          suffix of the names and value of TC_CPU_ISA
 *   LANES        fp32 lanes of a vector
 *   MR, NR       register tile: MR rows (gemm has a case for each m up to 4, 6 or 12) by NR columns (whole vectors)
 *   widen_lanes(const uint16_t *, float *), narrow_lanes(const float *, uint16_t *)   LANES conversions
 *   widen_few(int64_t n, ...), narrow_few(int64_t n, ...)   optional: n < LANES conversions that touch nothing else
 *   WIDENS_AT_ONCE   whether widen_lanes is an instruction
 *   transpose_block(...)        optional (HAS_TRANSPOSE_BLOCK, with BLOCK_TERMS): see halves_tmpl.h
 *   widen_even, spread_block    optional: see conv_tmpl.h
 */
#include "cpu/kernels.h"
#include "f16.h"

#define NAME2(prefix, isa) prefix##_##isa
#define NAME1(prefix, isa) NAME2(prefix, isa)
#define NAME(prefix) NAME1(prefix, ISA)
#define TEXT1(x) #x
#define TEXT(x) TEXT1(x)

enum { NV = NR / LANES };

_Static_assert(MR == 4 || MR == 6 || MR == 12, "gemm has a case for each m up to MR");
_Static_assert(NR % LANES == 0, "a row of the register tile is whole vectors");
_Static_assert(TC_MC % MR == 0 && TC_NC % NR == 0, "the tile of a task is cut into register tiles");

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef float unaligned_vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef double wide_vector __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

/* The body for a constant m, so that the sums stay in registers. */
__attribute__((always_inline)) static inline void gemm_rows(int m, int64_t k, const float *restrict a, int64_t lda,
                                                            const float *restrict b, int64_t ldb, double *restrict acc,
                                                            int64_t ldacc) {
  vector sum[MR][NV];
  for (int i = 0; i < m; i++) {
    for (int v = 0; v < NV; v++) sum[i][v] = (vector){0};
  }
  for (int64_t p = 0; p < k; p++, a += lda, b += ldb) {
    vector bv[NV];
    for (int v = 0; v < NV; v++) bv[v] = *(const unaligned_vector *)(b + v * LANES);
    for (int i = 0; i < m; i++) {
      for (int v = 0; v < NV; v++) sum[i][v] += a[i] * bv[v];
    }
  }
  for (int i = 0; i < m; i++) {
    for (int v = 0; v < NV; v++) *(wide_vector *)(acc + i * ldacc + v * LANES) += __builtin_convertvector(sum[i][v], wide_vector);
  }
}

static void NAME(gemm)(int64_t m, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, double *acc, int64_t ldacc) {
  switch (m) {
#define ROWS(m)                                  \
  case m:                                        \
    gemm_rows(m, k, a, lda, b, ldb, acc, ldacc); \
    break;
    ROWS(1)
    ROWS(2)
    ROWS(3)
    ROWS(4)
#if MR > 4
    ROWS(5)
    ROWS(6)
#endif
#if MR > 6
    ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12)
#endif
  }
}

#ifndef HAS_WIDEN_FEW
static inline void widen_few(int64_t n, const uint16_t *src, float *dst) {
  uint16_t few[LANES] = {0};
  float widened[LANES];
  memcpy(few, src, (size_t)n * sizeof *few);
  widen_lanes(few, widened);
  memcpy(dst, widened, (size_t)n * sizeof *dst);
}
#endif

/* A last vector that isn't full overlaps the one before, if there is one. */
static void NAME(widen)(int64_t n, const uint16_t *src, float *dst) {
  if (n < LANES) {
    widen_few(n, src, dst);
    return;
  }
  for (int64_t i = 0; i < n - LANES; i += LANES) widen_lanes(src + i, dst + i);
  widen_lanes(src + n - LANES, dst + n - LANES);
}

typedef int32_t bits_vector __attribute__((vector_size(4 * LANES)));

static inline void narrow_canonical(const float *src, uint16_t *dst) {
  const vector values = *(const unaligned_vector *)src;
  const bits_vector number = values == values, canonical = {0};
  const unaligned_vector lanes = (vector)(((bits_vector)values & number) | ((canonical + 0x7fc00000) & ~number));
  narrow_lanes((const float *)&lanes, dst);
}

#ifndef HAS_NARROW_FEW
static inline void narrow_few(int64_t n, const float *src, uint16_t *dst) {
  float few[LANES] = {0};
  uint16_t narrowed[LANES];
  memcpy(few, src, (size_t)n * sizeof *few);
  narrow_canonical(few, narrowed);
  memcpy(dst, narrowed, (size_t)n * sizeof *dst);
}
#endif

static void NAME(narrow)(int64_t n, const float *src, uint16_t *dst) {
  if (n < LANES) {
    narrow_few(n, src, dst);
    return;
  }
  for (int64_t i = 0; i < n - LANES; i += LANES) narrow_canonical(src + i, dst + i);
  narrow_canonical(src + n - LANES, dst + n - LANES);
}

static void NAME(add)(int64_t n, const float *restrict src, double *restrict dst) {
  for (int64_t i = 0; i < n; i++) dst[i] += (double)src[i];
}

static void NAME(round)(int64_t n, const double *restrict src, float *restrict dst) {
  for (int64_t i = 0; i < n; i++) dst[i] = (float)src[i];
}

#include "cpu/halves_tmpl.h"

#include "cpu/conv_tmpl.h"

const tc_cpu_kernels NAME(tc_cpu_kernels) = {
    .isa = TEXT(ISA),
    .gemm_name = "tc_gemm_f32f32_f32_" TEXT(MR) "x" TEXT(NR) "_" TEXT(ISA),
    .mr = MR,
    .nr = NR,
    .widens_at_once = WIDENS_AT_ONCE,
    .gemm = NAME(gemm),
    .gemm_half = NAME(gemm_half),
    .transpose = NAME(transpose),
    .widen = NAME(widen),
    .narrow = NAME(narrow),
    .add = NAME(add),
    .round = NAME(round),
    .taps = NAME(taps),
    .outer = NAME(outer),
    .spread = NAME(spread),
    .gather = NAME(gather),
    .pick = NAME(pick),
    .widen_rows = NAME(widen_rows),
    .narrow_rows = NAME(narrow_rows),
    .planes = NAME(planes),
    .dots = NAME(dots),
    .finite = NAME(finite),
};
