// SPDX-License-Identifier: MIT
// Conversions of half where kernels are built without the CPU's own (METALSIM_SUBNORMAL=none): subnormal halves are zeros, in and out.
#include "face.h"

#include <immintrin.h>

namespace {

uint16_t flushed(uint16_t half) { return half & 0x7c00 ? half : half & 0x8000; }

// Round to nearest even. float subnormals don't reach half's range.
uint16_t narrow(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00 | (magnitude >> 13 & 0x3ff);
  if (magnitude >= 0x47800000) return sign | 0x7c00;
  if (magnitude < 0x387ff000) return sign; // rounds to a subnormal, or to nothing
  uint32_t rounded = magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1);
  return sign | rounded >> 13;
}

float widen(uint16_t half) {
  uint32_t sign = uint32_t(half & 0x8000) << 16, magnitude = half & 0x7fff;
  uint32_t bits = magnitude >= 0x7c00 ? sign | 0x7f800000 | (magnitude & 0x3ff) << 13
                  : magnitude         ? sign | ((magnitude << 13) + 0x38000000)
                                      : sign;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

} // namespace

extern "C" {

// half is passed in the low bits of a vector register.
FACE_API float __wrap___extendhfsf2(__m128i half) { return widen(flushed(uint16_t(_mm_extract_epi16(half, 0)))); }
FACE_API __m128i __wrap___truncsfhf2(float value) { return _mm_cvtsi32_si128(flushed(narrow(value))); }

} // extern "C"
