/* SPDX-License-Identifier: MIT */
#include "metal/plan_steps.h"

#include "backend.h"
#include "status.h"

/* ---- Kernels: in the order of tc_plan_tiles ---- */

#define NAMES(M, N, K, simdgroups_m, simdgroups_n)                                                 \
  {"tc_conv2d_forward_pointwise_" #M "x" #N,         "tc_conv2d_forward_window_" #M "x" #N,        \
   "tc_conv2d_backward_input_pointwise_" #M "x" #N,  "tc_conv2d_backward_input_window_" #M "x" #N, \
   "tc_conv2d_backward_weight_pointwise_" #M "x" #N, "tc_conv2d_backward_weight_window_" #M "x" #N},
enum { FORWARD_POINTWISE, FORWARD_WINDOW, INPUT_POINTWISE, INPUT_WINDOW, WEIGHT_POINTWISE, WEIGHT_WINDOW, KINDS };
static const char *const kernels[][KINDS] = {TC_TILES(NAMES)};
#undef NAMES

/* ---- The problem ---- */

/* A convolution's sizes as kernels see them. */
typedef struct conv2d {
  tc_plan_builder b;
  const tc_conv2d_desc *d;
  uint64_t pixels, plane;                           /* of Y, of X */
  uint64_t taps, in_channels, out_channels, groups; /* channels: of a group */
  uint64_t stride_h, stride_w;
  bool pointwise; /* one tap that sees each pixel once: X is the im2col matrix itself */
} conv2d;

/* Along an axis with one output the stride has no meaning. There it is at most the kernel, so that no phase is without taps. */
static uint64_t stride_of(int64_t stride, int64_t kernel, int64_t out) {
  return (uint64_t)(out == 1 && stride > kernel ? kernel : stride);
}

static conv2d describe(const tc_plan_device *device, const tc_conv2d_desc *d, tc_plan *plan) {
  const uint64_t groups = (uint64_t)d->groups;
  conv2d c = {
      .b = tc_plan_begin(device, plan),
      .d = d,
      .pixels = (uint64_t)d->out_H * (uint64_t)d->out_W,
      .plane = (uint64_t)d->H * (uint64_t)d->W,
      .in_channels = (uint64_t)d->in_channels / groups,
      .out_channels = (uint64_t)d->out_channels / groups,
      .groups = groups,
      .stride_h = stride_of(d->stride_h, d->kH, d->out_H),
      .stride_w = stride_of(d->stride_w, d->kW, d->out_W),
  };
  c.taps = (uint64_t)d->kH * (uint64_t)d->kW;
  c.pointwise = c.taps == 1 && c.pixels == c.plane && d->pad_top == 0 && d->pad_left == 0;
  plan->path = "implicit";
  return c;
}

/* What is used inside of a tile has 32 bits. */
static tc_status_t check_limits(const conv2d *c) {
  const tc_conv2d_desc *d = c->d;
  const struct {
    const char *name;
    double value, limit;
  } rules[] = {
      {"H + 2*pad_top", (double)d->H + 2 * (double)d->pad_top, INT32_MAX},
      {"W + 2*pad_left", (double)d->W + 2 * (double)d->pad_left, INT32_MAX},
      {"H*W", (double)d->H * (double)d->W, INT32_MAX},
      {"kH*kW", (double)d->kH * (double)d->kW, INT32_MAX},
      {"out_H*out_W", (double)d->out_H * (double)d->out_W, INT32_MAX},
      {"groups", (double)d->groups, INT32_MAX},
      {"in_channels/groups*H*W", (double)c->in_channels * (double)c->plane, UINT32_MAX},
      {"out_channels/groups*out_H*out_W", (double)c->out_channels * (double)c->pixels, UINT32_MAX},
      {"in_channels/groups*kH*kW", (double)c->in_channels * (double)c->taps, INT32_MAX},
      {"out_channels/groups*kH*kW", (double)c->out_channels * (double)c->taps, INT32_MAX},
      {"in_channels*kH*kW", (double)d->in_channels * (double)c->taps, INT32_MAX},
  };
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    TC_REQUIRE(rules[i].value <= rules[i].limit, TC_ERROR_UNSUPPORTED, "%s = %.0f is more than Metal kernels can address, %.0f",
               rules[i].name, rules[i].value, rules[i].limit);
  }
  return TC_OK;
}

