/* SPDX-License-Identifier: MIT
 *
 * Convolution with one tap and no padding, and its gradient of the input: a matrix of weights by the pixels of all images. The
 * weights are widened once; pixels are widened in strips, each of which meets all weights while it is in a cache. Planes stay planes
 * on both sides, so nothing is transposed but backward_input's weights.
 */
#include <string.h>

#include "cpu/conv.h"
#include "status.h"

/* Pixels of a panel that follow each other in an image of Y or, a stride apart, in a row of X. */
typedef struct segment {
  int64_t at, n;         /* in the panel */
  int64_t offset;        /* of the first one, in channel 0 of the group */
  int64_t rows, columns; /* of dX that it decides: its pixels, and those up to the next that no output pixel sees */
} segment;

enum { PANELS_MAX = 8, PANEL_PIXELS_MAX = 64, ROWS_OF_TILE = 16 }; /* the latter two: no nr or mr is larger */

typedef struct pointwise_job {
  conv2d c;
  bool backward;
  int64_t terms, results; /* channels of a group that are summed over, and that come out */
  int64_t src_plane, dst_plane;
  int64_t ld;                           /* from one result's weights to the next */
  int64_t panels, groups_of_rows, rows; /* a task's panels of pixels, and its results */
  int64_t strips;
  int64_t runs;
  tc_run *run;
  float *weights; /* [groups][results][ld] */
} pointwise_job;

bool conv_is_pointwise(const conv2d *c) { return c->taps == 1 && c->h.pad == 0 && c->w.pad == 0 && c->h.out > 0; }

/* ---- Pixels ---- */

/* The segments of n pixels of the batch, from first on: those of X, or of Y. */
static int64_t find_segments(const pointwise_job *job, bool of_x, int64_t group, int64_t first, int64_t n, segment *out) {
  const conv2d *c = &job->c;
  int64_t count = 0;
  for (int64_t at = 0; at < n; at += out[count++].n) {
    const int64_t image = (first + at) / c->pixels, p = (first + at) % c->pixels, oy = p / c->w.out, ox = p % c->w.out;
    segment *s = &out[count];
    *s = (segment){.at = at, .n = min(n - at, c->pixels - p), .rows = 1};
    s->offset = (image * c->groups + group) * c->out_channels * c->pixels + p;
    s->columns = s->n;
    if (!of_x) continue;
    s->n = min(n - at, c->w.out - ox);
    s->offset = ((image * c->groups + group) * c->in_channels * c->h.size + oy * c->h.stride) * c->w.size + ox * c->w.stride;
    s->rows = oy + 1 < c->h.out ? c->h.stride : c->h.size - oy * c->h.stride;
    s->columns = ox + s->n < c->w.out ? s->n * c->w.stride : c->w.size - ox * c->w.stride;
  }
  return count;
}

static void pack_pixels(const pointwise_job *job, int64_t group, int64_t first, int64_t n, float *panel) {
  const conv2d *c = &job->c;
  const int64_t nr = c->kernels->nr;
  segment segments[PANEL_PIXELS_MAX];
  const int64_t count = find_segments(job, !job->backward, group, first, n, segments);
  for (const segment *s = segments; s < segments + count; s++) {
    const uint16_t *src = (job->backward ? c->dy : c->x) + s->offset;
    c->kernels->widen_rows(job->terms, s->n, src, job->src_plane, job->backward ? 1 : c->w.stride, panel + s->at, nr);
  }
  for (int64_t k = 0; n < nr && k < job->terms; k++) memset(panel + k * nr + n, 0, (size_t)(nr - n) * sizeof *panel);
}

typedef uint32_t pair __attribute__((aligned(2), may_alias));

/* Values of one channel of dX among zeros: all that a segment decides. */
static void scatter(const conv2d *c, const segment *s, const uint16_t *values, uint16_t *dst) {
  for (int64_t row = c->w.stride == 2; row < s->rows; row++) memset(dst + row * c->w.size, 0, (size_t)s->columns * sizeof *dst);
  if (c->w.stride != 2) {
    for (int64_t x = 0; x < s->n; x++) dst[x * c->w.stride] = values[x];
    return;
  }
  const int64_t pairs = s->columns / 2 < s->n ? s->columns / 2 : s->n;
  for (int64_t x = 0; x < pairs; x++) ((pair *)dst)[x] = values[x]; /* little-endian: the value, then a zero */
  for (int64_t x = pairs; x < s->n; x++) dst[2 * x] = values[x];
  for (int64_t x = 2 * s->n; x < s->columns; x++) dst[x] = 0;
}

