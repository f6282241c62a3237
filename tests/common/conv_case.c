/* SPDX-License-Identifier: MIT */
#include "conv_case.h"

#include "check.h"
#include "context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const conv_names[CONV_OPS] = {"tc_conv2d_backward_input", "tc_conv2d_backward_weight", "tc_conv2d_forward"};

static const double EXACT_SUM = 1 << 22;

static int64_t out_size(int64_t size, int64_t kernel, int64_t pad, int64_t stride) {
  int64_t room = size + 2 * pad - kernel;
  return room < 0 ? 0 : room / stride + 1;
}

bool conv_has_output(conv_shape s) { return s.H + 2 * s.pad_h >= s.kH && s.W + 2 * s.pad_w >= s.kW; }

int64_t conv_macs(conv_shape s) {
  int64_t outputs = out_size(s.H, s.kH, s.pad_h, s.stride_h) * out_size(s.W, s.kW, s.pad_w, s.stride_w);
  return s.batch * s.out_channels * outputs * (s.in_channels / (s.groups ? s.groups : 1)) * s.kH * s.kW;
}

static tc_conv2d_desc describe(conv_shape s) {
  tc_conv2d_desc d = TC_CONV2D_DESC_INIT;
  d.batch = s.batch;
  d.in_channels = s.in_channels;
  d.out_channels = s.out_channels;
  d.H = s.H;
  d.W = s.W;
  d.kH = s.kH;
  d.kW = s.kW;
  d.out_H = out_size(s.H, s.kH, s.pad_h, s.stride_h);
  d.out_W = out_size(s.W, s.kW, s.pad_w, s.stride_w);
  d.pad_top = d.pad_bottom = s.pad_h;
  d.pad_left = d.pad_right = s.pad_w;
  d.stride_h = s.stride_h;
  d.stride_w = s.stride_w;
  d.groups = s.groups ? s.groups : 1;
  return d;
}

conv_case conv_make(conv_op op, conv_shape s) {
  conv_case c = {.desc = describe(s), .op = op};
  c.bias = op == CONV_FORWARD;
  c.scratch_col = true;
  c.scratch_dx = op == CONV_BACKWARD_INPUT;
  for (int t = 0; t < TENSORS; t++) c.fill[t] = (contents){DATA_NORMAL, 1};
  return c;
}

int64_t conv_terms(const tc_conv2d_desc *d, conv_op op) {
  const int64_t terms[] = {
      [CONV_FORWARD] = d->in_channels / d->groups * d->kH * d->kW,
      [CONV_BACKWARD_INPUT] = d->out_channels / d->groups * d->kH * d->kW,
      [CONV_BACKWARD_WEIGHT] = d->batch * d->out_H * d->out_W,
  };
  return terms[op] > 0 ? terms[op] : 1;
}

void conv_integers(conv_case *c, bool odd) {
  double terms = (double)conv_terms(&c->desc, c->op);
  double largest = odd ? 2047 : fmin(256, floor(sqrt(EXACT_SUM / terms)));
  int first = c->op == CONV_BACKWARD_WEIGHT ? X : W;
  for (int t = 0; t < TENSORS; t++) c->fill[t] = (contents){DATA_INTEGER, fmin(256, floor(EXACT_SUM / terms / largest))};
  c->fill[first] = odd ? (contents){DATA_ODD, 0} : (contents){DATA_INTEGER, largest};
}

void conv_randomize(conv_case *c, rng *r) {
  tc_conv2d_desc *d = &c->desc;
  int64_t *const offsets[] = {&d->x_offset, &d->w_offset, &d->bias_offset, &d->y_offset};
  for (size_t i = 0; i < COUNT(offsets); i++) *offsets[i] = rng_one_in(r, 2) ? 0 : rng_between(r, 1, 17);
  d->math_mode = (tc_math_mode_t)rng_between(r, TC_MATH_DEFAULT, TC_MATH_FAST);
  if (c->op == CONV_BACKWARD_WEIGHT && rng_one_in(r, 3)) d->w_dtype = TC_DTYPE_F32;
  c->bias = c->op == CONV_FORWARD && rng_one_in(r, 2);
  c->scratch_col = rng_one_in(r, 2);
  c->scratch_dx = c->op == CONV_BACKWARD_INPUT && rng_one_in(r, 2);
  c->place = rng_one_in(r, 2) ? AT_END : AT_START;
  c->positional = rng_one_in(r, 3) && d->groups == 1;
  if (c->positional) {
    for (size_t i = 0; i < COUNT(offsets); i++) *offsets[i] = 0;
    d->w_dtype = TC_DTYPE_F16;
    d->math_mode = TC_MATH_DEFAULT;
  }
}