static tc_conv2d_params params_of(const conv2d *c) {
  const tc_conv2d_desc *d = c->d;
  return (tc_conv2d_params){
      .parts = 1,
      .x_offset = (uint64_t)d->x_offset,
      .x_image = (uint64_t)d->in_channels * c->plane,
      .x_group = c->in_channels * c->plane,
      .x_channel = c->plane,
      .y_offset = (uint64_t)d->y_offset,
      .y_image = (uint64_t)d->out_channels * c->pixels,
      .y_group = c->out_channels * c->pixels,
      .y_channel = c->pixels,
      .w_offset = (uint64_t)d->w_offset,
      .w_group = c->out_channels * c->in_channels * c->taps,
      .w_channel = c->in_channels * c->taps,
      .bias_offset = (uint64_t)d->bias_offset,
      .images = (uint64_t)d->batch,
      .groups = (uint32_t)c->groups,
      .in_channels = (uint32_t)c->in_channels,
      .out_channels = (uint32_t)c->out_channels,
      .H = (int32_t)d->H,
      .W = (int32_t)d->W,
      .kH = (int32_t)d->kH,
      .kW = (int32_t)d->kW,
      .out_H = (int32_t)d->out_H,
      .out_W = (int32_t)d->out_W,
      .pad_h = (int32_t)d->pad_top,
      .pad_w = (int32_t)d->pad_left,
      .stride_h = (int32_t)c->stride_h,
      .stride_w = (int32_t)c->stride_w,
  };
}

/* Puts an im2col matrix, in scratch_col, in the place of X: the problem is pointwise then. rows: how many the matrix has. */
static void use_col(const conv2d *c, tc_conv2d_params *params, uint64_t rows) {
  params->x_offset = 0;
  params->x_image = rows * c->pixels;
  params->x_group = c->in_channels * c->taps * c->pixels;
  params->x_channel = c->pixels;
  params->H = params->out_H;
  params->W = params->out_W;
  params->kH = params->kW = params->stride_h = params->stride_w = 1;
  params->pad_h = params->pad_w = 0;
}

/* ---- Steps of tiles ---- */

/* One step of tiles, and what follows if sums are cut. */
typedef struct tiles_step {
  int kind;
  tc_plan_product product;
  tc_plan_parts parts;
  const tc_plan_tile *tile;
  tc_conv2d_params params;
  bool vectors_a, vectors_b, f32_output;
  uint32_t output_index; /* TC_BUFFER_X, ... */
  tc_plan_role output;
  uint64_t partials; /* where in the workspace */
  double slowdown;
} tiles_step;

static bool by_four(uint64_t size, uint64_t offset) { return size % 4 == 0 && offset % 4 == 0; }

/* Begins a step. parts: how the sums are cut; NULL: for as many threadgroups as the device wants. */
static tiles_step tiles_make(const conv2d *c, int kind, tc_plan_product product, const tc_plan_parts *parts) {
  const tc_plan_tile *tile = tc_plan_tile_choose(c->b.device, &product, parts ? parts->parts : 1);
  tiles_step t = {
      .kind = kind,
      .product = product,
      .tile = tile,
      .parts = parts ? *parts : tc_plan_parts_even(c->b.device, &product, tile),
      .params = params_of(c),
      .slowdown = 1,
  };
  t.params.M = product.M;
  t.params.N = product.N;
  t.params.K = product.K;
  t.params.part = t.parts.part;
  t.params.parts = t.parts.parts;
  return t;
}

