/* SPDX-License-Identifier: MIT
 *
 * What all kernels share: function constants, elements of an output, runs of threads.
 */
#ifndef TC_METAL_COMMON_H
#define TC_METAL_COMMON_H

#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "params.h"

using namespace metal;

/* Everything is part of its kernel: what is passed by reference stays in registers. */
#define TC_INLINE inline __attribute__((always_inline))

/* Before a loop over registers. */
#define TC_UNROLL _Pragma("clang loop unroll(full)")

constant bool LONG_SUMS [[function_constant(TC_CONSTANT_LONG_SUMS)]];
constant bool VECTORS_A [[function_constant(TC_CONSTANT_VECTORS_A)]];
constant bool VECTORS_B [[function_constant(TC_CONSTANT_VECTORS_B)]];
constant bool F32_OUTPUT [[function_constant(TC_CONSTANT_F32_OUTPUT)]];
constant bool READ_C [[function_constant(TC_CONSTANT_READ_C)]];
constant bool ADD_BIAS [[function_constant(TC_CONSTANT_ADD_BIAS)]];
constant bool FEW_TAPS [[function_constant(TC_CONSTANT_FEW_TAPS)]];
constant bool SPLIT [[function_constant(TC_CONSTANT_SPLIT)]];
constant bool ROUND_IN_BITS [[function_constant(TC_CONSTANT_ROUND_IN_BITS)]];

/* Quotient and remainder, of 64 bits only where there is need: such a division is a long program. */
TC_INLINE ulong2 divided(ulong value, ulong by) {
  if (((value | by) >> 32) != 0ul) return ulong2(value / by, value % by);
  const uint quotient = uint(value) / uint(by);
  return ulong2(quotient, uint(value) - quotient * uint(by));
}

/* ---- Elements of an output ---- */

/* To nearest even in integer arithmetic: half's subnormals and NaN are kept, beyond 65504 after rounding: infinity. */
TC_INLINE half half_in_bits(float value) {
  const uint bits = as_type<uint>(value);
  const uint sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return as_type<half>(ushort(sign | 0x7e00u));
  if (magnitude >= 0x477ff000u) return as_type<half>(ushort(sign | 0x7c00u));
  /* Of a number of 24 bits, that many are below the last one of the half; 25 leave nothing but a rounding, and then 0. */
  const uint exponent = magnitude >> 23, below = exponent >= 113u ? 13u : min(126u - exponent, 25u);
  const uint number = (magnitude & 0x7fffffu) | (exponent != 0u ? 0x800000u : 0u);
  const uint kept = number >> below, rest = number & ((1u << below) - 1u), tie = 1u << (below - 1u);
  const uint rounded = kept + uint(rest > tie || (rest == tie && (kept & 1u) != 0u));
  return as_type<half>(ushort(sign | (exponent >= 113u ? ((exponent - 113u) << 10) + rounded : rounded)));
}

/* Every NaN that is written is the same one, so that bits don't depend on payloads. Told by its bits, whatever the maths mode. */
TC_INLINE float one_nan(float value) {
  return (as_type<uint>(value) & 0x7fffffffu) > 0x7f800000u ? as_type<float>(0x7fc00000u) : value;
}

TC_INLINE half to_half(float value) { return ROUND_IN_BITS ? half_in_bits(one_nan(value)) : half(one_nan(value)); }

TC_INLINE float output_read(device const uchar *output, ulong index) {
  return F32_OUTPUT ? ((device const float *)output)[index] : float(((device const half *)output)[index]);
}

TC_INLINE void output_write(device uchar *output, ulong index, float value) {
  if (F32_OUTPUT) {
    ((device float *)output)[index] = one_nan(value);
  } else {
    ((device half *)output)[index] = to_half(value);
  }
}

/* ---- Sums of partial sums ---- */

/* Adds the partial sums of one element, one for each part of K, in order. As a sum of long products does (tile.h), so that a product
 * in parts of TC_SUM_PRODUCTS has the bits of one in one piece. */
TC_INLINE float sum_parts(device const float *partials, ulong parts, ulong stride) {
  float total = 0.0f;
  for (ulong first = 0; first < parts; first += TC_SUM_PRODUCTS) {
    const uint count = uint(min(parts - first, ulong(TC_SUM_PRODUCTS)));
    float sum = 0.0f;
    for (uint i = 0u; i < count; i++, partials += stride) sum += *partials;
    total += sum;
  }
  return total;
}

#endif