static void store(const pointwise_job *job, const segment *s, int64_t m, int64_t first, const float *tile, const float *bias) {
  const conv2d *c = &job->c;
  const int64_t nr = c->kernels->nr;
  uint16_t *dst = (job->backward ? c->dx : c->y) + s->offset + first * job->dst_plane;
  if (!job->backward || (c->h.stride == 1 && c->w.stride == 1)) {
    c->kernels->narrow_rows(m, s->n, tile + s->at, nr, bias, dst, job->dst_plane);
    return;
  }
  uint16_t values[ROWS_OF_TILE][PANEL_PIXELS_MAX];
  c->kernels->narrow_rows(m, s->n, tile + s->at, nr, NULL, values[0], PANEL_PIXELS_MAX);
  for (int64_t i = 0; i < m; i++) scatter(c, s, values[i], dst + i * job->dst_plane);
}

/* ---- Tasks ---- */

typedef struct strip_memory {
  segment segments[PANELS_MAX][PANEL_PIXELS_MAX];
  int64_t count[PANELS_MAX];
  float tile[ROWS_OF_TILE * PANEL_PIXELS_MAX];
  float panels[];
} strip_memory;

static void strip_task(const void *arg, int64_t task, char *workspace) {
  const pointwise_job *job = arg;
  const conv2d *c = &job->c;
  strip_memory *memory = (strip_memory *)(void *)workspace;
  const int64_t nr = c->kernels->nr, mr = c->kernels->mr, all = c->batch * c->pixels, panel_floats = job->terms * nr;
  const int64_t rows_first = task % job->groups_of_rows * job->rows, rows_end = min(job->results, rows_first + job->rows);
  const int64_t strip = task / job->groups_of_rows % job->strips, group = task / job->groups_of_rows / job->strips;
  const int64_t first = strip * job->panels * nr, panels = min(job->panels, ceil_div(all - first, nr));
  for (int64_t p = 0; p < panels; p++) {
    const int64_t n = min(nr, all - first - p * nr);
    memory->count[p] = find_segments(job, job->backward, group, first + p * nr, n, memory->segments[p]);
    pack_pixels(job, group, first + p * nr, n, memory->panels + p * panel_floats);
  }
  for (int64_t i = rows_first; i < rows_end; i += mr) {
    const int64_t m = min(mr, rows_end - i);
    const float *weights = job->weights + (group * job->results + i) * job->ld;
    float bias[ROWS_OF_TILE];
    if (c->bias) c->kernels->widen(m, c->bias + group * job->results + i, bias);
    for (int64_t p = 0; p < panels; p++) {
      c->kernels->taps(m, nr, job->runs, job->run, weights, job->ld, memory->panels + p * panel_floats, memory->tile, nr);
      for (int64_t s = 0; s < memory->count[p]; s++) {
        store(job, &memory->segments[p][s], m, i, memory->tile, c->bias ? bias : NULL);
      }
    }
  }
}

/* Results r .. r+31 of a group. */
enum { WEIGHT_ROWS = 32 };

static void weights_task(const void *arg, int64_t task, char *workspace) {
  const pointwise_job *job = arg;
  const conv2d *c = &job->c;
  const int64_t parts = ceil_div(c->out_channels, WEIGHT_ROWS), group = task / parts, first = task % parts * WEIGHT_ROWS;
  const int64_t rows = min(WEIGHT_ROWS, c->out_channels - first);
  const uint16_t *src = c->weight + (group * c->out_channels + first) * c->in_channels;
  float *dst = job->weights + group * job->results * job->ld;
  if (!job->backward) {
    c->kernels->widen_rows(rows, c->in_channels, src, c->in_channels, 1, dst + first * job->ld, job->ld);
    return;
  }
  int64_t *at = (int64_t *)(void *)workspace;
  for (int64_t i = 0; i < c->in_channels; i++) at[i] = i * job->ld;
  c->kernels->spread(rows, c->in_channels, src, c->in_channels, dst + first, at);
}

