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

bool tc_conv_is_pointwise(const conv2d *c) { return c->taps == 1 && c->h.pad == 0 && c->w.pad == 0 && c->h.out > 0; }

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

/* Some terms of a panel. */
static void pack_terms(const pointwise_job *job, const segment *s, int64_t segments, int64_t first, int64_t terms, float *panel) {
  const conv2d *c = &job->c;
  const int64_t nr = c->kernels->nr, step = job->backward ? 1 : c->w.stride, n = s[segments - 1].at + s[segments - 1].n;
  for (const segment *end = s + segments; s < end; s++) {
    const uint16_t *src = (job->backward ? c->dy : c->x) + s->offset + first * job->src_plane;
    c->kernels->widen_rows(terms, s->n, src, job->src_plane, step, panel + first * nr + s->at, nr);
  }
  for (int64_t k = first; n < nr && k < first + terms; k++) memset(panel + k * nr + n, 0, (size_t)(nr - n) * sizeof *panel);
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

typedef struct panel {
  int64_t sources, results; /* segments that it comes from, and that it goes to */
  segment source[PANEL_PIXELS_MAX], result[PANEL_PIXELS_MAX];
} panel;

/* Rows first .. first+m-1 of a panel's result. */
static void store(const pointwise_job *job, const panel *to, int64_t m, int64_t first, const float *tile, const float *bias) {
  const conv2d *c = &job->c;
  const int64_t nr = c->kernels->nr, plane = job->dst_plane;
  uint16_t *dst = (job->backward ? c->dx : c->y) + first * plane;
  const segment *s = to->result, *end = s + to->results;
  if (!job->backward || (c->h.stride == 1 && c->w.stride == 1)) {
    for (; s < end; s++) c->kernels->narrow_rows(m, s->n, tile + s->at, nr, bias, dst + s->offset, plane);
    return;
  }
  uint16_t values[ROWS_OF_TILE * PANEL_PIXELS_MAX];
  c->kernels->narrow(m * nr, tile, values);
  for (; s < end; s++) {
    for (int64_t i = 0; i < m; i++) scatter(c, s, values + i * nr + s->at, dst + i * plane + s->offset);
  }
}

typedef struct strip_memory {
  panel panel[PANELS_MAX];
  float tile[ROWS_OF_TILE * PANEL_PIXELS_MAX];
  float packed[]; /* [panels][terms][nr] */
} strip_memory;

/* Channels lie far apart, and no hardware sees them coming. */
static void fetch_terms(const pointwise_job *job, const segment *s, int64_t segments, int64_t first, int64_t end) {
  const int64_t step = job->backward ? 1 : job->c.w.stride;
  for (const segment *last = s + segments; s < last; s++) {
    const uint16_t *src = (job->backward ? job->c.dy : job->c.x) + s->offset;
    for (int64_t k = first; k < min(end, job->terms); k++) {
      for (int64_t x = 0; x < s->n * step; x += 32) __builtin_prefetch(src + k * job->src_plane + x);
    }
  }
}

/* Few terms of all panels after each other, so that lines of memory that follow each other are read in turn. */
enum { TERMS_AT_ONCE = 16 };

static void pack_strip(const pointwise_job *job, int64_t group, int64_t first, int64_t panels, strip_memory *memory) {
  const conv2d *c = &job->c;
  const int64_t nr = c->kernels->nr, all = c->batch * c->pixels;
  for (int64_t p = 0; p < panels; p++) {
    panel *to = &memory->panel[p];
    const int64_t at = first + p * nr, n = min(nr, all - at);
    to->sources = find_segments(job, !job->backward, group, at, n, to->source);
    to->results = find_segments(job, job->backward, group, at, n, to->result);
  }
  for (int64_t k = 0; k < job->terms; k += TERMS_AT_ONCE) {
    for (int64_t p = 0; p < panels; p++) {
      const panel *from = &memory->panel[p];
      fetch_terms(job, from->source, from->sources, k + TERMS_AT_ONCE, k + 2 * TERMS_AT_ONCE);
      pack_terms(job, from->source, from->sources, k, min(TERMS_AT_ONCE, job->terms - k), memory->packed + p * job->terms * nr);
    }
  }
}

static void strip_task(const void *arg, int64_t task, char *workspace) {
  const pointwise_job *job = arg;
  const conv2d *c = &job->c;
  strip_memory *memory = (strip_memory *)(void *)workspace;
  const int64_t nr = c->kernels->nr, mr = c->kernels->mr;
  const int64_t rows_first = task % job->groups_of_rows * job->rows, rows_end = min(job->results, rows_first + job->rows);
  const int64_t strip = task / job->groups_of_rows % job->strips, group = task / job->groups_of_rows / job->strips;
  const int64_t first = strip * job->panels * nr, panels = min(job->panels, ceil_div(c->batch * c->pixels - first, nr));
  pack_strip(job, group, first, panels, memory);
  for (int64_t i = rows_first; i < rows_end; i += mr) {
    const int64_t m = min(mr, rows_end - i);
    const float *weights = job->weights + (group * job->results + i) * job->ld;
    float bias[ROWS_OF_TILE];
    if (c->bias) c->kernels->widen(m, c->bias + group * job->results + i, bias);
    for (int64_t p = 0; p < panels; p++) {
      const panel *to = &memory->panel[p];
      c->kernels->taps(m, nr, job->runs, job->run, weights, job->ld, memory->packed + p * job->terms * nr, memory->tile, nr);
      store(job, to, m, i, memory->tile, c->bias ? bias : NULL);
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

tc_status_t tc_conv_pointwise_forward(tc_cpu *cpu, const conv2d *problem) {
  pointwise_job job = {.c = *problem, .terms = problem->in_channels, .results = problem->out_channels};
  conv_flatten(&job.c);
  job.src_plane = problem->h.size * problem->w.size;
  job.dst_plane = problem->pixels;
  return run(cpu, &job);
}

tc_status_t tc_conv_pointwise_backward_input(tc_cpu *cpu, const conv2d *problem) {
  pointwise_job job = {.c = *problem, .terms = problem->out_channels, .results = problem->in_channels, .backward = true};
  conv_flatten(&job.c);
  job.src_plane = problem->pixels;
  job.dst_plane = problem->h.size * problem->w.size;
  return run(cpu, &job);
}
