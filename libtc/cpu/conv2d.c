/* SPDX-License-Identifier: MIT
 *
 * The three directions as matrix products (product.h), with P = out_H*out_W pixels and T = kH*kW taps, for each group:
 *   forward          Y[o, (n,p)]     = weight[o, (i,t)]  *  col[(i,t), (n,p)]
 *   backward_weight  dW[o, (i,t)]    = dY[o, (n,p)]      *  col[(i,t), (n,p)]^T
 *   backward_input   dCol[(i,t), p]  = weight[o, (i,t)]^T * dY[o, p], for each image; dX[i] = sum over t of dCol moved by the tap
 * where col[(i,t), (n,p)] is the pixel of channel i that tap t sees at output pixel p of image n, or 0 over padding. Rows of col
 * are gathered while they are packed, and rows of dCol are added to dX as they come, so neither is ever stored.
 */
#include <string.h>

#include "cpu/integer.h"
#include "cpu/product.h"
#include "f16.h"
#include "status.h"

/* One axis of the convolution: output position o and tap t see input position o*stride - pad + t*dilation. */
typedef struct axis {
  int64_t size, kernel, out, stride, dilation, pad;
} axis;

typedef struct conv2d {
  const tc_cpu_kernels *kernels;
  axis h, w;
  int64_t batch, groups;
  int64_t in_channels, out_channels; /* of a group */
  int64_t taps, pixels;              /* T, P */
  const uint16_t *x, *weight, *bias, *dy;
  uint16_t *y, *dx;
  void *dw;
} conv2d;

static conv2d describe(const tc_cpu *cpu, const tc_conv2d_desc *d) {
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
  };
}

static bool axis_is_identity(const axis *a) { return a->kernel == 1 && a->stride == 1 && a->pad == 0; }

/* A 1x1 convolution that sees every pixel once is one on images of a single row, whose rows of col are longer. */
static void flatten_pointwise(conv2d *c) {
  if (!axis_is_identity(&c->h) || !axis_is_identity(&c->w)) return;
  c->w.size = c->w.out = c->pixels;
  c->h.size = c->h.out = 1;
}

typedef struct range {
  int64_t first, end;
} range;

/* Output positions at which a tap sees a position within 0 .. size-1. */
static range axis_inside(const axis *a, int64_t tap) {
  const int64_t before = a->pad - tap * a->dilation; /* o*stride >= before */
  const int64_t last = a->size - 1 + before;         /* o*stride <= last */
  return (range){before > 0 ? ceil_div(before, a->stride) : 0, last < 0 ? 0 : min(a->out, last / a->stride + 1)};
}

/* The part of r within first .. end-1; an empty one lies at first. */
static range clip(range r, int64_t first, int64_t end) {
  const range c = {max(r.first, first), min(r.end, end)};
  return c.first < c.end ? c : (range){first, first};
}

/* ---- Sources ---- */

static const uint16_t *image(const uint16_t *tensor, const conv2d *c, int64_t n, int64_t group, int64_t channel, int64_t channels,
                             int64_t pixels) {
  return tensor + ((n * c->groups + group) * channels + channel) * pixels;
}

