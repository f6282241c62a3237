/* SPDX-License-Identifier: MIT
 *
 * The Metal kernels where numbers have more than 32 bits. A small problem is planned and run; then the parameters of its steps are
 * changed so that the same problem lies far out in a huge one: at items, rows, columns, images and groups, and in memory, beyond 2^32.
 * Only what is touched has memory. The result has the same bits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/check.h"
#include "common/half.h"
#include "dispatch.h"

#define FAR (UINT64_C(1) << 32)

/* The most groups that there may be, nearly; a multiple of any threadgroup's rows. */
#define FAR_GROUPS ((UINT64_C(1) << 31) - 256)

/* With one core no sum is cut; with very many, those of more than TC_SUM_PRODUCTS are. */
static const tc_plan_chip tiny = {"one core", 7, 1, 1, 50}, huge = {"many cores", 9, 100000, 1, 1e6};
static const tc_plan_device one = {&tiny, UINT64_C(1) << 40, false}, many = {&huge, UINT64_C(1) << 40, false};

/* ---- Operands ---- */

enum { DIMENSIONS = 4 };

/* Where the elements of an operand lie. Those that the problem touches have indices from first on. */
typedef struct layout {
  uint64_t offset, stride[DIMENSIONS], first[DIMENSIONS];
  int64_t count[DIMENSIONS]; /* all 0: there is no such operand */
  size_t size;               /* of an element */
} layout;

static int64_t elements(const layout *l) { return l->count[0] * l->count[1] * l->count[2] * l->count[3]; }

/* The place of the i-th element that is touched. */
static uint64_t place(const layout *l, int64_t i) {
  uint64_t at = l->offset;
  for (int d = DIMENSIONS - 1; d >= 0; i /= l->count[d--]) at += (l->first[d] + (uint64_t)(i % l->count[d])) * l->stride[d];
  return at * l->size;
}

/* Memory of an operand, from its beginning to its last element; zeros. */
static face_binding reserve(uint64_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) skip("mmap doesn't give %.0f bytes: a sanitizer holds the address space", (double)bytes);
  return (face_binding){memory, bytes};
}

static face_binding operand_open(const layout *l) {
  return elements(l) ? reserve(place(l, elements(l) - 1) + l->size) : (face_binding){0};
}

static void binding_close(face_binding *b) {
  if (b->pointer) munmap(b->pointer, b->length);
  *b = (face_binding){0};
}

/* Copies what is touched. */
static void operand_copy(const face_binding *to, const layout *there, const face_binding *from, const layout *here) {
  for (int64_t i = 0; i < elements(here); i++)
    memcpy((char *)to->pointer + place(there, i), (char *)from->pointer + place(here, i), here->size);
}

/* Integers, whose sums are exact in any order. */
static void fill(const face_binding *b, const layout *l, rng *r) {
  for (int64_t i = 0; i < elements(l); i++) {
    const float value = (float)rng_between(r, 1, 4) * (rng_one_in(r, 2) ? 1 : -1);
    const uint16_t half = half_round((double)value);
    memcpy((char *)b->pointer + place(l, i), l->size == 2 ? (const void *)&half : (const void *)&value, l->size);
  }
}

/* ---- The same problem near and far ---- */

/* A problem: its plan, and layouts of its operands by role. */
typedef struct problem {
  tc_plan plan;
  layout operands[TC_ROLES];
  tc_plan_role output;
} problem;

/* What regions of the workspace, and a matrix in scratch memory, may take. */
static const uint64_t REGION = UINT64_C(1) << 42;

static void spread_workspace(tc_plan *plan) {
  for (size_t i = 0; i < plan->count; i++) {
    for (uint32_t b = 0; b < plan->steps[i].binding_count; b++) {
      tc_plan_binding *binding = &plan->steps[i].bindings[b];
      if (binding->role == TC_ROLE_WORKSPACE && binding->offset)
        binding->offset = binding->index == TC_BUFFER_PACKED ? REGION : 2 * REGION;
    }
  }
}

static bool run(problem *p, face_binding operands[TC_ROLES]) {
  spread_workspace(&p->plan);
  operands[TC_ROLE_WORKSPACE] = reserve(3 * REGION);
  operands[TC_ROLE_SCRATCH_COL] = reserve(REGION);
  bool good = true;
  for (size_t i = 0; good && i < p->plan.count; i++) {
    note("%s", p->plan.steps[i].kernel.name);
    good = step_run(&p->plan.steps[i], operands, NULL);
  }
  binding_close(&operands[TC_ROLE_WORKSPACE]);
  binding_close(&operands[TC_ROLE_SCRATCH_COL]);
  return good;
}

