/* SPDX-License-Identifier: MIT */
#ifndef TC_CPU_KERNELS_H
#define TC_CPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

/* The contract of a micro-kernel, for every ISA. Signatures are written once, here. */

/* acc[i*ldacc + j] += sum over p < k of a[p*lda + i] * b[p*ldb + j], for i < m and all j < nr.
 * a and b are packed; m <= mr, k <= TC_KC. Each sum is taken in fp32, in rising p, from +0, so that every ISA gives the same
 * bits (the product of two fp16 values is exact in fp32). acc is fp64: the second level of the sum. */
typedef void tc_gemm_kernel(int64_t m, int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb, double *acc,
                            int64_t ldacc);

/* Conversions of n contiguous elements at any alignment, with the values of f16.h; narrow makes every NaN canonical. */
typedef void tc_widen_kernel(int64_t n, const uint16_t *src, float *dst);
typedef void tc_narrow_kernel(int64_t n, const float *src, uint16_t *dst);

/* out[i*ldout + j] = sum over p < k of a[p*lda + i] * b[p*ldb + j], for i < m and j < n; the sums as in gemm. a is packed, b is fp16
 * where it lies. m <= mr, k <= TC_KC, n >= TC_HALF_COLUMNS. */
typedef void tc_gemm_half_kernel(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const uint16_t *b, int64_t ldb,
                                 float *out, int64_t ldout);

/* dst[p*ldd + r] = src[r*lds + p] for r < n and p < k, n >= 1; on to the next multiple of TC_HALF_COLUMNS, r = n-1 is repeated. */
typedef void tc_transpose_kernel(int64_t n, int64_t k, const uint16_t *src, int64_t lds, uint16_t *dst, int64_t ldd);

/* The second level of sums: dst[i] += src[i], and its end: dst[i] = src[i], rounded. */
typedef void tc_add_kernel(int64_t n, const float *src, double *dst);
typedef void tc_round_kernel(int64_t n, const double *src, float *dst);

/* Terms that follow each other in both operands, from offsets in elements; ends: the fp32 sum ends with them. */
typedef struct tc_run {
  int64_t a, b, n;
  bool ends;
} tc_run;

/* out[i*ldout + j] = sum over the runs' terms p of a[i*lda + p] * b[p*nr + j], for i < m and whole vectors of j that cover n.
 * 1 <= m <= mr, 1 <= n <= nr, runs >= 1; the last run ends a sum. Sums of at most TC_KC terms are taken in fp32, in the runs' order,
 * from +0, and added in fp64; then rounded. */
typedef void tc_taps_kernel(int64_t m, int64_t n, int64_t runs, const tc_run *run, const float *a, int64_t lda, const float *b,
                            float *out, int64_t ldout);

/* acc[i*ldacc + j] += sum over the runs' terms p of a[p*lda + i] * b[p*ldb + j], for i < m and whole vectors of j that cover n: one
 * sum in fp32, of at most TC_KC terms, as above. b need not be aligned. */
typedef void tc_outer_kernel(int64_t m, int64_t n, int64_t runs, const tc_run *run, const float *a, int64_t lda, const float *b,
                             int64_t ldb, double *acc, int64_t ldacc);

/* From planes of channels to channels that lie side by side, and back; r < rows, x < n.
 * spread: dst[at[x] + r] = src[r*ld + x], widened.
 * gather: dst[r*ld + x] = src[x*from + r] + bias[r], narrowed; no bias if that is NULL. Of src and bias, r is read up to nr. */
typedef void tc_spread_kernel(int64_t rows, int64_t n, const uint16_t *src, int64_t ld, float *dst, const int64_t *at);
typedef void tc_gather_kernel(int64_t rows, int64_t n, const float *src, int64_t from, const float *bias, uint16_t *dst,
                              int64_t ld);

