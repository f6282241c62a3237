/* SPDX-License-Identifier: MIT */
#ifndef TC_F16_H
#define TC_F16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Integer arithmetic only: the floating-point environment has no say, and every compiler gives the same bits. */

static inline float f16_to_f32(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) { /* inf and NaN; the quiet bit is set on NaN */
    magnitude = 0x7f800000u | magnitude << 13 | (magnitude > 0x7c00u ? 0x400000u : 0);
  } else if (magnitude >= 0x400u) {
    magnitude = (magnitude << 13) + 0x38000000u;
  } else if (magnitude) { /* subnormal: its leading bit becomes the implicit one */
    const int shift = __builtin_clz(magnitude) - 21;
    magnitude = ((magnitude << shift & 0x3ffu) << 13) + ((uint32_t)(113 - shift) << 23);
  }
  const uint32_t bits = sign | magnitude;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The one NaN that results have: which operand's payload and sign a sum of NaNs takes is up to compiler and CPU. */
static inline float canonical_nan(float value) { return value == value ? value : (float)NAN; }

static inline uint16_t f32_to_f16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) { /* NaN: quiet, upper payload kept */
    half = 0x7e00u | (magnitude >> 13 & 0x1ffu);
  } else if (magnitude >= 0x477ff000u) { /* 65520 and beyond round to inf */
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) { /* normal: to nearest, ties to even, carry runs into the exponent */
    half = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
  } else if (magnitude > 0x33000000u) { /* subnormal: above 2^-25, in units of 2^-24 */
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t shift = 126u - (magnitude >> 23);
    const uint32_t rest = mantissa & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
    half = mantissa >> shift;
    half += rest > tie || (rest == tie && (half & 1u));
  } else {
    half = 0;
  }
  return (uint16_t)(sign | half);
}

#endif
