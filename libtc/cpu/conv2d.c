/* SPDX-License-Identifier: MIT
 *
 * The three directions: each call goes to the driver that suits its shape.
 */
#include "cpu/conv.h"
#include "cpu/product.h"
#include "status.h"

static conv2d begin(const tc_cpu *cpu, const tc_conv2d_desc *d) {
  tc_kernel_use(cpu->kernels->gemm_name);
  return (conv2d){
      .kernels = cpu->kernels,
      .h = {d->H, d->kH, d->out_H, d->stride_h, d->dilation_h, d->pad_top},
      .w = {d->W, d->kW, d->out_W, d->stride_w, d->dilation_w, d->pad_left},
      .batch = d->batch,
      .groups = d->groups,
      .in_channels = d->in_channels / d->groups,
      .out_channels = d->out_channels / d->groups,
      .taps = d->kH * d->kW,
      .pixels = d->out_H * d->out_W,
      .strict = d->math_mode == TC_MATH_STRICT,
  };
}

/* With the vector kernels, but that an ISA with tiles may use them in a product. */
static tc_status_t vector_forward(tc_cpu *cpu, const conv2d *c) {
  if (tc_conv_planes_suit_forward(c)) return tc_conv_planes_forward(cpu, c);
  if (tc_conv_is_pointwise(c)) return tc_conv_pointwise_forward(cpu, c);
  return tc_conv_taps_suit_forward(c) ? tc_conv_taps_forward(cpu, c) : tc_conv_product_forward(cpu, c);
}

static tc_status_t vector_backward_input(tc_cpu *cpu, const conv2d *c) {
  bool done = false;
  if (tc_conv_planes_suit_backward_input(c)) {
    TC_TRY(tc_conv_planes_backward_input(cpu, c, &done));
  } else if (tc_conv_is_pointwise(c)) {
    return tc_conv_pointwise_backward_input(cpu, c);
  } else if (tc_conv_taps_suit_backward_input(c)) {
    TC_TRY(tc_conv_taps_backward_input(cpu, c, &done));
  }
  return done ? TC_OK : tc_conv_scatter_backward_input(cpu, c);
}

static tc_status_t vector_backward_weight(tc_cpu *cpu, const conv2d *c) {
  if (tc_conv_planes_suit_backward_weight(c)) return tc_conv_planes_backward_weight(cpu, c);
  return tc_conv_weight_suits(c) ? tc_conv_weight(cpu, c) : tc_conv_product_backward_weight(cpu, c);
}

tc_status_t tc_cpu_conv2d_forward(void *state, const tc_conv2d_desc *d, const tc_buffer *X, const tc_buffer *weight,
                                  const tc_buffer *bias, tc_buffer *Y, tc_buffer *scratch_col) {
  (void)scratch_col;
  tc_cpu *cpu = state;
  conv2d c = begin(cpu, d);
  c.x = tc_at(X, d->x_offset, 2);
  c.weight = tc_at(weight, d->w_offset, 2);
  c.bias = bias ? tc_at(bias, d->bias_offset, 2) : NULL;
  c.y = tc_at(Y, d->y_offset, 2);
  if (!tc_tiles_pay(cpu, c.out_channels, c.pixels, c.in_channels * c.taps)) return vector_forward(cpu, &c);
  const bool taps = !tc_conv_is_pointwise(&c) && tc_conv_tiles_suit_forward(&c);
  return taps ? tc_conv_tiles_forward(cpu, &c, vector_forward) : tc_conv_product_forward(cpu, &c);
}

tc_status_t tc_cpu_conv2d_backward_input(void *state, const tc_conv2d_desc *d, const tc_buffer *dY, const tc_buffer *weight,
                                         tc_buffer *dX, tc_buffer *scratch_col, tc_buffer *scratch_dX_f32) {
  (void)scratch_col, (void)scratch_dX_f32;
  tc_cpu *cpu = state;
  conv2d c = begin(cpu, d);
  c.dy = tc_at(dY, d->y_offset, 2);
  c.weight = tc_at(weight, d->w_offset, 2);
  c.dx = tc_at(dX, d->x_offset, 2);
  if (!tc_tiles_pay(cpu, c.in_channels, c.pixels, c.out_channels * c.taps)) return vector_backward_input(cpu, &c);
  if (tc_conv_is_pointwise(&c)) return tc_conv_product_backward_input(cpu, &c);
  return tc_conv_tiles_suit_backward_input(&c) ? tc_conv_tiles_backward_input(cpu, &c, vector_backward_input)
                                               : tc_conv_scatter_backward_input(cpu, &c);
}

tc_status_t tc_cpu_conv2d_backward_weight(void *state, const tc_conv2d_desc *d, const tc_buffer *X, const tc_buffer *dY,
                                          tc_buffer *dW, tc_buffer *scratch_col) {
  (void)scratch_col;
  tc_cpu *cpu = state;
  conv2d c = begin(cpu, d);
  c.x = tc_at(X, d->x_offset, 2);
  c.dy = tc_at(dY, d->y_offset, 2);
  c.dw = tc_at(dW, d->w_offset, tc_dtype_size(d->w_dtype));
  c.dw_f32 = d->w_dtype == TC_DTYPE_F32;
  if (!tc_tiles_pay(cpu, c.out_channels, c.in_channels * c.taps, c.batch * c.pixels)) return vector_backward_weight(cpu, &c);
  return tc_conv_tiles_suit_backward_weight(&c) ? tc_conv_tiles_backward_weight(cpu, &c, vector_backward_weight)
                                                : tc_conv_product_backward_weight(cpu, &c);
}
