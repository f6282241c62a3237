/* SPDX-License-Identifier: MIT
 * Kernels for any CPU that C runs on; the compiler makes of the vectors what the baseline has. */
#define ISA generic
#define LANES 4
#define MR 4
#define NR 8
#define WIDENS_AT_ONCE false

#include <string.h>

#include "f16.h"

typedef uint16_t halves __attribute__((vector_size(8), aligned(2), may_alias));
typedef uint32_t words __attribute__((vector_size(16)));
typedef float singles __attribute__((vector_size(16)));

/* fp16's exponent becomes fp32's by a factor, which makes subnormals normal, too; infinity and NaN keep the highest one. */
static inline void widen_lanes(const uint16_t *src, float *dst) {
  const words half = __builtin_convertvector(*(const halves *)src, words), magnitude = (half & 0x7fff) << 13;
  const singles scaled = (singles)magnitude * 0x1p112f;
  const words special = (words)(magnitude >= 0x0f800000) & 0x7f800000, quiet = (words)(magnitude > 0x0f800000) & 0x400000;
  const words value = (words)scaled | special | quiet | (half & 0x8000) << 16;
  memcpy(dst, &value, sizeof value);
}

static inline void narrow_lanes(const float *src, uint16_t *dst) {
  for (int l = 0; l < LANES; l++) dst[l] = f32_to_f16(src[l]);
}

#include "cpu/kernels_tmpl.h"