/* Runs both with the same values and compares the outputs. */
static void compare(problem *near, problem *far, rng *r, const char *name) {
  face_binding here[TC_ROLES] = {{0}}, there[TC_ROLES] = {{0}};
  for (int role = 0; role < TC_ROLES; role++) {
    here[role] = operand_open(&near->operands[role]);
    there[role] = operand_open(&far->operands[role]);
    if (role != TC_ROLE_SCRATCH_DX) fill(&here[role], &near->operands[role], r);
    operand_copy(&there[role], &far->operands[role], &here[role], &near->operands[role]);
  }
  if (run(near, here) && run(far, there)) {
    const layout *l = &near->operands[near->output];
    face_binding got = operand_open(l);
    operand_copy(&got, l, &there[far->output], &far->operands[far->output]);
    note("%s", name);
    CHECK_BYTES(got.pointer, here[near->output].pointer, got.length);
    binding_close(&got);
  }
  for (int role = 0; role < TC_ROLES; role++) binding_close(&here[role]), binding_close(&there[role]);
}

static bool named(const tc_plan_step *step, const char *word) { return strstr(step->kernel.name, word); }

/* Rows and columns of a threadgroup: of a tile, whose kernel ends in "_64x32", or of single elements. */
static void span(const tc_plan_step *step, uint64_t *rows, uint64_t *columns) {
  unsigned m, n;
  const bool tile = sscanf(strrchr(step->kernel.name, '_'), "_%ux%u", &m, &n) == 2;
  *rows = tile ? m : step->threads[1];
  *columns = tile ? n : step->threads[0];
}

/* ---- GEMM ---- */

/* How far away a product is: what is added to strides, and where it begins. */
typedef struct gemm_distance {
  const char *name;
  uint64_t offset, ld, stride, item, row, column, k;
} gemm_distance;

static tc_gemm_batched_desc gemm_desc(int64_t M, int64_t N, int64_t K, int transposes) {
  tc_gemm_batched_desc d = TC_GEMM_BATCHED_DESC_INIT;
  d.M = M, d.N = N, d.K = K, d.batch = 2;
  d.transpose_a = transposes & 1;
  d.transpose_b = transposes >> 1;
  d.lda = d.transpose_a ? M : K;
  d.ldb = d.transpose_b ? K : N;
  d.ldc = N;
  d.stride_a = M * K, d.stride_b = K * N, d.stride_c = M * N;
  d.alpha = 0.5f, d.beta = 0.25f;
  return d;
}

static void gemm_step(tc_plan_step *step, const gemm_distance *g) {
  tc_gemm_params p;
  uint64_t rows, columns;
  memcpy(&p, step->params, sizeof p);
  span(step, &rows, &columns);
  p.a_offset += g->offset, p.b_offset += g->offset, p.c_offset += g->offset;
  p.lda += g->ld, p.ldb += g->ld, p.ldc += g->ld;
  p.stride_a += g->stride, p.stride_b += g->stride, p.stride_c += g->stride;
  p.M += g->row, p.N += g->column;
  p.origin.y += (uint32_t)(g->row / rows);
  p.origin.x += (uint32_t)(g->column / columns);
  p.origin.z += g->item * (named(step, "_reduce") || named(step, "_scale") ? 1 : p.parts);
  if (g->k) { /* the second of two parts; the first one is that long */
    p.part = g->k, p.K += g->k, p.parts = 2, p.origin.z = 1;
    step->threadgroups[2] = 1;
  }
  memcpy(step->params, &p, sizeof p);
}

static layout matrix(uint64_t offset, uint64_t stride, uint64_t ld, bool transposed, const gemm_distance *g, uint64_t row,
                     uint64_t column, int64_t batch, int64_t rows, int64_t columns) {
  const uint64_t to_row = transposed ? 1 : ld + g->ld, to_column = transposed ? ld + g->ld : 1;
  return (layout){
      offset + g->offset, {0, stride + g->stride, to_row, to_column}, {0, g->item, row, column}, {1, batch, rows, columns}, 2};
}