static conv_shape one_random_shape(rng *r) {
  static const int64_t kernels[] = {1, 1, 2, 3, 3, 5, 7, 11}, strides[] = {1, 1, 1, 2, 2, 3, 5}, batches[] = {1, 1, 2, 3, 7};
  static const int64_t channels[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 32, 33, 70}, groups[] = {1, 1, 1, 2, 3, 4, 8, 32};
  conv_shape s = {.batch = rng_pick(r, batches), .H = rng_between(r, 1, 33), .W = rng_between(r, 1, 33)};
  s.kH = rng_pick(r, kernels);
  s.kW = rng_one_in(r, 2) ? s.kH : rng_pick(r, kernels);
  s.stride_h = rng_pick(r, strides);
  s.stride_w = rng_one_in(r, 2) ? s.stride_h : rng_pick(r, strides);
  s.pad_h = rng_one_in(r, 3) ? rng_between(r, 0, s.kH + 2) : s.kH / 2;
  s.pad_w = rng_one_in(r, 3) ? rng_between(r, 0, s.kW + 2) : s.kW / 2;
  s.groups = rng_pick(r, groups);
  bool small = s.groups > 1;
  s.in_channels = s.groups * (small ? rng_between(r, 1, 5) : rng_pick(r, channels));
  s.out_channels = s.groups * (small ? rng_between(r, 1, 5) : rng_pick(r, channels));
  if (rng_one_in(r, 8)) s.groups = s.out_channels = s.in_channels; /* depthwise */
  return s;
}

conv_shape conv_random_shape(rng *r, int64_t macs) {
  conv_shape s = one_random_shape(r);
  while (!conv_has_output(s) || conv_macs(s) > macs) s = one_random_shape(r);
  return s;
}

/* ---- Operands ---- */

operand *conv_output(conv_case *c) { return &c->tensor[c->op]; }

static operand dense_operand(tc_dtype_t dtype, int64_t offset, int64_t outer, int64_t rows, int64_t columns) {
  return (operand){.dtype = dtype, .offset = offset, .count = {outer, rows, columns}, .stride = {rows * columns, columns, 1}};
}

/* Scratch of so many bytes (a multiple of 4, since scratch starts at one), all NaN. */
static operand scratch_operand(size_t bytes) {
  return dense_operand(TC_DTYPE_F32, 0, 1, 1, (int64_t)((bytes + sizeof(float) - 1) / sizeof(float)));
}

static void describe_operands(conv_case *c) {
  const tc_conv2d_desc *d = &c->desc;
  const contents nothing = {DATA_NAN, 0};
  c->tensor[X] = dense_operand(d->x_dtype, d->x_offset, d->batch * d->in_channels, d->H, d->W);
  c->tensor[W] = dense_operand(d->w_dtype, d->w_offset, d->out_channels * (d->in_channels / d->groups), d->kH, d->kW);
  c->tensor[Y] = dense_operand(d->y_dtype, d->y_offset, d->batch * d->out_channels, d->out_H, d->out_W);
  c->tensor[BIAS] = dense_operand(d->bias_dtype, d->bias_offset, 1, 1, d->out_channels);
  c->fill[c->op] = nothing;
  c->col = scratch_operand(tc_conv2d_scratch_col_bytes(d->batch, d->in_channels, d->kH, d->kW, d->out_H, d->out_W));
  c->dx = scratch_operand(tc_conv2d_scratch_dx_bytes(d->batch, d->in_channels, d->H, d->W));
}