static tc_status_t reserve_partials(const conv2d *c, tiles_step *t) {
  const tc_plan_product *p = &t->product;
  return t->parts.parts == 1 ? TC_OK : tc_plan_reserve(&c->b, 4 * p->M * p->N * p->items * t->parts.parts, &t->partials);
}

static tc_plan_step step_of_tiles(const conv2d *c, const tiles_step *t) {
  const bool split = t->parts.parts > 1;
  tc_plan_step step = tc_plan_step_make(kernels[t->tile - tc_plan_tiles][t->kind]);
  tc_plan_params_set(&step, &t->params, sizeof t->params);
  tc_plan_constant_add(&step, TC_CONSTANT_LONG_SUMS, t->parts.part > TC_SUM_PRODUCTS);
  tc_plan_constant_add(&step, TC_CONSTANT_VECTORS_A, t->vectors_a);
  tc_plan_constant_add(&step, TC_CONSTANT_VECTORS_B, t->vectors_b);
  tc_plan_constant_add(&step, TC_CONSTANT_F32_OUTPUT, t->f32_output);
  tc_plan_constant_add(&step, TC_CONSTANT_FEW_TAPS, c->taps <= TC_FEW_TAPS);
  tc_plan_constant_add(&step, TC_CONSTANT_SPLIT, split);
  tc_plan_constant_add(&step, TC_CONSTANT_ROUND_IN_BITS, c->b.device->round_in_bits);
  if (split) {
    tc_plan_bind_workspace(&step, t->output_index, t->partials, true);
  } else {
    tc_plan_bind(&step, t->output_index, t->output, true);
  }
  return step;
}

/* The step that adds parts; also binds nothing but the partials and the output. */
static tc_plan_step step_of_reduction(const conv2d *c, const tiles_step *t, const char *kernel) {
  tc_plan_step step = tc_plan_step_make(kernel);
  tc_plan_params_set(&step, &t->params, sizeof t->params);
  tc_plan_constant_add(&step, TC_CONSTANT_F32_OUTPUT, t->f32_output);
  tc_plan_constant_add(&step, TC_CONSTANT_ROUND_IN_BITS, c->b.device->round_in_bits);
  tc_plan_bind_workspace(&step, TC_BUFFER_PARTIALS, t->partials, false);
  tc_plan_bind(&step, t->output_index, t->output, true);
  return step;
}

static tc_status_t emit_tiles(const conv2d *c, const tiles_step *t, const tc_plan_step *step) {
  return tc_plan_emit_tiles(&c->b, step, &t->product, t->tile, &t->parts, t->slowdown);
}

/* Nothing if sums aren't cut. */
static tc_status_t emit_reduction(const conv2d *c, const tiles_step *t, const tc_plan_step *step) {
  if (t->parts.parts == 1) return TC_OK;
  const tc_plan_product *p = &t->product;
  return tc_plan_emit_elements(&c->b, step, p->N, p->M, p->items, 4 * (double)t->parts.parts + 4);
}

/* ---- Steps of elements ---- */

/* im2col and col2im: rows of the matrix for the pixels of images from one on. x: the tensor that is read or written. */
static tc_status_t emit_col(const conv2d *c, const char *kernel, const tc_conv2d_params *params, tc_plan_role x, bool scatter,
                            double bytes) {
  tc_plan_step step = tc_plan_step_make(kernel);
  tc_plan_params_set(&step, params, sizeof *params);
  tc_plan_bind(&step, TC_BUFFER_X, x, scatter);
  tc_plan_bind(&step, TC_BUFFER_Y, TC_ROLE_SCRATCH_COL, !scatter);
  const tc_plan_grid grid = {tc_plan_ceil(params->N, TC_RUN_THREADS), tc_plan_ceil(params->M, TC_COL_ROWS), 1, {TC_RUN_THREADS, 1}};
  const double elements = (double)TC_RUN_THREADS * TC_COL_ROWS;
  return tc_plan_emit(&c->b, &step, grid, (tc_plan_cost){0, 20 * elements / 32, bytes * elements});
}

