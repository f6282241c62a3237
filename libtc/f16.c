/* SPDX-License-Identifier: MIT */
#include "f16.h"

#include "tc/tc.h"

float tc_f16_to_f32(uint16_t half) { return f16_to_f32(half); }

uint16_t tc_f32_to_f16(float value) { return f32_to_f16(value); }

void tc_convert_f16_to_f32(const uint16_t *src, float *dst, size_t n) {
  for (size_t i = 0; i < n; i++) dst[i] = f16_to_f32(src[i]);
}

void tc_convert_f32_to_f16(const float *src, uint16_t *dst, size_t n) {
  for (size_t i = 0; i < n; i++) dst[i] = f32_to_f16(src[i]);
}