/* dst[x] = src[x*step], x < n. */
typedef void tc_pick_kernel(int64_t n, const uint16_t *src, int64_t step, uint16_t *dst);

/* Rows of n elements, r < rows.
 * widen_rows:  dst[r*to + x] = src[r*ld + x*step], widened.
 * narrow_rows: dst[r*to + x] = src[r*ld + x] + bias[r], narrowed; no bias if that is NULL. */
typedef void tc_widen_rows_kernel(int64_t rows, int64_t n, const uint16_t *src, int64_t ld, int64_t step, float *dst, int64_t to);
typedef void tc_narrow_rows_kernel(int64_t rows, int64_t n, const float *src, int64_t ld, const float *bias, uint16_t *dst,
                                   int64_t to);

/* out[x] = sum over t < terms of weight[t] * src[at[t] + x], for x < n; one fp32 sum, as above. Up to the next multiple of 16 of x, src is
 * read and out is written. */
typedef void tc_planes_kernel(int64_t n, int64_t terms, const float *weight, const int64_t *at, const float *src, float *out);

enum { TC_LANES = 16 };

/* acc[t] += sum over x < n of a[x] * b[at[t] + x], for t < terms. Of each TC_LANES * TC_KC of x, those with the same remainder by TC_LANES
 * are one fp32 sum, and these sums are added in fp64 in the order of their remainders. */
typedef void tc_dots_kernel(int64_t n, int64_t terms, const float *a, const float *b, const int64_t *at, double *acc);

/* Whether n numbers are neither inf nor NaN. */
typedef bool tc_finite_kernel(int64_t n, const uint16_t *src);

/* The block sizes, the same for every ISA, since the order of sums follows from them: the most products that one fp32 sum takes,
 * and the block of dCol (rows by pixels) that is computed at once. The latter are multiples of every mr and nr. */
enum { TC_KC = 256, TC_MC = 192, TC_NC = 256 };

/* The fewest columns that gemm_half takes: the lanes of the widest ISA. */
enum { TC_HALF_COLUMNS = 16 };

typedef struct tc_cpu_kernels {
  const char *isa;       /* as in TC_CPU_ISA */
  const char *gemm_name; /* tc_gemm_<a><b>_<accumulator>_<mr>x<nr>_<isa> */
  int64_t mr, nr;        /* the register tile */
  bool widens_at_once;   /* fp16 to fp32 by an instruction, so that gemm_half may do it again for every mr rows */
  tc_gemm_kernel *gemm;
  tc_gemm_half_kernel *gemm_half;
  tc_transpose_kernel *transpose;
  tc_widen_kernel *widen;
  tc_narrow_kernel *narrow;
  tc_add_kernel *add;
  tc_round_kernel *round;
  tc_taps_kernel *taps;
  tc_outer_kernel *outer;
  tc_spread_kernel *spread;
  tc_gather_kernel *gather;
  tc_pick_kernel *pick;
  tc_widen_rows_kernel *widen_rows;
  tc_narrow_rows_kernel *narrow_rows;
  tc_planes_kernel *planes;
  tc_dots_kernel *dots;
  tc_finite_kernel *finite;
} tc_cpu_kernels;

/* The table: one entry for each ISA of this architecture that was built, in rising order, generic first. */
typedef struct tc_cpu_isa {
  const char *name; /* as in TC_CPU_ISA */
  const tc_cpu_kernels *kernels;
  const struct tc_split_kernels *split; /* tile kernels (split.h), if it has any */
  bool (*supported)(void);              /* by this machine and its operating system */
  bool only_if_named;                   /* never the best one */
  /* Asks the operating system, the first time in a process, when the ISA is about to be chosen: NULL if it permits, else why not, and
   * from then on the ISA isn't supported. The slot is NULL where nobody need be asked. */
  const char *(*refusal)(void);
} tc_cpu_isa;

extern const tc_cpu_isa tc_cpu_isas[];
extern const int tc_cpu_isa_count;

#endif
