/* SPDX-License-Identifier: MIT
 *
 * What the convolution's drivers share: the problem as they see it, and the arithmetic of its axes.
 */
#ifndef TC_CPU_CONV_H
#define TC_CPU_CONV_H

#include "cpu/cpu.h"
#include "cpu/integer.h"

/* One axis: output position o and tap t see input position o*stride - pad + t*dilation. */
typedef struct axis {
  int64_t size, kernel, out, stride, dilation, pad;
} axis;

typedef struct conv2d {
  const tc_cpu_kernels *kernels;
  axis h, w;
  int64_t batch, groups;
  int64_t in_channels, out_channels; /* of a group */
  int64_t taps, pixels;              /* kH*kW, out_H*out_W */
  const uint16_t *x, *weight, *bias, *dy;
  uint16_t *y, *dx;
  void *dw;
  bool dw_f32, strict;
} conv2d;

/* Multiply-adds of one direction. */
static inline double conv_multiplies(const conv2d *c) {
  return (double)c->batch * (double)c->groups * (double)c->out_channels * (double)c->in_channels * (double)c->taps *
         (double)c->pixels;
}

/* The plane of a channel of a group, in a tensor of so many channels in each group and pixels in each channel. */
static inline const uint16_t *conv_image(const uint16_t *tensor, const conv2d *c, int64_t n, int64_t group, int64_t channel,
                                         int64_t channels, int64_t pixels) {
  return tensor + ((n * c->groups + group) * channels + channel) * pixels;
}

static inline bool axis_is_identity(const axis *a) { return a->kernel == 1 && a->stride == 1 && a->pad == 0; }

/* A 1x1 convolution that sees every pixel once is one on images of a single row. */
static inline void conv_flatten(conv2d *c) {
  if (!axis_is_identity(&c->h) || !axis_is_identity(&c->w)) return;
  c->w.size = c->w.out = c->pixels;
  c->h.size = c->h.out = 1;
}

typedef struct range {
  int64_t first, end;
} range;

/* Output positions at which a tap sees a position within 0 .. size-1. */
static inline range axis_inside(const axis *a, int64_t tap) {
  const int64_t before = a->pad - tap * a->dilation; /* o*stride >= before */
  const int64_t last = a->size - 1 + before;         /* o*stride <= last */
  return (range){before > 0 ? ceil_div(before, a->stride) : 0, last < 0 ? 0 : min(a->out, last / a->stride + 1)};
}

/* The part of r within first .. end-1; an empty one lies at first. */
static inline range range_clip(range r, int64_t first, int64_t end) {
  const range c = {max(r.first, first), min(r.end, end)};
  return c.first < c.end ? c : (range){first, first};
}

/* ---- Drivers ---- */

/* As matrix products whose operands are gathered while they are packed: any shape, but backward_input only of a kernel of one tap with no
 * padding. */
tc_status_t tc_conv_product_forward(tc_cpu *cpu, const conv2d *c);
tc_status_t tc_conv_product_backward_input(tc_cpu *cpu, const conv2d *c);
tc_status_t tc_conv_product_backward_weight(tc_cpu *cpu, const conv2d *c);

/* As one product for each image, whose result is added to dX: any shape, and only pairs that exist. */
tc_status_t tc_conv_scatter_backward_input(tc_cpu *cpu, const conv2d *c);

/* A kernel of one tap, with no padding: forward and backward_input. */
bool tc_conv_is_pointwise(const conv2d *c);
tc_status_t tc_conv_pointwise_forward(tc_cpu *cpu, const conv2d *c);
tc_status_t tc_conv_pointwise_backward_input(tc_cpu *cpu, const conv2d *c);

/* Plane by plane, with few channels in a group: shapes that conv_planes_suit_* finds narrow enough. */
bool tc_conv_planes_suit_forward(const conv2d *c);
bool tc_conv_planes_suit_backward_input(const conv2d *c);
bool tc_conv_planes_suit_backward_weight(const conv2d *c);
tc_status_t tc_conv_planes_forward(tc_cpu *cpu, const conv2d *c);
tc_status_t tc_conv_planes_backward_input(tc_cpu *cpu, const conv2d *c, bool *done); /* done: as below */
tc_status_t tc_conv_planes_backward_weight(tc_cpu *cpu, const conv2d *c);

/* The gradient of the weight, tap by tap: shapes that tc_conv_weight_suits finds wide enough. */
bool tc_conv_weight_suits(const conv2d *c);
tc_status_t tc_conv_weight(tc_cpu *cpu, const conv2d *c);

/* Tap by tap over images relaid by channels: shapes that conv_taps_suit_* finds wide enough. */
bool tc_conv_taps_suit_forward(const conv2d *c);
bool tc_conv_taps_suit_backward_input(const conv2d *c);
tc_status_t tc_conv_taps_forward(tc_cpu *cpu, const conv2d *c);
/* Leaves dX as it is and says so in *done, if a weight is inf or NaN: it would meet the padding. */
tc_status_t tc_conv_taps_backward_input(tc_cpu *cpu, const conv2d *c, bool *done);

/* Tap by tap on tiles (an ISA that has them): shapes that conv_tiles_suit_* finds wide enough. vector does the whole call again if a
 * weight is inf or NaN, and each image that has such a pixel. */
typedef tc_status_t conv_driver(tc_cpu *cpu, const conv2d *c);
bool tc_conv_tiles_suit_forward(const conv2d *c);
bool tc_conv_tiles_suit_backward_input(const conv2d *c);
tc_status_t tc_conv_tiles_forward(tc_cpu *cpu, const conv2d *c, conv_driver *vector);
tc_status_t tc_conv_tiles_backward_input(tc_cpu *cpu, const conv2d *c, conv_driver *vector);

/* The same for the gradient of the weight, which vector computes if there is any inf or NaN. */
bool tc_conv_tiles_suit_backward_weight(const conv2d *c);
tc_status_t tc_conv_tiles_backward_weight(tc_cpu *cpu, const conv2d *c, conv_driver *vector);

#endif
