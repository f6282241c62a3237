/* SPDX-License-Identifier: MIT
 *
 * Forward and the gradient of the input as sums over taps, along one axis: what the drivers that go tap by tap share.
 */
#ifndef TC_CPU_CONV_AXES_H
#define TC_CPU_CONV_AXES_H

#include "cpu/conv.h"

enum { AXIS_TAPS_MAX = 16, TAPS_MAX = 64, PHASES_MAX = 4 };

/* One axis. Position p of the result is place p/phases of phase p%phases; its tap t sees relaid position place*step + shift[t]. */
typedef struct tap_axis {
  int64_t size, phases, step;
  int64_t before, inner, relaid; /* relaid positions: zeros, then the image, then zeros again */
  int64_t taps, shift[AXIS_TAPS_MAX];
} tap_axis;

static inline tap_axis forward_axis(const axis *a) {
  tap_axis t = {.size = a->out, .phases = 1, .step = a->stride, .before = a->pad, .inner = a->size, .taps = a->kernel};
  for (int64_t k = 0; k < a->kernel; k++) t.shift[k] = k * a->dilation;
  t.relaid = (a->out - 1) * a->stride + (a->kernel - 1) * a->dilation + 1;
  return t;
}

static inline int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -ceil_div(-a, b); }

static inline int64_t phase_of_tap(const axis *a, int64_t tap) {
  const int64_t reach = tap * a->dilation - a->pad;
  return reach - floor_div(reach, a->stride) * a->stride;
}

static inline tap_axis backward_axis(const axis *a) {
  tap_axis t = {.size = a->size, .phases = a->stride, .step = 1, .inner = a->out, .taps = a->kernel};
  int64_t first = 0, last = 0;
  for (int64_t k = 0; k < a->kernel; k++) {
    const int64_t phase = phase_of_tap(a, k);
    t.shift[k] = (phase + a->pad - k * a->dilation) / a->stride; /* exact */
    first = min(first, t.shift[k]);
    if (phase < a->size) last = max(last, (a->size - 1 - phase) / a->stride + t.shift[k]);
  }
  t.before = -first;
  t.relaid = last - first + 1;
  for (int64_t k = 0; k < a->kernel; k++) t.shift[k] -= first;
  return t;
}

#endif