/* The matrix of all images, in scratch_col. */
static tc_status_t emit_im2col(const conv2d *c) {
  const uint64_t rows = (uint64_t)c->d->in_channels * c->taps;
  tc_conv2d_params params = params_of(c);
  params.M = rows;
  params.N = (uint64_t)c->d->batch * c->pixels;
  params.y_offset = 0;
  params.y_image = rows * c->pixels;
  params.y_channel = c->pixels;
  c->b.plan->path = "col";
  return emit_col(c, "tc_conv2d_im2col", &params, TC_ROLE_X, false, 4);
}

static tc_status_t emit_run(const conv2d *c, tc_plan_step *step, tc_run_params params, double bytes) {
  tc_plan_params_set(step, &params, sizeof params);
  const tc_plan_grid grid = {tc_plan_ceil(params.count, TC_RUN_ELEMENTS), 1, 1, {TC_RUN_THREADS, 1}};
  return tc_plan_emit(&c->b, step, grid, (tc_plan_cost){0, 8 * TC_RUN_ELEMENTS / 32, bytes * TC_RUN_ELEMENTS});
}

/* Zeros in an operand, or (role WORKSPACE, f32) at the beginning of the workspace. */
static tc_status_t emit_zero(const conv2d *c, tc_plan_role role, tc_run_params params, bool f32) {
  tc_plan_step step = tc_plan_step_make("tc_zero");
  tc_plan_constant_add(&step, TC_CONSTANT_F32_OUTPUT, f32);
  tc_plan_constant_add(&step, TC_CONSTANT_ROUND_IN_BITS, false);
  tc_plan_bind(&step, TC_BUFFER_Y, role, true);
  return emit_run(c, &step, params, 4);
}

/* ---- Forward ---- */

tc_status_t tc_plan_conv2d_forward(const tc_plan_device *device, const tc_conv2d_desc *d, const tc_plan_request *request,
                                   tc_plan *plan) {
  const conv2d c = describe(device, d, plan);
  TC_TRY(check_limits(&c));
  const bool col = request->path == TC_CONV_PATH_COL && request->scratch_col && !c.pointwise;
  const tc_plan_product product = {
      .M = c.out_channels, .N = (uint64_t)d->batch * c.pixels, .K = c.in_channels * c.taps, .items = c.groups};
  tiles_step t = tiles_make(&c, col || c.pointwise ? FORWARD_POINTWISE : FORWARD_WINDOW, product, NULL);
  t.output_index = TC_BUFFER_Y;
  t.output = TC_ROLE_Y;
  if (col) {
    TC_TRY(emit_im2col(&c));
    use_col(&c, &t.params, (uint64_t)d->in_channels * c.taps);
  }
  t.vectors_a = by_four(product.K, t.params.w_offset);
  t.vectors_b = by_four(c.pixels, t.params.x_offset);
  TC_TRY(reserve_partials(&c, &t));
  tc_plan_step step = step_of_tiles(&c, &t), reduction = step_of_reduction(&c, &t, "tc_conv2d_forward_reduce");
  tc_plan_bind(&step, TC_BUFFER_X, col ? TC_ROLE_SCRATCH_COL : TC_ROLE_X, false);
  tc_plan_bind(&step, TC_BUFFER_W, TC_ROLE_WEIGHT, false);
  tc_plan_step *const both[] = {&step, &reduction};
  for (int i = 0; i < 2; i++) { /* where there is no bias, something must stand in its place */
    tc_plan_constant_add(both[i], TC_CONSTANT_ADD_BIAS, request->bias);
    tc_plan_bind(both[i], TC_BUFFER_BIAS, request->bias ? TC_ROLE_BIAS : TC_ROLE_WEIGHT, false);
  }
  TC_TRY(emit_tiles(&c, &t, &step));
  return emit_reduction(&c, &t, &reduction);
}

