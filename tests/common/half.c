/* SPDX-License-Identifier: MIT */
#include "half.h"

#include <float.h>
#include <math.h>

typedef struct format {
  int mantissa_bits, min_exponent, max_exponent;
} format;

static format format_of(tc_dtype_t dtype) { return dtype == TC_DTYPE_F16 ? (format){10, -14, 15} : (format){23, -126, 127}; }

static int clamp(int value, int low, int high) { return value < low ? low : value > high ? high : value; }

static double ulp(format f, double value) {
  int exponent = value == 0 ? f.min_exponent : clamp(ilogb(value), f.min_exponent, f.max_exponent);
  return ldexp(1, exponent - f.mantissa_bits);
}

/* The smallest magnitude that rounds to infinity. */
static double overflow_limit(format f) { return ldexp(2 - ldexp(1, -f.mantissa_bits - 1), f.max_exponent); }

double round_to(tc_dtype_t dtype, double value) {
  format f = format_of(dtype);
  if (!isfinite(value)) return value;
  if (fabs(value) >= overflow_limit(f)) return copysign(INFINITY, value);
  double unit = ulp(f, value);
  return copysign(nearbyint(value / unit) * unit, value);
}

double half_value(uint16_t half) {
  int exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
  double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31) magnitude = mantissa ? NAN : INFINITY;
  return half & 0x8000 ? -magnitude : magnitude;
}

uint16_t half_round(double value) {
  if (isnan(value)) return 0x7e00;
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  double rounded = fabs(round_to(TC_DTYPE_F16, value));
  if (isinf(rounded)) return sign | 0x7c00;
  double units = rounded / ulp(format_of(TC_DTYPE_F16), rounded); /* a whole number, under 1024 for subnormals */
  if (units < 1024) return (uint16_t)(sign | (uint16_t)units);
  return (uint16_t)(sign | ((ilogb(rounded) + 15) << 10) | ((uint16_t)units - 1024));
}

double half_ulp(tc_dtype_t dtype, double value) { return ulp(format_of(dtype), value) / 2; }

double error_bound(tc_dtype_t dtype, expected want, double got) {
  return fmax(half_ulp(dtype, want.exact), half_ulp(dtype, got)) + ldexp(want.sum, -15);
}

bool within_bound(tc_dtype_t dtype, expected want, double got) {
  if (isnan(want.exact)) return isnan(got);
  if (isinf(want.exact)) return got == want.exact;
  if (isinf(got))
    return signbit(got) == signbit(want.exact) && fabs(want.exact) + ldexp(want.sum, -15) >= overflow_limit(format_of(dtype));
  return fabs(got - want.exact) <= error_bound(dtype, want, got); /* false for NaN */
}

void error_add(error_statistics *s, tc_dtype_t dtype, expected want, double got) {
  double error = got - want.exact, rounding = round_to(dtype, want.exact) - want.exact;
  s->count++;
  s->error += error * error;
  s->rounding += rounding * rounding;
  s->exact += want.exact * want.exact;
  s->worst = fmax(s->worst, fabs(error) / error_bound(dtype, want, got));
}

double error_rms(const error_statistics *s) { return s->exact > 0 ? sqrt(s->error / s->exact) : 0; }

double error_ratio(const error_statistics *s) { return s->rounding > 0 ? sqrt(s->error / s->rounding) : 1; }

bool random_enough(const error_statistics *s) { return s->count >= 1000 && sqrt(s->exact / (double)s->count) >= ldexp(1, -8); }
