/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "check.h"

/* ---- Sizes ---- */

/* *out = size + 2*pad, both >= 0; false if that overflows. */
static bool padded_size(int64_t size, int64_t pad, int64_t *out) {
  int64_t twice;
  return !__builtin_mul_overflow(2, pad, &twice) && !__builtin_add_overflow(size, twice, out);
}

static tc_status_t out_dim(int64_t size, int64_t kernel, int64_t pad, int64_t stride, int64_t *out) {
  const tc_size_rule rules[] = {{"size", size, 1}, {"kernel", kernel, 1}, {"pad", pad, 0}, {"stride", stride, 1}};
  TC_TRY(tc_sizes_check(rules, sizeof rules / sizeof *rules));
  int64_t padded;
  TC_REQUIRE(padded_size(size, pad, &padded), TC_ERROR_SHAPE, "size + 2*pad overflows, pad = %lld", (long long)pad);
  const int64_t span = padded - kernel;
  const int64_t steps = span / stride - (span % stride < 0); /* a true floor */
  *out = steps + 1;
  return TC_OK;
}

int64_t tc_conv2d_out_dim(int64_t size, int64_t kernel, int64_t pad, int64_t stride) {
  tc_function_set(__func__);
  int64_t out;
  return out_dim(size, kernel, pad, stride, &out) == TC_OK ? out : INT64_MIN;
}

/* The product of the rules' values, as bytes; SIZE_MAX if one is negative, or if the product is too large. */
static size_t byte_product(const tc_size_rule *factors, size_t n) {
  if (tc_sizes_check(factors, n) != TC_OK) return SIZE_MAX;
  int64_t bytes = 1;
  for (size_t i = 0; i < n; i++) bytes = tc_count_mul(bytes, factors[i].value);
  if (bytes == TC_COUNT_HUGE) {
    tc_fail(TC_ERROR_SHAPE, "the product of the sizes is 2^63 bytes or more");
    return SIZE_MAX;
  }
  return (size_t)bytes;
}

size_t tc_conv2d_scratch_col_bytes(int64_t batch, int64_t in_channels, int64_t kH, int64_t kW, int64_t out_H, int64_t out_W) {
  tc_function_set(__func__);
  const tc_size_rule factors[] = {
      {"batch", batch, 0}, {"in_channels", in_channels, 0}, {"kH", kH, 0}, {"kW", kW, 0}, {"out_H", out_H, 0},
      {"out_W", out_W, 0}, {"bytes of f16", 2, 0}};
  return byte_product(factors, sizeof factors / sizeof *factors);
}

size_t tc_conv2d_scratch_dx_bytes(int64_t batch, int64_t in_channels, int64_t H, int64_t W) {
  tc_function_set(__func__);
  const tc_size_rule factors[] = {
      {"batch", batch, 0}, {"in_channels", in_channels, 0}, {"H", H, 0}, {"W", W, 0}, {"bytes of f32", 4, 0}};
  return byte_product(factors, sizeof factors / sizeof *factors);
}

/* ---- Checks ---- */

static tc_status_t check_enums(const tc_conv2d_desc *d) {
  TC_TRY(tc_enum_check("layout", d->layout, TC_LAYOUT_NHWC));
  TC_TRY(tc_enum_check("x_dtype", d->x_dtype, TC_DTYPE_BF16));
  TC_TRY(tc_enum_check("w_dtype", d->w_dtype, TC_DTYPE_BF16));
  TC_TRY(tc_enum_check("bias_dtype", d->bias_dtype, TC_DTYPE_BF16));
  TC_TRY(tc_enum_check("y_dtype", d->y_dtype, TC_DTYPE_BF16));
  TC_TRY(tc_enum_check("activation", d->activation, TC_ACTIVATION_RELU));
  TC_TRY(tc_enum_check("math_mode", d->math_mode, TC_MATH_FAST));
  TC_REQUIRE(d->reserved == 0, TC_ERROR_ARGUMENT, "reserved = %d must be 0", d->reserved);
  return TC_OK;
}

