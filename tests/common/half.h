/* SPDX-License-Identifier: MIT
 *
 * What fp16 and fp32 results may be, worked out in double and independent of the library: conversions, and the error bounds of the
 * project (design rule 6). In words, with S = |alpha| * sum|a||b| + |beta||c| + |bias|:
 *   bound   |got - exact| <= max(half ulp of exact, half ulp of got) + 2^-15 * S; where |exact| + 2^-15 * S reaches the value that
 *           rounds to infinity (65520 for fp16), infinity is right, too
 *   random  over >= 1000 outputs with rms(exact) >= 2^-8: rms(error) <= 1.02 * rms(error of rounding the exact result to fp16), and
 *           rms(error) <= 1e-3 * rms(exact)
 *   exact   got is the exact result, rounded once
 */
#ifndef TC_TESTS_HALF_H
#define TC_TESTS_HALF_H

#include <stdbool.h>
#include <stdint.h>
#include <tc/tc.h>

double half_value(uint16_t half);
uint16_t half_round(double value); /* to nearest even, beyond 65504 after rounding: infinity; NaN becomes 0x7e00 */

/* The nearest value of the dtype (F16 or F32), as a double. */
double round_to(tc_dtype_t dtype, double value);

typedef struct expected {
  double exact, sum; /* sum is S */
} expected;

/* Half an ulp of a finite value, as if exponents ended at the dtype's largest. */
double half_ulp(tc_dtype_t dtype, double value);
double error_bound(tc_dtype_t dtype, expected want, double got);
bool within_bound(tc_dtype_t dtype, expected want, double got);

typedef struct error_statistics {
  int64_t count;
  double error, rounding, exact; /* sums of squares */
  double worst;                  /* largest error over its bound */
} error_statistics;

/* Takes one finite pair into account. */
void error_add(error_statistics *s, tc_dtype_t dtype, expected want, double got);
double error_rms(const error_statistics *s);   /* rms(error) / rms(exact) */
double error_ratio(const error_statistics *s); /* rms(error) / rms(rounding error); 1 if both are 0 */
bool random_enough(const error_statistics *s);

#endif