void conv_open(conv_case *c, tc_context *ctx, rng *r) {
  describe_operands(c);
  /* Where whole pages are wrapped, an operand at their end needs an offset, and there is none for these. */
  const bool pages = wrap_unit(ctx) > 1;
  const placement scratch_place = pages && c->place == AT_END ? AT_START : c->place;
  const placement place = c->positional ? scratch_place : c->place;
  for (int t = 0; t < TENSORS; t++) {
    operand_open(&c->tensor[t], ctx, place, c->fill[t], r);
    if (t != (int)c->op) guarded_protect(&c->tensor[t].memory, false);
  }
  if (c->scratch_col) operand_open(&c->col, ctx, scratch_place, (contents){DATA_NAN, 0}, r);
  if (c->scratch_dx) operand_open(&c->dx, ctx, scratch_place, (contents){DATA_NAN, 0}, r);
  c->before = operand_snapshot(conv_output(c));
}

void conv_close(conv_case *c, tc_context *ctx) {
  for (int t = 0; t < TENSORS; t++) operand_close(&c->tensor[t], ctx);
  if (c->scratch_col) operand_close(&c->col, ctx);
  if (c->scratch_dx) operand_close(&c->dx, ctx);
  free(c->before);
}

/* ---- Calls ---- */

static tc_status_t call_positional(conv_case *c, tc_context *ctx) {
  const tc_conv2d_desc *d = &c->desc;
  const operand *t = c->tensor;
  switch (c->op) {
  case CONV_FORWARD:
    return tc_conv2d_forward(ctx, t[X].buffer, t[W].buffer, c->bias ? t[BIAS].buffer : NULL, t[Y].buffer, c->col.buffer, d->batch,
                             d->in_channels, d->out_channels, d->H, d->W, d->kH, d->kW, d->pad_top, d->pad_left, d->stride_h,
                             d->stride_w, d->out_H, d->out_W);
  case CONV_BACKWARD_INPUT:
    return tc_conv2d_backward_input(ctx, t[Y].buffer, t[W].buffer, t[X].buffer, c->col.buffer, c->dx.buffer, d->batch,
                                    d->in_channels, d->out_channels, d->H, d->W, d->kH, d->kW, d->pad_top, d->pad_left, d->stride_h,
                                    d->stride_w, d->out_H, d->out_W);
  default:
    return tc_conv2d_backward_weight(ctx, t[X].buffer, t[Y].buffer, t[W].buffer, c->col.buffer, d->batch, d->in_channels,
                                     d->out_channels, d->H, d->W, d->kH, d->kW, d->pad_top, d->pad_left, d->stride_h, d->stride_w,
                                     d->out_H, d->out_W);
  }
}

static tc_status_t call_descriptor(conv_case *c, tc_context *ctx) {
  const operand *t = c->tensor;
  tc_conv2d_desc d = c->desc;
  d.x_offset += t[X].shift;
  d.w_offset += t[W].shift;
  d.y_offset += t[Y].shift;
  d.bias_offset += t[BIAS].shift;
  switch (c->op) {
  case CONV_FORWARD:
    return tc_conv2d_forward_desc(ctx, &d, t[X].buffer, t[W].buffer, c->bias ? t[BIAS].buffer : NULL, t[Y].buffer, c->col.buffer);
  case CONV_BACKWARD_INPUT:
    return tc_conv2d_backward_input_desc(ctx, &d, t[Y].buffer, t[W].buffer, t[X].buffer, c->col.buffer, c->dx.buffer);
  default:
    return tc_conv2d_backward_weight_desc(ctx, &d, t[X].buffer, t[Y].buffer, t[W].buffer, c->col.buffer);
  }
}

tc_status_t conv_call(conv_case *c, tc_context *ctx) {
  operand_restore(conv_output(c), c->before);
  return c->positional ? call_positional(c, ctx) : call_descriptor(c, ctx);
}

/* ---- Reference ----
 * sum(Y * conv(X, W)) is a sum of products of one element of X, W and Y each. The three directions are its derivatives: walk over
 * all products once, and add to the output's element the product of the other two. */

typedef struct reference {
  conv_op op;
  const double *values[TENSORS];
  expected *want;
} reference;