static tc_status_t check_sizes(const tc_conv2d_desc *d) {
  const tc_size_rule rules[] = {
      {"batch", d->batch, 0},
      {"in_channels", d->in_channels, 1},
      {"out_channels", d->out_channels, 1},
      {"H", d->H, 1},
      {"W", d->W, 1},
      {"kH", d->kH, 1},
      {"kW", d->kW, 1},
      {"pad_top", d->pad_top, 0},
      {"pad_bottom", d->pad_bottom, 0},
      {"pad_left", d->pad_left, 0},
      {"pad_right", d->pad_right, 0},
      {"stride_h", d->stride_h, 1},
      {"stride_w", d->stride_w, 1},
      {"dilation_h", d->dilation_h, 1},
      {"dilation_w", d->dilation_w, 1},
      {"groups", d->groups, 1},
      {"out_H", d->out_H, 1},
      {"out_W", d->out_W, 1},
  };
  TC_TRY(tc_sizes_check(rules, sizeof rules / sizeof *rules));
  TC_REQUIRE(d->in_channels % d->groups == 0, TC_ERROR_SHAPE, "in_channels = %lld is no multiple of groups = %lld",
             (long long)d->in_channels, (long long)d->groups);
  TC_REQUIRE(d->out_channels % d->groups == 0, TC_ERROR_SHAPE, "out_channels = %lld is no multiple of groups = %lld",
             (long long)d->out_channels, (long long)d->groups);
  return TC_OK;
}

static tc_status_t check_supported(const tc_conv2d_desc *d, bool f32_weight) {
  const struct {
    bool supported;
    const char *name;
    double value;
    const char *built;
  } rules[] = {
      {d->pad_top == d->pad_bottom, "pad_bottom", (double)d->pad_bottom, "the same as pad_top"},
      {d->pad_left == d->pad_right, "pad_right", (double)d->pad_right, "the same as pad_left"},
      {d->dilation_h == 1, "dilation_h", (double)d->dilation_h, "1"},
      {d->dilation_w == 1, "dilation_w", (double)d->dilation_w, "1"},
      {d->layout == TC_LAYOUT_NCHW, "layout", d->layout, "TC_LAYOUT_NCHW"},
      {d->x_dtype == TC_DTYPE_F16, "x_dtype", d->x_dtype, "TC_DTYPE_F16"},
      {d->w_dtype == TC_DTYPE_F16 || (d->w_dtype == TC_DTYPE_F32 && f32_weight), "w_dtype", d->w_dtype,
       "TC_DTYPE_F16 (and TC_DTYPE_F32 for dW)"},
      {d->bias_dtype == TC_DTYPE_F16, "bias_dtype", d->bias_dtype, "TC_DTYPE_F16"},
      {d->y_dtype == TC_DTYPE_F16, "y_dtype", d->y_dtype, "TC_DTYPE_F16"},
      {d->activation == TC_ACTIVATION_NONE, "activation", d->activation, "TC_ACTIVATION_NONE"},
      {d->alpha == 1.0f, "alpha", (double)d->alpha, "1"},
      {tc_is_zero(d->beta), "beta", (double)d->beta, "0"},
  };
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    TC_REQUIRE(rules[i].supported, TC_ERROR_UNSUPPORTED, "%s = %g is not built yet, %s is", rules[i].name, rules[i].value,
               rules[i].built);
  }
  return TC_OK;
}

/* One axis of the output, 'H' or 'W'. Paddings are equal and dilation is 1 here. */
static tc_status_t check_axis(char axis, int64_t size, int64_t kernel, int64_t pad, int64_t stride, int64_t given) {
  int64_t padded;
  TC_REQUIRE(padded_size(size, pad, &padded), TC_ERROR_SHAPE, "%c = %lld with paddings of %lld overflows", axis, (long long)size,
             (long long)pad);
  TC_REQUIRE(kernel <= padded, TC_ERROR_SHAPE, "k%c = %lld is larger than the padded input, whose %c is %lld", axis,
             (long long)kernel, axis, (long long)padded);
  const int64_t needed = (padded - kernel) / stride + 1;
  TC_REQUIRE(given == needed, TC_ERROR_SHAPE, "out_%c = %lld is wrong, (padded %c - k%c)/stride_%c + 1 = %lld is needed", axis,
             (long long)given, axis, axis, axis == 'H' ? 'h' : 'w', (long long)needed);
  return TC_OK;
}

static int64_t product(int64_t a, int64_t b, int64_t c, int64_t d) { return tc_count_mul(tc_count_mul(a, b), tc_count_mul(c, d)); }