static problem gemm_problem(const tc_plan_device *device, const tc_gemm_batched_desc *d, const gemm_distance *g) {
  problem p = {.output = TC_ROLE_C};
  const int64_t batch = g->k ? 1 : d->batch;
  CHECK_OK(tc_plan_gemm(device, d, &p.plan));
  for (size_t i = 0; i < p.plan.count; i++) gemm_step(&p.plan.steps[i], g);
  p.operands[TC_ROLE_A] = matrix(0, (uint64_t)d->stride_a, (uint64_t)d->lda, d->transpose_a, g, g->row, g->k, batch, d->M, d->K);
  p.operands[TC_ROLE_B] = matrix(0, (uint64_t)d->stride_b, (uint64_t)d->ldb, d->transpose_b, g, g->k, g->column, batch, d->K, d->N);
  p.operands[TC_ROLE_C] = matrix(0, (uint64_t)d->stride_c, (uint64_t)d->ldc, false, g, g->row, g->column, batch, d->M, d->N);
  return p;
}

static void gemm_compare(const tc_plan_device *device, tc_gemm_batched_desc d, const gemm_distance *g, rng *r) {
  const gemm_distance nowhere = {.name = "near"};
  if (g->k) d.batch = 1;
  problem near = gemm_problem(device, &d, &nowhere), far = gemm_problem(device, &d, g);
  compare(&near, &far, r, g->name);
  tc_plan_free(&near.plan);
  tc_plan_free(&far.plan);
}

static const gemm_distance gemm_distances[] = {
    {.name = "offsets", .offset = FAR},     {.name = "leading dimensions", .ld = FAR},
    {.name = "strides", .stride = FAR},     {.name = "items", .item = FAR},
    {.name = "rows", .row = FAR},           {.name = "columns", .column = FAR},
    {.name = "terms of the sum", .k = FAR},
};

static void gemm_products(void) {
  rng r = {test_seed()};
  for (size_t i = 0; i < COUNT(gemm_distances); i++) {
    for (int transposes = 0; transposes < 4; transposes++) {
      gemm_compare(&one, gemm_desc(7, 6, 20, transposes), &gemm_distances[i], &r);
    }
  }
}

static void gemm_parts(void) {
  rng r = {test_seed() + 1};
  for (size_t i = 0; i < COUNT(gemm_distances); i++) {
    if (!gemm_distances[i].k) gemm_compare(&many, gemm_desc(3, 5, 2 * TC_SUM_PRODUCTS + 9, 0), &gemm_distances[i], &r);
  }
}

static void gemm_scaling(void) {
  rng r = {test_seed() + 2};
  for (size_t i = 0; i < COUNT(gemm_distances); i++) {
    tc_gemm_batched_desc d = gemm_desc(7, 6, 20, 0);
    d.alpha = 0;
    if (!gemm_distances[i].k) gemm_compare(&one, d, &gemm_distances[i], &r);
  }
}

/* ---- Convolution ---- */

/* What is added to strides, and the first image and group. */
typedef struct conv_distance {
  const char *name;
  uint64_t offset, image_stride, group_stride, channel_stride, image, group;
} conv_distance;

static const conv_distance conv_distances[] = {
    {.name = "offsets", .offset = FAR},
    {.name = "image strides", .image_stride = FAR},
    {.name = "group strides", .group_stride = FAR},
    {.name = "channel strides", .channel_stride = FAR},
    {.name = "images", .image = FAR},
    {.name = "groups", .group = FAR_GROUPS},
};

typedef enum direction { FORWARD, INPUT, WEIGHT } direction;

/* A problem. Planes of Y and of dX's phases have PIXELS pixels, so that images beyond 2^32 still fit into a grid. */
enum { PIXELS = 4 };
typedef struct conv {
  const char *name;
  direction direction;
  bool col;                     /* by an im2col matrix */
  bool far_x, far_y;            /* channels may be far apart */
  int64_t groups, in, out;      /* channels of a group */
  int64_t size, k, pad, stride; /* along both axes */
} conv;

static const conv convs[] = {
    {"forward, window", FORWARD, false, false, true, 2, 3, 5, 2, 3, 1, 1},
    {"forward, pointwise", FORWARD, false, true, true, 2, 4, 4, 2, 1, 0, 1},
    {"forward, im2col", FORWARD, true, true, true, 1, 3, 5, 2, 3, 1, 1},
    {"forward, parts", FORWARD, false, false, true, 2, 120, 3, 2, 3, 1, 1},
    {"input, window", INPUT, false, true, false, 2, 3, 5, 4, 3, 1, 2},
    {"input, pointwise", INPUT, false, true, true, 2, 4, 4, 2, 1, 0, 1},
    {"input, parts", INPUT, false, true, false, 2, 1, 129, 4, 3, 1, 2},
    {"input, col2im", INPUT, true, true, true, 1, 3, 5, 2, 3, 1, 1},
    {"weight, window", WEIGHT, false, true, true, 2, 3, 5, 2, 3, 1, 1},
    {"weight, pointwise", WEIGHT, false, true, true, 2, 4, 4, 2, 1, 0, 1},
    {"weight, im2col", WEIGHT, true, true, true, 1, 3, 5, 2, 3, 1, 1},
};

