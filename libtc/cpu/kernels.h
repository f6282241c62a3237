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

/* The second level of sums: dst[i] += src[i], and its end: dst[i] = src[i], rounded. */
typedef void tc_add_kernel(int64_t n, const float *src, double *dst);
typedef void tc_round_kernel(int64_t n, const double *src, float *dst);

/* The block sizes, the same for every ISA, since the order of sums follows from them: the most products that one fp32 sum takes,
 * and the block of dCol (rows by pixels) that is computed at once. The latter are multiples of every mr and nr. */
enum { TC_KC = 256, TC_MC = 192, TC_NC = 256 };

typedef struct tc_cpu_kernels {
  const char *isa;       /* as in TC_CPU_ISA */
  const char *gemm_name; /* tc_gemm_<a><b>_<accumulator>_<mr>x<nr>_<isa> */
  int64_t mr, nr;        /* the register tile */
  tc_gemm_kernel *gemm;
  tc_widen_kernel *widen;
  tc_narrow_kernel *narrow;
  tc_add_kernel *add;
  tc_round_kernel *round;
} tc_cpu_kernels;

/* The table: one entry for each ISA of this architecture that was built, in rising order, generic first. */
typedef struct tc_cpu_isa {
  const tc_cpu_kernels *kernels;
  bool (*supported)(void); /* by this machine and its operating system */
} tc_cpu_isa;

extern const tc_cpu_isa tc_cpu_isas[];
extern const int tc_cpu_isa_count;

#endif