/* All of a problem but its operands. f32_weight: the call can have a w_dtype of F32. */
static tc_status_t check(const tc_conv2d_desc *d, bool f32_weight) {
  TC_TRY(check_enums(d));
  TC_TRY(check_sizes(d));
  TC_TRY(check_supported(d, f32_weight));
  TC_TRY(check_axis('H', d->H, d->kH, d->pad_top, d->stride_h, d->out_H));
  TC_TRY(check_axis('W', d->W, d->kW, d->pad_left, d->stride_w, d->out_W));
  /* So that the size of one image fits also where batch = 0 says nothing about it. */
  TC_REQUIRE(product(1, d->in_channels, d->H, d->W) != TC_COUNT_HUGE, TC_ERROR_SHAPE, "in_channels*H*W is 2^63 or more");
  TC_REQUIRE(product(1, d->out_channels, d->out_H, d->out_W) != TC_COUNT_HUGE, TC_ERROR_SHAPE,
             "out_channels*out_H*out_W is 2^63 or more");
  return TC_OK;
}

/* ---- Operands ---- */

static tc_operand operand_x(const tc_conv2d_desc *d, const char *name, const tc_buffer *buffer, bool written) {
  return tc_tensor(name, buffer, "batch*in_channels*H*W", product(d->batch, d->in_channels, d->H, d->W), "x_offset", d->x_offset,
                   d->x_dtype, written);
}

static tc_operand operand_y(const tc_conv2d_desc *d, const char *name, const tc_buffer *buffer, bool written) {
  return tc_tensor(name, buffer, "batch*out_channels*out_H*out_W", product(d->batch, d->out_channels, d->out_H, d->out_W),
                   "y_offset", d->y_offset, d->y_dtype, written);
}

static tc_operand operand_weight(const tc_conv2d_desc *d, const char *name, const tc_buffer *buffer, bool written) {
  const char *formula = d->groups == 1 ? "out_channels*in_channels*kH*kW" : "out_channels*(in_channels/groups)*kH*kW";
  return tc_tensor(name, buffer, formula, product(d->out_channels, d->in_channels / d->groups, d->kH, d->kW), "w_offset",
                   d->w_offset, d->w_dtype, written);
}

static tc_operand operand_bias(const tc_conv2d_desc *d, const tc_buffer *buffer) {
  tc_operand bias = tc_tensor("bias", buffer, "out_channels", d->out_channels, "bias_offset", d->bias_offset, d->bias_dtype, false);
  bias.optional = true;
  return bias;
}

static tc_operand operand_scratch(const char *name, const tc_buffer *buffer, const char *formula, int64_t elements, int64_t size) {
  return (tc_operand){.name = name,
                      .buffer = buffer,
                      .formula = formula,
                      .elements = elements,
                      .element_size = size,
                      .alignment = 4,
                      .written = true,
                      .optional = true};
}

static tc_operand operand_scratch_col(const tc_conv2d_desc *d, const tc_buffer *buffer) {
  const int64_t elements = tc_count_mul(product(d->batch, d->in_channels, d->kH, d->kW), tc_count_mul(d->out_H, d->out_W));
  return operand_scratch("scratch_col", buffer, "batch*in_channels*kH*kW*out_H*out_W", elements, 2);
}

static tc_operand operand_scratch_dx(const tc_conv2d_desc *d, const tc_buffer *buffer) {
  return operand_scratch("scratch_dX_f32", buffer, "batch*in_channels*H*W", product(d->batch, d->in_channels, d->H, d->W), 4);
}

static double flops(const tc_conv2d_desc *d) {
  return 2.0 * (double)d->batch * (double)d->out_channels * (double)d->out_H * (double)d->out_W *
         (double)(d->in_channels / d->groups) * (double)d->kH * (double)d->kW;
}

static void trace(const tc_context *ctx, double start, const tc_conv2d_desc *d) {
  tc_trace(ctx, start, flops(d),
           "batch=%lld,in_channels=%lld,out_channels=%lld,H=%lld,W=%lld,kH=%lld,kW=%lld,pad_h=%lld,pad_w=%lld,stride_h=%lld,"
           "stride_w=%lld,groups=%lld",
           (long long)d->batch, (long long)d->in_channels, (long long)d->out_channels, (long long)d->H, (long long)d->W,
           (long long)d->kH, (long long)d->kW, (long long)d->pad_top, (long long)d->pad_left, (long long)d->stride_h,
           (long long)d->stride_w, (long long)d->groups);
}

