/* SPDX-License-Identifier: MIT
 * Kernels for any CPU that C runs on; the compiler makes of the vectors what the baseline has. */
#define ISA generic
#define LANES 4
#define MR 4
#define NR 8

#include "f16.h"

static inline void widen_lanes(const uint16_t *src, float *dst) {
  for (int l = 0; l < LANES; l++) dst[l] = f16_to_f32(src[l]);
}

static inline void narrow_lanes(const float *src, uint16_t *dst) {
  for (int l = 0; l < LANES; l++) dst[l] = f32_to_f16(src[l]);
}

#include "cpu/kernels_tmpl.h"