/* ---- The call ---- */

/* A strip stays in a second-level cache. */
static const int64_t STRIP_BYTES = 256 << 10;

/* Strips of panels, and groups of rows if those are too few for the threads. */
static void cut(pointwise_job *job, int64_t threads) {
  const conv2d *c = &job->c;
  const int64_t nr = c->kernels->nr, mr = c->kernels->mr, all = ceil_div(c->batch * c->pixels, nr);
  const int64_t fit = max(1, min(PANELS_MAX, STRIP_BYTES / (job->terms * nr * (int64_t)sizeof(float))));
  job->panels = max(1, min(fit, all * c->groups / (4 * threads)));
  job->strips = ceil_div(all, job->panels);
  const int64_t wanted = ceil_div(4 * threads, job->strips * c->groups);
  job->rows = round_up(ceil_div(job->results, max(1, min(wanted, job->results / (8 * mr)))), mr);
  job->groups_of_rows = ceil_div(job->results, job->rows);
}

static void list_runs(pointwise_job *job) {
  for (int64_t r = 0; r < job->runs; r++) {
    job->run[r] = (tc_run){r * TC_KC, r * TC_KC * job->c.kernels->nr, min(TC_KC, job->terms - r * TC_KC), true};
  }
}

static tc_status_t run(tc_cpu *cpu, pointwise_job *job) {
  conv2d *c = &job->c;
  const int64_t threads = tc_cpu_threads(cpu, conv_multiplies(c));
  job->ld = round_up(job->terms, 16) + 16; /* rows of a tile should not share cache sets */
  job->runs = ceil_div(job->terms, TC_KC);
  cut(job, threads);
  const size_t run_bytes = (size_t)round_up(job->runs * (int64_t)sizeof(tc_run), 64);
  const size_t weight_bytes = (size_t)(c->groups * job->results * job->ld) * sizeof(float);
  const size_t strip_bytes = sizeof(strip_memory) + (size_t)(job->panels * job->terms * c->kernels->nr) * sizeof(float);
  void *memory;
  TC_TRY(tc_workspace_take(cpu, TC_WORKSPACE_PACKED, run_bytes + weight_bytes, &memory));
  job->run = memory;
  job->weights = (float *)(void *)((char *)memory + run_bytes);
  list_runs(job);
  tc_team team;
  const tc_status_t status =
      tc_team_take(cpu, threads, INT64_MAX, max((int64_t)strip_bytes, c->in_channels * (int64_t)sizeof(int64_t)), &team);
  if (status == TC_OK) {
    tc_team_run(&team, c->groups * ceil_div(c->out_channels, WEIGHT_ROWS), weights_task, job);
    tc_team_run(&team, c->groups * job->strips * job->groups_of_rows, strip_task, job);
    tc_team_give(&team);
  }
  tc_workspace_give(cpu, TC_WORKSPACE_PACKED, memory);
  return status;
}

/* With stride 1 an image is one row. */
static conv2d flatten(const conv2d *problem) {
  conv2d c = *problem;
  if (c.h.stride == 1 && c.w.stride == 1) {
    c.w.size = c.w.out = c.pixels;
    c.h.size = c.h.out = 1;
  }
  return c;
}

tc_status_t conv_pointwise_forward(tc_cpu *cpu, const conv2d *problem) {
  pointwise_job job = {.c = flatten(problem), .terms = problem->in_channels, .results = problem->out_channels};
  job.src_plane = problem->h.size * problem->w.size;
  job.dst_plane = problem->pixels;
  return run(cpu, &job);
}

tc_status_t conv_pointwise_backward_input(tc_cpu *cpu, const conv2d *problem) {
  pointwise_job job = {.c = flatten(problem), .terms = problem->out_channels, .results = problem->in_channels, .backward = true};
  job.src_plane = problem->pixels;
  job.dst_plane = problem->h.size * problem->w.size;
  return run(cpu, &job);
}