/* ---- The three directions ---- */

static tc_status_t forward(tc_context *ctx, const tc_conv2d_desc *desc, const tc_buffer *X, const tc_buffer *weight,
                           const tc_buffer *bias, tc_buffer *Y, tc_buffer *scratch_col) {
  tc_conv2d_desc d;
  TC_TRY(tc_struct_read("desc", desc, &d, sizeof d));
  TC_TRY(check(&d, false));
  const tc_operand operands[] = {operand_x(&d, "X", X, false), operand_weight(&d, "weight", weight, false), operand_bias(&d, bias),
                                 operand_y(&d, "Y", Y, true), operand_scratch_col(&d, scratch_col)};
  TC_TRY(tc_operands_check(ctx, operands, sizeof operands / sizeof *operands));
  const double start = tc_trace_now(ctx);
  if (d.batch) TC_TRY(ctx->backend->conv2d_forward(ctx->state, &d, X, weight, bias, Y, scratch_col));
  trace(ctx, start, &d);
  return TC_OK;
}

static tc_status_t backward_input(tc_context *ctx, const tc_conv2d_desc *desc, const tc_buffer *dY, const tc_buffer *weight,
                                  tc_buffer *dX, tc_buffer *scratch_col, tc_buffer *scratch_dX_f32) {
  tc_conv2d_desc d;
  TC_TRY(tc_struct_read("desc", desc, &d, sizeof d));
  TC_TRY(check(&d, false));
  const tc_operand operands[] = {operand_y(&d, "dY", dY, false), operand_weight(&d, "weight", weight, false),
                                 operand_x(&d, "dX", dX, true), operand_scratch_col(&d, scratch_col),
                                 operand_scratch_dx(&d, scratch_dX_f32)};
  TC_TRY(tc_operands_check(ctx, operands, sizeof operands / sizeof *operands));
  const double start = tc_trace_now(ctx);
  if (d.batch) TC_TRY(ctx->backend->conv2d_backward_input(ctx->state, &d, dY, weight, dX, scratch_col, scratch_dX_f32));
  trace(ctx, start, &d);
  return TC_OK;
}

static tc_status_t backward_weight(tc_context *ctx, const tc_conv2d_desc *desc, const tc_buffer *X, const tc_buffer *dY,
                                   tc_buffer *dW, tc_buffer *scratch_col) {
  tc_conv2d_desc d;
  TC_TRY(tc_struct_read("desc", desc, &d, sizeof d));
  TC_TRY(check(&d, true));
  const tc_operand operands[] = {operand_x(&d, "X", X, false), operand_y(&d, "dY", dY, false), operand_weight(&d, "dW", dW, true),
                                 operand_scratch_col(&d, scratch_col)};
  TC_TRY(tc_operands_check(ctx, operands, sizeof operands / sizeof *operands));
  const double start = tc_trace_now(ctx);
  TC_TRY(ctx->backend->conv2d_backward_weight(ctx->state, &d, X, dY, dW, scratch_col));
  trace(ctx, start, &d);
  return TC_OK;
}

tc_status_t tc_conv2d_forward_desc(tc_context *ctx, const tc_conv2d_desc *desc, const tc_buffer *X, const tc_buffer *weight,
                                   const tc_buffer *bias, tc_buffer *Y, tc_buffer *scratch_col) {
  TC_TRY(tc_enter(__func__, ctx));
  return tc_leave(ctx, forward(ctx, desc, X, weight, bias, Y, scratch_col));
}

tc_status_t tc_conv2d_backward_input_desc(tc_context *ctx, const tc_conv2d_desc *desc, const tc_buffer *dY, const tc_buffer *weight,
                                          tc_buffer *dX, tc_buffer *scratch_col, tc_buffer *scratch_dX_f32) {
  TC_TRY(tc_enter(__func__, ctx));
  return tc_leave(ctx, backward_input(ctx, desc, dY, weight, dX, scratch_col, scratch_dX_f32));
}

tc_status_t tc_conv2d_backward_weight_desc(tc_context *ctx, const tc_conv2d_desc *desc, const tc_buffer *X, const tc_buffer *dY,
                                           tc_buffer *dW, tc_buffer *scratch_col) {
  TC_TRY(tc_enter(__func__, ctx));
  return tc_leave(ctx, backward_weight(ctx, desc, X, dY, dW, scratch_col));
}