static void add_term(const reference *ref, const int64_t at[3], bool inside) {
  if (!inside && ref->op == CONV_BACKWARD_INPUT) return; /* no pixel there */
  double product = 1;
  for (int t = 0; t < 3; t++) {
    if (t != (int)ref->op) product *= t == X && !inside ? 0 : ref->values[t][at[t]];
  }
  ref->want[at[ref->op]].exact += product;
  ref->want[at[ref->op]].sum += fabs(product);
}

/* All products of image n, output channel o and output pixel (y, x). */
static void add_pixel(const reference *ref, const tc_conv2d_desc *d, int64_t n, int64_t o, int64_t y, int64_t x) {
  int64_t channels = d->in_channels / d->groups, first = o / (d->out_channels / d->groups) * channels;
  int64_t at[3] = {0, o * channels * d->kH * d->kW, ((n * d->out_channels + o) * d->out_H + y) * d->out_W + x};
  for (int64_t i = 0; i < channels; i++) {
    int64_t plane = (n * d->in_channels + first + i) * d->H * d->W;
    for (int64_t ky = 0; ky < d->kH; ky++) {
      int64_t row = y * d->stride_h - d->pad_top + ky;
      for (int64_t kx = 0; kx < d->kW; kx++, at[W]++) {
        int64_t column = x * d->stride_w - d->pad_left + kx;
        at[X] = plane + row * d->W + column;
        add_term(ref, at, row >= 0 && row < d->H && column >= 0 && column < d->W);
      }
    }
  }
}

static void add_bias(const conv_case *c, expected *want) {
  const tc_conv2d_desc *d = &c->desc;
  int64_t pixels = d->out_H * d->out_W;
  for (int64_t n = 0; n < d->batch * d->out_channels * pixels; n++) {
    double bias = operand_get(&c->tensor[BIAS], d->bias_offset + n / pixels % d->out_channels);
    want[n].exact += bias;
    want[n].sum += fabs(bias);
  }
}

expected *conv_reference(const conv_case *c) {
  const tc_conv2d_desc *d = &c->desc;
  double *values[TENSORS] = {0};
  reference ref = {.op = c->op, .want = allocate(operand_elements(&c->tensor[c->op]), sizeof(expected))};
  for (int t = 0; t < 3; t++) ref.values[t] = values[t] = operand_values(&c->tensor[t]);
  for (int64_t n = 0; n < d->batch; n++) {
    for (int64_t o = 0; o < d->out_channels; o++) {
      for (int64_t y = 0; y < d->out_H; y++) {
        for (int64_t x = 0; x < d->out_W; x++) add_pixel(&ref, d, n, o, y, x);
      }
    }
  }
  if (c->bias) add_bias(c, ref.want);
  for (int t = 0; t < 3; t++) free(values[t]);
  return ref.want;
}

void conv_note(const conv_case *c) {
  const tc_conv2d_desc *d = &c->desc;
  note(
      "%s%s N=%lld IC=%lld OC=%lld HxW=%lldx%lld k=%lldx%lld pad=%lld,%lld stride=%lld,%lld out=%lldx%lld groups=%lld offsets=%lld,"
      "%lld,%lld,%lld w_dtype=%d bias=%d scratch=%d,%d %s",
      conv_names[c->op], c->positional ? "" : "_desc", (long long)d->batch, (long long)d->in_channels, (long long)d->out_channels,
      (long long)d->H, (long long)d->W, (long long)d->kH, (long long)d->kW, (long long)d->pad_top, (long long)d->pad_left,
      (long long)d->stride_h, (long long)d->stride_w, (long long)d->out_H, (long long)d->out_W, (long long)d->groups,
      (long long)d->x_offset, (long long)d->w_offset, (long long)d->bias_offset, (long long)d->y_offset, d->w_dtype, c->bias,
      c->scratch_col, c->scratch_dx, placement_names[c->place]);
}

bool conv_check(conv_case *c, tc_context *ctx, rng *r, accuracy how) {
  conv_note(c);
  conv_open(c, ctx, r);
  bool right = CHECK_OK(conv_call(c, ctx));
  if (right) {
    expected *want = conv_reference(c);
    right = check_output(conv_output(c), want, c->before, how, NULL);
    free(want);
  }
  conv_close(c, ctx);
  return right;
}
