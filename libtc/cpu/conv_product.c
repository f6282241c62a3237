/* SPDX-License-Identifier: MIT
 *
 * Forward and the gradient of the weight as matrix products (product.h), with P = out_H*out_W pixels and T = kH*kW taps, for each
 * group:
 *   forward          Y[o, (n,p)]     = weight[o, (i,t)]  *  col[(i,t), (n,p)]
 *   backward_weight  dW[o, (i,t)]    = dY[o, (n,p)]      *  col[(i,t), (n,p)]^T
 * where col[(i,t), (n,p)] is the pixel of channel i that tap t sees at output pixel p of image n, or 0 over padding. Rows of col
 * are gathered while they are packed, so it is never stored.
 */
#include "cpu/conv.h"
#include "cpu/product.h"
#include "f16.h"

/* ---- Sources ---- */

static void zero(int64_t n, float *out) {
  for (int64_t x = 0; x < n; x++) out[x] = 0;
}

/* r = (i,t), columns (n,p). */
static void col_row(const void *self, int64_t group, int64_t r, int64_t first, int64_t n, float *out) {
  const conv2d *c = self;
  const int64_t channel = r / c->taps, ky = r % c->taps / c->w.kernel, kx = r % c->w.kernel;
  const range rows = axis_inside(&c->h, ky), columns = axis_inside(&c->w, kx);
  int64_t img = first / c->pixels, oy = first % c->pixels / c->w.out, ox = first % c->w.out;
  while (n) {
    const int64_t end = min(c->w.out, ox + n);
    const range inside = oy >= rows.first && oy < rows.end ? range_clip(columns, ox, end) : (range){ox, ox};
    zero(inside.first - ox, out);
    if (inside.first < inside.end) {
      const int64_t iy = oy * c->h.stride - c->h.pad + ky * c->h.dilation;
      const int64_t ix = inside.first * c->w.stride - c->w.pad + kx * c->w.dilation;
      const uint16_t *plane = conv_image(c->x, c, img, group, channel, c->in_channels, c->h.size * c->w.size);
      c->kernels->widen_rows(1, inside.end - inside.first, plane + iy * c->w.size + ix, 0, c->w.stride, out + (inside.first - ox),
                             0);
    }
    zero(end - inside.end, out + (inside.end - ox));
    out += end - ox;
    n -= end - ox;
    ox = 0;
    if (++oy == c->h.out) oy = 0, img++;
  }
}

/* r = o, columns (i,t). */
static void weight_row(const void *self, int64_t group, int64_t r, int64_t first, int64_t n, float *out) {
  const conv2d *c = self;
  c->kernels->widen(n, c->weight + (group * c->out_channels + r) * c->in_channels * c->taps + first, out);
}

/* r = o, columns (n,p). */
static void dy_row(const void *self, int64_t group, int64_t r, int64_t first, int64_t n, float *out) {
  const conv2d *c = self;
  int64_t img = first / c->pixels, p = first % c->pixels;
  while (n) {
    const int64_t run = min(n, c->pixels - p);
    c->kernels->widen(run, conv_image(c->dy, c, img, group, r, c->out_channels, c->pixels) + p, out);
    out += run;
    n -= run;
    p = 0;
    img++;
  }
}

/* ---- Forward ---- */

static void store_y(const void *self, int64_t group, int64_t o, int64_t j, int64_t n, float *values) {
  const conv2d *c = self;
  if (c->bias) {
    float bias;
    c->kernels->widen(1, c->bias + group * c->out_channels + o, &bias);
    for (int64_t x = 0; x < n; x++) values[x] += bias;
  }
  int64_t img = j / c->pixels, p = j % c->pixels;
  while (n) {
    const int64_t run = min(n, c->pixels - p);
    c->kernels->narrow(run, values, c->y + ((img * c->groups + group) * c->out_channels + o) * c->pixels + p);
    values += run;
    n -= run;
    p = 0;
    img++;
  }
}

tc_status_t tc_conv_product_forward(tc_cpu *cpu, const conv2d *problem) {
  conv2d c = *problem;
  conv_flatten(&c);
  const tc_product product = {
      .items = c.groups,
      .M = c.out_channels,
      .N = c.batch * c.pixels,
      .K = c.in_channels * c.taps,
      .a = {weight_row, &c, false, 2},
      .b = {col_row, &c, true, 4},
      .c = {store_y, &c},
      .tiles = tc_tiles_pay(cpu, c.out_channels, c.pixels, c.in_channels * c.taps),
      .strict = c.strict,
  };
  return tc_product_run(cpu, &product);
}

/* ---- Gradient of the weight ---- */

static void store_dw_f16(const void *self, int64_t group, int64_t o, int64_t j, int64_t n, float *values) {
  const conv2d *c = self;
  c->kernels->narrow(n, values, (uint16_t *)c->dw + (group * c->out_channels + o) * c->in_channels * c->taps + j);
}

static void store_dw_f32(const void *self, int64_t group, int64_t o, int64_t j, int64_t n, float *values) {
  const conv2d *c = self;
  float *dw = (float *)c->dw + (group * c->out_channels + o) * c->in_channels * c->taps + j;
  for (int64_t x = 0; x < n; x++) dw[x] = canonical_nan(values[x]);
}

tc_status_t tc_conv_product_backward_weight(tc_cpu *cpu, const conv2d *problem) {
  conv2d c = *problem;
  conv_flatten(&c);
  const tc_product product = {
      .items = c.groups,
      .M = c.out_channels,
      .N = c.in_channels * c.taps,
      .K = c.batch * c.pixels,
      .a = {dy_row, &c, false, 2},
      .b = {col_row, &c, false, 5},
      .c = {c.dw_f32 ? store_dw_f32 : store_dw_f16, &c},
      .split_k = true,
      .tiles = tc_tiles_pay(cpu, c.out_channels, c.in_channels * c.taps, c.batch * c.pixels),
      .strict = c.strict,
  };
  return tc_product_run(cpu, &product);
}
