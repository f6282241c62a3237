/* SPDX-License-Identifier: MIT
 *
 * The gradient of the input as a matrix product (product.h), for each image and group:
 *   dCol[(i,t), p] = weight[o, (i,t)]^T * dY[o, p];  dX[i] = sum over t of dCol moved by the tap
 * Only real pairs are multiplied, so any weights will do. Rows of dCol are added to dX as they come, so it is never stored.
 */
#include <string.h>

#include "cpu/conv.h"
#include "cpu/product.h"
#include "status.h"

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
static void part_dy_row(const void *self, int64_t item, int64_t r, int64_t first, int64_t n, uint16_t *out) {
  (void)item;
  const part *t = self;
  const conv2d *c = t->c;
  const int64_t window = part_window(t);
  int64_t img = t->first_image + first / window, p = first % window;
  for (; n; p = 0, img++) {
    const int64_t run = min(n, window - p);
    memcpy(out, conv_image(c->dy, c, img, t->group, r, c->out_channels, c->pixels) + t->oy.first * c->w.out + p,
           (size_t)run * sizeof *out);
    out += run;
    n -= run;
  }
}

/* r = o, columns (i,t) of the part's channels. */
static void part_weight_row(const void *self, int64_t item, int64_t r, int64_t first, int64_t n, uint16_t *out) {
  (void)item;
  const part *t = self;
  const conv2d *c = t->c;
  memcpy(out, c->weight + ((t->group * c->out_channels + r) * c->in_channels + t->first_channel) * c->taps + first,
         (size_t)n * sizeof *out);
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
      const range inside = range_clip(columns, ox, end);
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
  const tc_cpu *cpu;
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
      .tiles = tc_tiles_pay(job->cpu, t.c->in_channels * t.c->taps, t.c->pixels, t.c->out_channels),
      .strict = t.c->strict,
  };
  const int64_t step = window > 0 && window <= TC_NC ? TC_NC / window * window : TC_NC;
  for (int64_t i = 0; i < product.M; i += TC_MC) {
    for (int64_t j = 0; j < product.N; j += step) {
      const tc_block block = {0, i, min(TC_MC, product.M - i), j, min(step, product.N - j)};
      tc_block_run(job->cpu, &product, &block, (char *)(t.sums + part_elements(t.c, job->n)));
    }
  }
  part_store(&t);
}

tc_status_t tc_conv_scatter_backward_input(tc_cpu *cpu, const conv2d *c) {
  const int64_t threads = tc_cpu_threads(cpu, conv_multiplies(c));
  const parts_job job = {cpu, c, choose_parts(c, threads)};
  const int64_t tasks = part_count(c, job.n);
  const size_t sums = (size_t)part_elements(c, job.n) * sizeof(double);
  tc_team team;
  TC_TRY(tc_team_take(cpu, threads, tasks, sums + tc_block_workspace_bytes(cpu), &team));
  tc_team_run(&team, tasks, part_task, &job);
  tc_team_give(&team);
  return TC_OK;
}
