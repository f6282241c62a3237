/* SPDX-License-Identifier: MIT
 *
 * Convolution as matrix products (product.h), with P = out_H*out_W pixels and T = kH*kW taps, for each group:
 *   forward          Y[o, (n,p)]     = weight[o, (i,t)]  *  col[(i,t), (n,p)]
 *   backward_input   dX[i, (n,p)]    = weight[o, i]^T    *  dY[o, (n,p)], only with one tap and no padding
 *   backward_weight  dW[o, (i,t)]    = dY[o, (n,p)]      *  col[(i,t), (n,p)]^T
 * where col[(i,t), (n,p)] is the pixel of channel i that tap t sees at output pixel p of image n, or 0 over padding. Rows of col
 * are gathered while they are packed, so it is never stored.
 */
#include <string.h>

#include "cpu/block.h"
#include "cpu/conv.h"
#include "f16.h"

/* ---- Sources ---- */

static void copy(int64_t n, const uint16_t *src, uint16_t *dst) { memcpy(dst, src, (size_t)n * sizeof *dst); }

static void zero(int64_t n, uint16_t *dst) { memset(dst, 0, (size_t)n * sizeof *dst); }

/* Elements (n,p) from first on of a channel of images of so many pixels. */
static void plane_row(const conv2d *c, const uint16_t *tensor, int64_t group, int64_t channel, int64_t channels, int64_t pixels,
                      int64_t first, int64_t n, uint16_t *out) {
  for (int64_t img = first / pixels, p = first % pixels; n; p = 0, img++) {
    const int64_t run = min(n, pixels - p);
    copy(run, conv_image(tensor, c, img, group, channel, channels, pixels) + p, out);
    out += run;
    n -= run;
  }
}

/* r = (i,t), columns (n,p). */
static void col_row(const void *self, int64_t group, int64_t r, int64_t first, int64_t n, uint16_t *out) {
  const conv2d *c = self;
  const int64_t channel = r / c->taps, ky = r % c->taps / c->w.kernel, kx = r % c->w.kernel;
  if (axis_is_identity(&c->h) && axis_is_identity(&c->w)) {
    plane_row(c, c->x, group, channel, c->in_channels, c->pixels, first, n, out);
    return;
  }
  const range rows = axis_inside(&c->h, ky), columns = axis_inside(&c->w, kx);
  int64_t img = first / c->pixels, oy = first % c->pixels / c->w.out, ox = first % c->w.out;
  for (; n; ox = 0) {
    const int64_t end = min(c->w.out, ox + n);
    const range inside = oy >= rows.first && oy < rows.end ? range_clip(columns, ox, end) : (range){ox, ox};
    zero(inside.first - ox, out);
    if (inside.first < inside.end) {
      const int64_t iy = oy * c->h.stride - c->h.pad + ky * c->h.dilation;
      const int64_t ix = inside.first * c->w.stride - c->w.pad + kx * c->w.dilation;
      const uint16_t *plane = conv_image(c->x, c, img, group, channel, c->in_channels, c->h.size * c->w.size);
      const uint16_t *src = plane + iy * c->w.size + ix;
      if (c->w.stride == 1) {
        copy(inside.end - inside.first, src, out + (inside.first - ox));
      } else {
        c->kernels->pick(inside.end - inside.first, src, c->w.stride, out + (inside.first - ox));
      }
    }
    zero(end - inside.end, out + (inside.end - ox));
    out += end - ox;
    n -= end - ox;
    if (++oy == c->h.out) oy = 0, img++;
  }
}

/* r = o, columns (i,t). */
static void weight_row(const void *self, int64_t group, int64_t r, int64_t first, int64_t n, uint16_t *out) {
  const conv2d *c = self;
  copy(n, c->weight + (group * c->out_channels + r) * c->in_channels * c->taps + first, out);
}

/* r = o, columns (n,p). */
static void dy_row(const void *self, int64_t group, int64_t r, int64_t first, int64_t n, uint16_t *out) {
  const conv2d *c = self;
  plane_row(c, c->dy, group, r, c->out_channels, c->pixels, first, n, out);
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

/* ---- Gradient of the input ---- */

/* Pixels of dX that no output pixel sees: rows of so many elements, W apart. */
static void zero_rows(const conv2d *c, int64_t rows, int64_t columns, uint16_t *dx) {
  for (int64_t y = 0; y < rows; y++) zero(columns, dx + y * c->w.size);
}

/* The sums of output pixels that follow each other in a row, and zeros up to the next ones. */
static void store_dx_run(const conv2d *c, int64_t oy, int64_t ox, int64_t n, const float *values, uint16_t *dx) {
  const int64_t rows = oy + 1 < c->h.out ? c->h.stride : c->h.size - oy * c->h.stride;
  const int64_t columns = ox + n < c->w.out ? n * c->w.stride : c->w.size - ox * c->w.stride;
  uint16_t *row = dx + oy * c->h.stride * c->w.size + ox * c->w.stride, halves[TC_TILE_COLUMNS_MAX];
  c->kernels->narrow(n, values, halves);
  zero_rows(c, rows, columns, row);
  for (int64_t x = 0; x < n; x++) row[x * c->w.stride] = halves[x];
}

static void store_dx(const void *self, int64_t group, int64_t i, int64_t j, int64_t n, float *values) {
  const conv2d *c = self;
  const bool dense = axis_is_identity(&c->h) && axis_is_identity(&c->w);
  for (int64_t p = j % c->pixels, img = j / c->pixels; n; p = 0, img++) {
    uint16_t *dx = c->dx + ((img * c->groups + group) * c->in_channels + i) * c->h.size * c->w.size;
    for (int64_t end = min(c->pixels, p + n); p < end;) {
      const int64_t run = min(end - p, dense ? c->pixels : c->w.out - p % c->w.out);
      if (dense) {
        c->kernels->narrow(run, values, dx + p);
      } else {
        store_dx_run(c, p / c->w.out, p % c->w.out, run, values, dx);
      }
      p += run;
      n -= run;
      values += run;
    }
  }
}

tc_status_t tc_conv_product_backward_input(tc_cpu *cpu, const conv2d *problem) {
  conv2d c = *problem;
  conv_flatten(&c);
  const tc_product product = {
      .items = c.groups,
      .M = c.in_channels,
      .N = c.batch * c.pixels,
      .K = c.out_channels,
      .a = {weight_row, &c, true, 2},
      .b = {dy_row, &c, true, 4},
      .c = {store_dx, &c},
      .tiles = tc_tiles_pay(cpu, c.in_channels, c.pixels, c.out_channels),
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