/* ---- Gradient of the input ---- */

/* A pointwise product that writes X, or the rows of dCol that stand in its place. */
static tc_status_t emit_input_pointwise(const conv2d *c, tiles_step *t) {
  t->output_index = TC_BUFFER_X;
  t->vectors_a = by_four(t->params.w_channel, t->params.w_offset) && t->product.M % 4 == 0;
  t->vectors_b = by_four(c->pixels, t->params.y_offset);
  tc_plan_step step = step_of_tiles(c, t);
  tc_plan_constant_add(&step, TC_CONSTANT_ADD_BIAS, false);
  tc_plan_bind(&step, TC_BUFFER_W, TC_ROLE_WEIGHT, false);
  tc_plan_bind(&step, TC_BUFFER_Y, TC_ROLE_Y, false);
  TC_TRY(emit_tiles(c, t, &step));
  const tc_plan_step reduction = step_of_reduction(c, t, "tc_conv2d_backward_input_reduce");
  return emit_reduction(c, t, &reduction);
}

static tc_status_t plan_input_pointwise(const conv2d *c) {
  const tc_plan_product product = {
      .M = c->in_channels, .N = (uint64_t)c->d->batch * c->pixels, .K = c->out_channels, .items = c->groups};
  tiles_step t = tiles_make(c, INPUT_POINTWISE, product, NULL);
  t.output = TC_ROLE_X;
  TC_TRY(reserve_partials(c, &t));
  return emit_input_pointwise(c, &t);
}

/* A part of dCol that fits into scratch_col in fp32: images, or of one image groups, or of one group rows. */
typedef struct col_slice {
  uint64_t image, images;
  uint64_t group, groups;
  uint64_t row, rows; /* of a group */
} col_slice;

/* Room for dCol is half of the matrix in fp16. No slice has more than *most; images that don't fit leave groups, and so on. False: not
 * even a row fits. */
static bool slice_most(const conv2d *c, col_slice *most) {
  const uint64_t group_rows = c->in_channels * c->taps, rows = (uint64_t)c->d->batch * c->groups * group_rows / 2;
  *most = (col_slice){.images = tc_plan_max(1, rows / (c->groups * group_rows)), .groups = c->groups, .rows = group_rows};
  if (rows < c->groups * group_rows) most->groups = tc_plan_max(1, rows / group_rows);
  if (rows < group_rows) most->rows = rows;
  return rows > 0;
}

static tc_status_t emit_slice(const conv2d *c, const col_slice *s) {
  const uint64_t group_rows = c->in_channels * c->taps, first_group = s->group;
  const tc_plan_product product = {.M = s->rows, .N = s->images * c->pixels, .K = c->out_channels, .items = s->groups};
  const tc_plan_parts uncut = {product.K, 1};
  tiles_step t = tiles_make(c, INPUT_POINTWISE, product, &uncut);
  t.output = TC_ROLE_SCRATCH_COL;
  t.f32_output = true;
  use_col(c, &t.params, s->groups * s->rows);
  t.params.w_offset += first_group * t.params.w_group + s->row;
  t.params.y_offset += s->image * t.params.y_image + first_group * t.params.y_group;
  TC_TRY(emit_input_pointwise(c, &t));

  tc_conv2d_params scatter = params_of(c);
  scatter.M = s->groups * s->rows;
  scatter.N = product.N;
  scatter.first_row = (uint32_t)(first_group * group_rows + s->row);
  scatter.x_offset = s->image * scatter.x_image;
  scatter.y_offset = 0;
  scatter.y_image = scatter.M * c->pixels;
  scatter.y_channel = c->pixels;
  return emit_col(c, "tc_conv2d_col2im", &scatter, TC_ROLE_SCRATCH_DX, true, 12);
}