/* Widens n elements that are stride apart. */
static void widen_strided(const tc_cpu_kernels *kernels, int64_t n, const uint16_t *src, int64_t stride, float *dst) {
  if (stride == 1) {
    kernels->widen(n, src, dst);
    return;
  }
  enum { STEP = 64 };
  uint16_t dense[STEP];
  for (int64_t i = 0; i < n; i += STEP) {
    const int64_t step = min(STEP, n - i);
    if (stride == 2) { /* which the compiler turns into shuffles */
      for (int64_t s = 0; s < step; s++) dense[s] = src[(i + s) * 2];
    } else {
      for (int64_t s = 0; s < step; s++) dense[s] = src[(i + s) * stride];
    }
    kernels->widen(step, dense, dst + i);
  }
}

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
    const range inside = oy >= rows.first && oy < rows.end ? clip(columns, ox, end) : (range){ox, ox};
    zero(inside.first - ox, out);
    if (inside.first < inside.end) {
      const int64_t iy = oy * c->h.stride - c->h.pad + ky * c->h.dilation;
      const int64_t ix = inside.first * c->w.stride - c->w.pad + kx * c->w.dilation;
      const uint16_t *plane = image(c->x, c, img, group, channel, c->in_channels, c->h.size * c->w.size);
      widen_strided(c->kernels, inside.end - inside.first, plane + iy * c->w.size + ix, c->w.stride, out + (inside.first - ox));
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
    c->kernels->widen(run, image(c->dy, c, img, group, r, c->out_channels, c->pixels) + p, out);
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

tc_status_t tc_cpu_conv2d_forward(void *state, const tc_conv2d_desc *d, const tc_buffer *X, const tc_buffer *weight,
                                  const tc_buffer *bias, tc_buffer *Y, tc_buffer *scratch_col) {
  (void)scratch_col;
  tc_cpu *cpu = state;
  conv2d c = describe(cpu, d);
  flatten_pointwise(&c);
  c.x = tc_at(X, d->x_offset, 2);
  c.weight = tc_at(weight, d->w_offset, 2);
  c.bias = bias ? tc_at(bias, d->bias_offset, 2) : NULL;
  c.y = tc_at(Y, d->y_offset, 2);
  const tc_product product = {
      .items = c.groups,
      .M = c.out_channels,
      .N = c.batch * c.pixels,
      .K = c.in_channels * c.taps,
      .a = {weight_row, &c, false, 2},
      .b = {col_row, &c, true, 4},
      .c = {store_y, &c},
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

tc_status_t tc_cpu_conv2d_backward_weight(void *state, const tc_conv2d_desc *d, const tc_buffer *X, const tc_buffer *dY,
                                          tc_buffer *dW, tc_buffer *scratch_col) {
  (void)scratch_col;
  tc_cpu *cpu = state;
  conv2d c = describe(cpu, d);
  flatten_pointwise(&c);
  c.x = tc_at(X, d->x_offset, 2);
  c.dy = tc_at(dY, d->y_offset, 2);
  c.dw = tc_at(dW, d->w_offset, tc_dtype_size(d->w_dtype));
  const tc_product product = {
      .items = c.groups,
      .M = c.out_channels,
      .N = c.in_channels * c.taps,
      .K = c.batch * c.pixels,
      .a = {dy_row, &c, false, 2},
      .b = {col_row, &c, false, 5},
      .c = {d->w_dtype == TC_DTYPE_F32 ? store_dw_f32 : store_dw_f16, &c},
      .split_k = true,
  };
  return tc_product_run(cpu, &product);
}

/* ---- Gradient of the input ---- */

/* A task computes a part of dX: some rows of some channels of some images. It sums them in fp64. Each element takes its taps in an
 * order that doesn't depend on the part: an image's output pixels stand in one block of columns, or in blocks that no other image
 * shares. */
typedef struct part_sizes {
  int64_t images, channels, rows;
} part_sizes;

typedef struct part {
  const conv2d *c;
  int64_t first_image, group, first_channel, first_row;
  part_sizes n;
  range oy;     /* output rows that reach into the part's rows */
  double *sums; /* [images][channels][rows][W] */
} part;

enum { PART_BYTES = 4 << 20 };

static int64_t part_count(const conv2d *c, part_sizes n) {
  return ceil_div(c->batch, n.images) * c->groups * ceil_div(c->in_channels, n.channels) * ceil_div(c->h.size, n.rows);
}

/* Sums of a part, rounded up to whole cache lines. */
static int64_t part_elements(const conv2d *c, part_sizes n) { return round_up(n.images * n.channels * n.rows * c->w.size, 8); }

/* Parts that fill a block of dCol, whose sums fit PART_BYTES if possible, and which are enough for the threads. */
static part_sizes choose_parts(const conv2d *c, int64_t threads) {
  const int64_t limit = PART_BYTES / (int64_t)sizeof(double), plane = c->h.size * c->w.size;
  part_sizes n = {1, min(c->in_channels, max(1, TC_MC / c->taps)), c->h.size};
  n.channels = min(n.channels, max(1, limit / plane));
  if (plane > limit) n.rows = max(1, limit / c->w.size);
  if (n.rows == c->h.size) n.images = min(c->batch, max(1, min(TC_NC / c->pixels, limit / (n.channels * plane))));
  while (n.channels > 1 && part_count(c, n) < 2 * threads) n.channels = ceil_div(n.channels, 2);
  return n;
}

/* Output pixels of an image that reach into the part. */
static int64_t part_window(const part *t) { return (t->oy.end - t->oy.first) * t->c->w.out; }

/* r = o, columns are the windows of the part's images. */
static void part_dy_row(const void *self, int64_t item, int64_t r, int64_t first, int64_t n, float *out) {
  (void)item;
  const part *t = self;
  const conv2d *c = t->c;
  const int64_t window = part_window(t);
  int64_t img = t->first_image + first / window, p = first % window;
  while (n) {
    const int64_t run = min(n, window - p);
    c->kernels->widen(run, image(c->dy, c, img, t->group, r, c->out_channels, c->pixels) + t->oy.first * c->w.out + p, out);
    out += run;
    n -= run;
    p = 0;
    img++;
  }
}

/* r = o, columns (i,t) of the part's channels. */
static void part_weight_row(const void *self, int64_t item, int64_t r, int64_t first, int64_t n, float *out) {
  (void)item;
  const part *t = self;
  weight_row(t->c, t->group, r, t->first_channel * t->c->taps + first, n, out);
}

static void add_strided(const tc_cpu_kernels *kernels, int64_t n, const float *src, int64_t stride, double *dst) {
  if (stride == 1) {
    kernels->add(n, src, dst);
  } else {
    for (int64_t x = 0; x < n; x++) dst[x * stride] += (double)src[x];
  }
}

/* Adds a run of row (i,t) of dCol to the elements of dX that the tap t sees there. */
static void part_add(const void *self, int64_t item, int64_t i, int64_t j, int64_t n, float *values) {
  (void)item;
  const part *t = self;
  const conv2d *c = t->c;
  const int64_t ky = i % c->taps / c->w.kernel, kx = i % c->w.kernel, window = part_window(t);
  const range columns = axis_inside(&c->w, kx);
  double *plane = t->sums + (j / window * t->n.channels + i / c->taps) * t->n.rows * c->w.size;
  int64_t oy = t->oy.first + j % window / c->w.out, ox = j % window % c->w.out;
  while (n) {
    const int64_t end = min(c->w.out, ox + n);
    const int64_t row = oy * c->h.stride - c->h.pad + ky * c->h.dilation - t->first_row;
    if (row >= 0 && row < t->n.rows) {
      const range inside = clip(columns, ox, end);
      if (inside.first < inside.end) {
        const int64_t column = inside.first * c->w.stride - c->w.pad + kx * c->w.dilation;
        const float *src = values + (inside.first - ox);
        add_strided(c->kernels, inside.end - inside.first, src, c->w.stride, plane + row * c->w.size + column);
      }
    }
    values += end - ox;
    n -= end - ox;
    ox = 0;
    if (++oy == t->oy.end) {
      oy = t->oy.first;
      plane += t->n.channels * t->n.rows * c->w.size;
    }
  }
}

static void store_dx(const conv2d *c, int64_t n, const double *sums, uint16_t *dx) {
  enum { STEP = 64 };
  float rounded[STEP];
  for (int64_t x = 0; x < n; x += STEP) {
    const int64_t step = min(STEP, n - x);
    c->kernels->round(step, sums + x, rounded);
    c->kernels->narrow(step, rounded, dx + x);
  }
}

static void part_store(const part *t) {
  const conv2d *c = t->c;
  const int64_t n = t->n.rows * c->w.size;
  const double *sums = t->sums;
  for (int64_t img = 0; img < t->n.images; img++) {
    for (int64_t i = 0; i < t->n.channels; i++, sums += n) {
      const int64_t plane = ((t->first_image + img) * c->groups + t->group) * c->in_channels + t->first_channel + i;
      store_dx(c, n, sums, c->dx + (plane * c->h.size + t->first_row) * c->w.size);
    }
  }
}

/* Output rows from which some tap sees one of the part's rows. */
static range part_output_rows(const conv2d *c, int64_t first_row, int64_t rows) {
  const int64_t reach = (c->h.kernel - 1) * c->h.dilation;
  const int64_t from = first_row + c->h.pad - reach, last = first_row + rows - 1 + c->h.pad;
  const range r = {from > 0 ? ceil_div(from, c->h.stride) : 0, min(c->h.out, last / c->h.stride + 1)};
  return r.first < r.end ? r : (range){0, 0};
}

typedef struct parts_job {
  const conv2d *c;
  part_sizes n;
} parts_job;

/* The part of a task, all but its sums. */
static part part_of(const parts_job *job, int64_t task) {
  const conv2d *c = job->c;
  const int64_t bands = ceil_div(c->h.size, job->n.rows), strips = ceil_div(c->in_channels, job->n.channels);
  part t = {.c = c};
  t.first_row = task % bands * job->n.rows;
  t.first_channel = task / bands % strips * job->n.channels;
  t.group = task / (bands * strips) % c->groups;
  t.first_image = task / (bands * strips * c->groups) * job->n.images;
  t.n.rows = min(job->n.rows, c->h.size - t.first_row);
  t.n.channels = min(job->n.channels, c->in_channels - t.first_channel);
  t.n.images = min(job->n.images, c->batch - t.first_image);
  t.oy = part_output_rows(c, t.first_row, t.n.rows);
  return t;
}

static void part_task(const void *arg, int64_t task, char *workspace) {
  const parts_job *job = arg;
  const tc_cpu_kernels *kernels = job->c->kernels;
  part t = part_of(job, task);
  t.sums = (double *)(void *)workspace;
  memset(t.sums, 0, (size_t)part_elements(t.c, t.n) * sizeof(double));
  const int64_t window = part_window(&t);
  const tc_product product = {
      .M = t.n.channels * t.c->taps,
      .N = t.n.images * window,
      .K = t.c->out_channels,
      .a = {part_weight_row, &t, true, 1},
      .b = {part_dy_row, &t, true, 1},
      .c = {part_add, &t},
  };
  const int64_t step = window > 0 && window <= TC_NC ? TC_NC / window * window : TC_NC;
  for (int64_t i = 0; i < product.M; i += TC_MC) {
    for (int64_t j = 0; j < product.N; j += step) {
      const tc_block block = {0, i, min(TC_MC, product.M - i), j, min(step, product.N - j)};
      tc_block_run(kernels, &product, &block, (char *)(t.sums + part_elements(t.c, job->n)));
    }
  }
  part_store(&t);
}

tc_status_t tc_cpu_conv2d_backward_input(void *state, const tc_conv2d_desc *d, const tc_buffer *dY, const tc_buffer *weight,
                                         tc_buffer *dX, tc_buffer *scratch_col, tc_buffer *scratch_dX_f32) {
  (void)scratch_col, (void)scratch_dX_f32;
  tc_cpu *cpu = state;
  conv2d c = describe(cpu, d);
  c.dy = tc_at(dY, d->y_offset, 2);
  c.weight = tc_at(weight, d->w_offset, 2);
  c.dx = tc_at(dX, d->x_offset, 2);
  const double multiplies =
      (double)c.batch * (double)c.groups * (double)c.out_channels * (double)c.in_channels * (double)c.taps * (double)c.pixels;
  const int64_t threads = tc_cpu_threads(cpu, multiplies);
  const parts_job job = {&c, choose_parts(&c, threads)};
  const int64_t tasks = part_count(&c, job.n);
  const size_t sums = (size_t)part_elements(&c, job.n) * sizeof(double);
  tc_team team;
  TC_TRY(tc_team_take(cpu, threads, tasks, sums + tc_block_workspace_bytes(cpu->kernels), &team));
  tc_team_run(&team, tasks, part_task, &job);
  tc_team_give(&team);
  return TC_OK;
}
