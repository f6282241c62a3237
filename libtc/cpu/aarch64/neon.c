/* SPDX-License-Identifier: MIT */
#ifndef __ARM_NEON
#error "compile this file for a target with NEON"
#endif

#define ISA neon
#define LANES 4
#define MR 6
#define NR 16
#define WIDENS_AT_ONCE true

#include <arm_neon.h>
#include <stdint.h>

static inline void widen_lanes(const uint16_t *src, float *dst) {
  vst1q_f32(dst, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(src))));
}

static inline void narrow_lanes(const float *src, uint16_t *dst) {
  vst1_u16(dst, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src))));
}

#include "cpu/kernels_tmpl.h"