static tc_conv2d_desc conv_desc(const conv *c) {
  tc_conv2d_desc d = TC_CONV2D_DESC_INIT;
  d.batch = 2;
  d.groups = c->groups;
  d.in_channels = c->in * c->groups;
  d.out_channels = c->out * c->groups;
  d.H = d.W = c->size;
  d.kH = d.kW = c->k;
  d.pad_top = d.pad_bottom = d.pad_left = d.pad_right = c->pad;
  d.stride_h = d.stride_w = c->stride;
  d.out_H = d.out_W = (c->size + 2 * c->pad - c->k) / c->stride + 1;
  return d;
}

/* Where a tensor is: of X or Y. */
typedef struct strides {
  uint64_t offset, image, group, channel;
} strides;

static strides moved(strides s, const conv_distance *g, bool far_channels) {
  const uint64_t first_image = s.offset / s.image; /* of a slice of images */
  s.image += g->image_stride;
  s.group += g->group_stride;
  s.channel += far_channels ? g->channel_stride : 0;
  s.offset = g->offset + first_image * s.image;
  return s;
}

/* A matrix in scratch memory, whose rows are a tensor's channels, one group after the other. */
static strides stretched(strides s, const conv_distance *g) {
  const uint64_t channel = s.channel + g->channel_stride;
  return (strides){s.offset, s.image / s.channel * channel, s.group / s.channel * channel, channel};
}

static tc_plan_role role_at(const tc_plan_step *step, uint32_t index) {
  for (uint32_t i = 0; i < step->binding_count; i++) {
    if (step->bindings[i].index == index) return step->bindings[i].role;
  }
  return TC_ROLES;
}

static void move_tensors(tc_conv2d_params *p, const tc_plan_step *step, const conv *c, const conv_distance *g) {
  strides x = {p->x_offset, p->x_image, p->x_group, p->x_channel}, y = {p->y_offset, p->y_image, p->y_group, p->y_channel};
  x = role_at(step, TC_BUFFER_X) == TC_ROLE_SCRATCH_COL ? stretched(x, g) : moved(x, g, c->far_x);
  y = role_at(step, TC_BUFFER_Y) == TC_ROLE_SCRATCH_COL ? stretched(y, g) : moved(y, g, c->far_y);
  p->x_offset = x.offset, p->x_image = x.image, p->x_group = x.group, p->x_channel = x.channel;
  p->y_offset = y.offset, p->y_image = y.image, p->y_group = y.group, p->y_channel = y.channel;
  p->w_offset += g->offset;
  p->w_channel += g->channel_stride + g->group_stride;
  p->w_group = p->out_channels * p->w_channel;
  p->bias_offset += g->offset;
}

/* The first image: by the first column of the grid, or in dW by the first term of the sum. */
static void move_images(tc_conv2d_params *p, tc_plan_step *step, const conv_distance *g) {
  uint64_t rows, columns;
  span(step, &rows, &columns);
  p->images += g->image;
  if (named(step, "backward_weight")) { /* the second of two parts */
    p->part = g->image * PIXELS, p->K += p->part, p->parts = 2, p->origin.z = 1;
    step->threadgroups[2] = 1;
  } else if (!named(step, "_pack")) {
    p->N += g->image * PIXELS;
    p->origin.x += (uint32_t)(g->image * PIXELS / columns);
  }
}

static void move_groups(tc_conv2d_params *p, const tc_plan_step *step, const conv *c, const conv_distance *g) {
  const uint64_t phases = c->direction == INPUT ? (uint64_t)(c->stride * c->stride) : 1;
  uint64_t rows, columns;
  span(step, &rows, &columns);
  p->groups += (uint32_t)g->group;
  if (named(step, "_pack")) {
    p->M += g->group * p->out_channels;
    p->origin.y += (uint32_t)(g->group * p->out_channels / rows);
  } else {
    p->origin.z += g->group * phases * (named(step, "_reduce") ? 1 : p->parts);
  }
}

static void conv_step(tc_plan_step *step, const conv *c, const conv_distance *g) {
  tc_conv2d_params p;
  if (!named(step, "tc_conv2d")) return;
  memcpy(&p, step->params, sizeof p);
  move_tensors(&p, step, c, g);
  if (g->image) move_images(&p, step, g);
  if (g->group) move_groups(&p, step, c, g);
  memcpy(step->params, &p, sizeof p);
}