static tc_status_t plan_input_col(const conv2d *c, const col_slice *most) {
  const uint64_t images = (uint64_t)c->d->batch, group_rows = c->in_channels * c->taps;
  const uint64_t elements = images * (uint64_t)c->d->in_channels * c->plane;
  c->b.plan->path = "col";
  TC_TRY(emit_zero(c, TC_ROLE_SCRATCH_DX, (tc_run_params){.count = elements}, true));
  col_slice s;
  for (s.image = 0; s.image < images; s.image += most->images) {
    s.images = tc_plan_min(most->images, images - s.image);
    for (s.group = 0; s.group < c->groups; s.group += most->groups) {
      s.groups = tc_plan_min(most->groups, c->groups - s.group);
      for (s.row = 0; s.row < group_rows; s.row += most->rows) {
        s.rows = tc_plan_min(most->rows, group_rows - s.row);
        TC_TRY(emit_slice(c, &s));
      }
    }
  }
  tc_plan_step step = tc_plan_step_make("tc_round");
  tc_plan_constant_add(&step, TC_CONSTANT_ROUND_IN_BITS, c->b.device->round_in_bits);
  tc_plan_bind(&step, TC_BUFFER_X, TC_ROLE_SCRATCH_DX, false);
  tc_plan_bind(&step, TC_BUFFER_Y, TC_ROLE_X, true);
  return emit_run(c, &step, (tc_run_params){.count = elements, .offset = (uint64_t)c->d->x_offset}, 6);
}

/* The workspace of the gathered gradient: the flag, the packed weights, partials. */
static tc_status_t emit_pack(const conv2d *c, uint64_t *packed) {
  uint64_t flag;
  const uint64_t rows = (uint64_t)c->d->out_channels, columns = c->in_channels * c->taps;
  TC_TRY(tc_plan_reserve(&c->b, sizeof(uint32_t), &flag));
  TC_TRY(tc_plan_reserve(&c->b, 2 * rows * columns, packed));
  TC_TRY(emit_zero(c, TC_ROLE_WORKSPACE, (tc_run_params){.count = 1}, true));
  tc_conv2d_params params = params_of(c);
  params.M = rows;
  params.N = columns;
  tc_plan_step step = tc_plan_step_make("tc_conv2d_backward_input_pack");
  tc_plan_params_set(&step, &params, sizeof params);
  tc_plan_bind(&step, TC_BUFFER_W, TC_ROLE_WEIGHT, false);
  tc_plan_bind_workspace(&step, TC_BUFFER_PACKED, *packed, true);
  tc_plan_bind_workspace(&step, TC_BUFFER_FLAG, flag, true);
  return tc_plan_emit_elements(&c->b, &step, columns, rows, 1, 4);
}

/* Of all phases of the stride in one step; the largest one gives the grid. */
static tc_status_t plan_input_window(const conv2d *c) {
  const tc_conv2d_desc *d = c->d;
  const uint64_t H = (uint64_t)d->H, W = (uint64_t)d->W, phases = tc_plan_min(c->stride_h, H) * tc_plan_min(c->stride_w, W);
  const tc_plan_product product = {
      .M = c->in_channels,
      .N = (uint64_t)d->batch * tc_plan_ceil(H, c->stride_h) * tc_plan_ceil(W, c->stride_w),
      .K = c->out_channels * tc_plan_ceil((uint64_t)d->kH, c->stride_h) * tc_plan_ceil((uint64_t)d->kW, c->stride_w),
      .items = c->groups * phases,
  };
  uint64_t packed;
  TC_TRY(emit_pack(c, &packed));
  tiles_step t = tiles_make(c, INPUT_WINDOW, product, NULL);
  t.output_index = TC_BUFFER_X;
  t.output = TC_ROLE_X;
  t.vectors_a = c->out_channels % 4 == 0;
  t.slowdown = 11; /* the loop over pairs, where a weight is not finite */
  TC_TRY(reserve_partials(c, &t));
  tc_plan_step step = step_of_tiles(c, &t);
  tc_plan_constant_add(&step, TC_CONSTANT_ADD_BIAS, false);
  tc_plan_bind_workspace(&step, TC_BUFFER_PACKED, packed, false);
  tc_plan_bind_workspace(&step, TC_BUFFER_FLAG, 0, false);
  tc_plan_bind(&step, TC_BUFFER_Y, TC_ROLE_Y, false);
  TC_TRY(emit_tiles(c, &t, &step));
  const tc_plan_step reduction = step_of_reduction(c, &t, "tc_conv2d_backward_input_reduce");
  return emit_reduction(c, &t, &reduction);
}