/* ---- The positional calls ---- */

/* The sizes of a positional call, in its order. */
typedef struct positional {
  int64_t batch, in_channels, out_channels, H, W, kH, kW, pad_h, pad_w, stride_h, stride_w, out_H, out_W;
} positional;

/* A descriptor for them. Paddings are checked here, where they still have the caller's names. */
static tc_status_t describe(const positional *p, tc_conv2d_desc *out) {
  const tc_size_rule paddings[] = {{"pad_h", p->pad_h, 0}, {"pad_w", p->pad_w, 0}};
  TC_TRY(tc_sizes_check(paddings, sizeof paddings / sizeof *paddings));
  *out = (tc_conv2d_desc)TC_CONV2D_DESC_INIT;
  out->batch = p->batch;
  out->in_channels = p->in_channels;
  out->out_channels = p->out_channels;
  out->H = p->H;
  out->W = p->W;
  out->kH = p->kH;
  out->kW = p->kW;
  out->pad_top = out->pad_bottom = p->pad_h;
  out->pad_left = out->pad_right = p->pad_w;
  out->stride_h = p->stride_h;
  out->stride_w = p->stride_w;
  out->out_H = p->out_H;
  out->out_W = p->out_W;
  return TC_OK;
}

tc_status_t tc_conv2d_forward(tc_context *ctx, const tc_buffer *X, const tc_buffer *weight, const tc_buffer *bias, tc_buffer *Y,
                              tc_buffer *scratch_col, int64_t batch, int64_t in_channels, int64_t out_channels, int64_t H,
                              int64_t W, int64_t kH, int64_t kW, int64_t pad_h, int64_t pad_w, int64_t stride_h, int64_t stride_w,
                              int64_t out_H, int64_t out_W) {
  TC_TRY(tc_enter(__func__, ctx));
  tc_conv2d_desc d;
  const positional sizes = {batch, in_channels, out_channels, H, W, kH, kW, pad_h, pad_w, stride_h, stride_w, out_H, out_W};
  tc_status_t status = describe(&sizes, &d);
  if (status == TC_OK) status = forward(ctx, &d, X, weight, bias, Y, scratch_col);
  return tc_leave(ctx, status);
}

tc_status_t tc_conv2d_backward_input(tc_context *ctx, const tc_buffer *dY, const tc_buffer *weight, tc_buffer *dX,
                                     tc_buffer *scratch_col, tc_buffer *scratch_dX_f32, int64_t batch, int64_t in_channels,
                                     int64_t out_channels, int64_t H, int64_t W, int64_t kH, int64_t kW, int64_t pad_h,
                                     int64_t pad_w, int64_t stride_h, int64_t stride_w, int64_t out_H, int64_t out_W) {
  TC_TRY(tc_enter(__func__, ctx));
  tc_conv2d_desc d;
  const positional sizes = {batch, in_channels, out_channels, H, W, kH, kW, pad_h, pad_w, stride_h, stride_w, out_H, out_W};
  tc_status_t status = describe(&sizes, &d);
  if (status == TC_OK) status = backward_input(ctx, &d, dY, weight, dX, scratch_col, scratch_dX_f32);
  return tc_leave(ctx, status);
}

tc_status_t tc_conv2d_backward_weight(tc_context *ctx, const tc_buffer *X, const tc_buffer *dY, tc_buffer *dW,
                                      tc_buffer *scratch_col, int64_t batch, int64_t in_channels, int64_t out_channels, int64_t H,
                                      int64_t W, int64_t kH, int64_t kW, int64_t pad_h, int64_t pad_w, int64_t stride_h,
                                      int64_t stride_w, int64_t out_H, int64_t out_W) {
  TC_TRY(tc_enter(__func__, ctx));
  tc_conv2d_desc d;
  const positional sizes = {batch, in_channels, out_channels, H, W, kH, kW, pad_h, pad_w, stride_h, stride_w, out_H, out_W};
  tc_status_t status = describe(&sizes, &d);
  if (status == TC_OK) status = backward_weight(ctx, &d, X, dY, dW, scratch_col);
  return tc_leave(ctx, status);
}