/* Without the steps that take dX as a run of elements: scratch_dX is the output then, and is 0 to begin with. */
static void without_runs(tc_plan *plan) {
  size_t kept = 0;
  for (size_t i = 0; i < plan->count; i++) {
    const bool run = named(&plan->steps[i], "tc_round") || role_at(&plan->steps[i], TC_BUFFER_Y) == TC_ROLE_SCRATCH_DX;
    if (!run) plan->steps[kept++] = plan->steps[i];
  }
  plan->count = kept;
}

static layout tensor(uint64_t channels, uint64_t plane, uint64_t groups, const conv_distance *g, bool far_channels, size_t size) {
  const strides s = moved((strides){0, groups * channels * plane, channels * plane, plane}, g, far_channels);
  return (layout){s.offset,
                  {s.image, s.group, s.channel, 1},
                  {g->image, g->group, 0, 0},
                  {2, (int64_t)groups, (int64_t)channels, (int64_t)plane},
                  size};
}

static problem conv_problem(const conv *c, const conv_distance *g) {
  const tc_conv2d_desc d = conv_desc(c);
  const tc_plan_request request = {c->col ? TC_CONV_PATH_COL : TC_CONV_PATH_IMPLICIT, true, c->col, c->col};
  const uint64_t in = (uint64_t)c->in, out = (uint64_t)c->out, groups = (uint64_t)c->groups, taps = (uint64_t)(c->k * c->k);
  const tc_plan_device *device = strstr(c->name, "parts") ? &many : &one;
  const uint64_t channel = in * taps + g->channel_stride + g->group_stride;
  const bool scatter = c->direction == INPUT && c->col;
  problem p = {0};
  switch (c->direction) {
  case FORWARD:
    CHECK_OK(tc_plan_conv2d_forward(device, &d, &request, &p.plan));
    break;
  case INPUT:
    CHECK_OK(tc_plan_conv2d_backward_input(device, &d, &request, &p.plan));
    break;
  case WEIGHT:
    CHECK_OK(tc_plan_conv2d_backward_weight(device, &d, &request, &p.plan));
    break;
  }
  without_runs(&p.plan);
  for (size_t i = 0; i < p.plan.count; i++) conv_step(&p.plan.steps[i], c, g);
  p.operands[scatter ? TC_ROLE_SCRATCH_DX : TC_ROLE_X] =
      tensor(in, (uint64_t)(d.H * d.W), groups, g, c->far_x, scatter ? sizeof(float) : 2);
  p.operands[TC_ROLE_Y] = tensor(out, (uint64_t)(d.out_H * d.out_W), groups, g, c->far_y, 2);
  p.operands[TC_ROLE_WEIGHT] =
      (layout){g->offset, {0, out * channel, channel, 1}, {0, g->group}, {1, c->groups, c->out, (int64_t)(in * taps)}, 2};
  p.operands[TC_ROLE_BIAS] = (layout){g->offset, {0, 0, out, 1}, {0, 0, g->group}, {1, 1, c->groups, c->out}, 2};
  p.output = c->direction == FORWARD  ? TC_ROLE_Y
             : c->direction == WEIGHT ? TC_ROLE_WEIGHT
             : scatter                ? TC_ROLE_SCRATCH_DX
                                      : TC_ROLE_X;
  return p;
}

static void conv_compare(conv c, const conv_distance *g, rng *r) {
  static const conv_distance nowhere = {.name = "near"};
  if (g->image && c.direction == WEIGHT) c.groups = 1; /* a second group's second part isn't next to the first one's */
  if (g->group && (c.col || c.out > 100))
    return; /* the grid has 32 bits for the rows of a matrix, and of weights that are packed */
  char name[64];
  snprintf(name, sizeof name, "%s: %s", c.name, g->name);
  problem near = conv_problem(&c, &nowhere), far = conv_problem(&c, g);
  compare(&near, &far, r, name);
  tc_plan_free(&near.plan);
  tc_plan_free(&far.plan);
}

static void convolutions(void) {
  rng r = {test_seed() + 3};
  for (size_t i = 0; i < COUNT(convs); i++) {
    for (size_t j = 0; j < COUNT(conv_distances); j++) conv_compare(convs[i], &conv_distances[j], &r);
  }
}

int main(int argc, char **argv) {
  static const test tests[] = {
      {"gemm_products", gemm_products}, {"gemm_parts", gemm_parts}, {"gemm_scaling", gemm_scaling}, {"convolutions", convolutions}};
  kernels_open();
  const int status = run_tests("metal_far", tests, COUNT(tests), argc, argv);
  kernels_close();
  return status;
}