tc_status_t tc_plan_conv2d_backward_input(const tc_plan_device *device, const tc_conv2d_desc *d, const tc_plan_request *request,
                                          tc_plan *plan) {
  const conv2d c = describe(device, d, plan);
  TC_TRY(check_limits(&c));
  if (c.pointwise) return plan_input_pointwise(&c);
  /* col2im adds to a pixel once for each tap that saw it, and not more often than a sum may. */
  const uint64_t hits = tc_plan_ceil((uint64_t)d->kH, c.stride_h) * tc_plan_ceil((uint64_t)d->kW, c.stride_w);
  col_slice most;
  const bool col = request->path == TC_CONV_PATH_COL && request->scratch_col && request->scratch_dx &&
                   d->math_mode != TC_MATH_DETERMINISTIC && hits <= TC_SUM_PRODUCTS && slice_most(&c, &most);
  return col ? plan_input_col(&c, &most) : plan_input_window(&c);
}

/* ---- Gradient of the weight ---- */

tc_status_t tc_plan_conv2d_backward_weight(const tc_plan_device *device, const tc_conv2d_desc *d, const tc_plan_request *request,
                                           tc_plan *plan) {
  const conv2d c = describe(device, d, plan);
  const bool f32 = d->w_dtype == TC_DTYPE_F32, col = request->path == TC_CONV_PATH_COL && request->scratch_col && !c.pointwise;
  const uint64_t columns = c.in_channels * c.taps;
  if (d->batch == 0) {
    const tc_run_params all = {.count = (uint64_t)d->out_channels * columns, .offset = (uint64_t)d->w_offset};
    return emit_zero(&c, TC_ROLE_WEIGHT, all, f32);
  }
  TC_TRY(check_limits(&c));
  const tc_plan_product product = {.M = c.out_channels, .N = columns, .K = (uint64_t)d->batch * c.pixels, .items = c.groups};
  const tc_plan_parts parts = tc_plan_parts_long(&product);
  tiles_step t = tiles_make(&c, col || c.pointwise ? WEIGHT_POINTWISE : WEIGHT_WINDOW, product, &parts);
  t.output_index = TC_BUFFER_W;
  t.output = TC_ROLE_WEIGHT;
  t.f32_output = f32;
  if (col) {
    TC_TRY(emit_im2col(&c));
    use_col(&c, &t.params, (uint64_t)d->in_channels * c.taps);
  }
  t.vectors_a = by_four(c.pixels, t.params.y_offset);
  t.vectors_b = by_four(c.pixels, t.params.x_offset);
  TC_TRY(reserve_partials(&c, &t));
  tc_plan_step step = step_of_tiles(&c, &t);
  tc_plan_constant_add(&step, TC_CONSTANT_ADD_BIAS, false);
  tc_plan_bind(&step, TC_BUFFER_X, col ? TC_ROLE_SCRATCH_COL : TC_ROLE_X, false);
  tc_plan_bind(&step, TC_BUFFER_Y, TC_ROLE_Y, false);
  TC_TRY(emit_tiles(&c, &t, &step));
  const tc_plan_step reduction = step_of_reduction(&c, &t, "tc_conv2d_backward_weight_reduce");
  return emit_reduction(&c, &t, &reduction);
}
