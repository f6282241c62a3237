/* SPDX-License-Identifier: MIT
 *
 * Few channels in a group, depthwise above all: each plane of the result is a sum of shifted planes times a weight, with vectors along
 * the pixels. Source planes are widened among zeros; with a step over 1 they are parted first (positions of equal remainder
 * together), so that what a tap sees is contiguous. Whole planes are done as one row: the pixels between the rows' ends are computed
 * and dropped.
 */
#include <string.h>

#include "cpu/conv_axes.h"
#include "f16.h"
#include "status.h"

typedef struct planes_job {
  const conv2d *c;
  const uint16_t *src;
  int64_t sources, results; /* channels of a group */
  bool backward;
  tap_axis h, w;
  int64_t pitch, part, plane; /* floats of a row, of the positions of one remainder, and of a source plane */
} planes_job;

enum { SLACK = 64 }; /* floats that a last vector may read or write beyond */

/* A task's memory, which stays in a second-level cache. */
enum { TASK_FLOATS_MAX = 1 << 18 };

static planes_job describe(const conv2d *c, const uint16_t *src, bool backward) {
  planes_job job = {.c = c, .src = src, .backward = backward};
  job.sources = backward ? c->out_channels : c->in_channels;
  job.results = backward ? c->in_channels : c->out_channels;
  job.h = backward ? backward_axis(&c->h) : forward_axis(&c->h);
  job.w = backward ? backward_axis(&c->w) : forward_axis(&c->w);
  job.pitch = ceil_div(job.w.relaid, job.w.step);
  job.part = ceil_div(job.h.relaid, job.h.step) * job.pitch;
  job.plane = job.h.step * job.w.step * job.part;
  return job;
}

/* ---- Source planes ---- */

/* Positions of an axis with one remainder: first of the source, place of that one, count. */
typedef struct comb {
  int64_t first, place, n;
} comb;

static comb comb_of(const tap_axis *a, int64_t r) {
  comb m;
  m.first = r - a->before - floor_div(r - a->before, a->step) * a->step;
  m.place = (a->before + m.first) / a->step;
  const int64_t end = min(a->inner, a->relaid - a->before); /* what lies beyond is not seen */
  m.n = end > m.first ? ceil_div(end - m.first, a->step) : 0;
  return m;
}

static void widen_plane(const planes_job *job, const uint16_t *src, float *dst) {
  for (int64_t ry = 0; ry < job->h.step; ry++) {
    const comb y = comb_of(&job->h, ry);
    for (int64_t rx = 0; rx < job->w.step; rx++) {
      const comb x = comb_of(&job->w, rx);
      float *to = dst + (ry * job->w.step + rx) * job->part + y.place * job->pitch + x.place;
      if (x.n == 0) continue;
      job->c->kernels->widen_rows(y.n, x.n, src + y.first * job->w.inner + x.first, job->w.inner * job->h.step, job->w.step, to,
                                  job->pitch);
    }
  }
}

/* Where tap (ky, kx) begins in a source plane. */
static int64_t tap_place(const planes_job *job, int64_t ky, int64_t kx) {
  const int64_t y = job->h.shift[ky], x = job->w.shift[kx];
  return (y % job->h.step * job->w.step + x % job->w.step) * job->part + y / job->h.step * job->pitch + x / job->w.step;
}

static void widen_group(const planes_job *job, int64_t image, int64_t group, float *planes) {
  const int64_t pixels = job->h.inner * job->w.inner;
  memset(planes, 0, (size_t)(job->sources * job->plane + SLACK) * sizeof *planes);
  for (int64_t k = 0; k < job->sources; k++) {
    widen_plane(job, conv_image(job->src, job->c, image, group, k, job->sources, pixels), planes + k * job->plane);
  }
}

/* ---- Forward and the gradient of the input ---- */

/* The products of one phase and result. */
typedef struct terms {
  int64_t n, at[TC_KC];
  float weight[TC_KC];
} terms;

static void list_terms(const planes_job *job, int64_t group, int64_t result, int64_t py, int64_t px, terms *out) {
  const conv2d *c = job->c;
  out->n = 0;
  for (int64_t k = 0; k < job->sources; k++) {
    const int64_t o = job->backward ? k : result, i = job->backward ? result : k;
    const uint16_t *weight = c->weight + ((group * c->out_channels + o) * c->in_channels + i) * c->taps;
    for (int64_t t = 0; t < c->taps; t++) {
      const int64_t ky = t / c->w.kernel, kx = t % c->w.kernel;
      if (job->backward && (phase_of_tap(&c->h, ky) != py || phase_of_tap(&c->w, kx) != px)) continue;
      c->kernels->widen(1, weight + t, &out->weight[out->n]);
      out->at[out->n++] = k * job->plane + tap_place(job, ky, kx);
    }
  }
}

/* Places of a phase, from a buffer of the source's pitch. */
static void store_phase(const planes_job *job, int64_t rows, int64_t columns, const float *src, const float *bias, uint16_t *dst) {
  const tc_cpu_kernels *kernels = job->c->kernels;
  const int64_t to = job->h.phases * job->w.size;
  if (job->w.phases == 1) {
    kernels->narrow_rows(rows, columns, src, job->pitch, bias, dst, to);
    return;
  }
  enum { AT_ONCE = 64 };
  uint16_t narrow[AT_ONCE];
  for (int64_t y = 0; y < rows; y++) {
    for (int64_t x = 0; x < columns; x += AT_ONCE) {
      const int64_t n = min(AT_ONCE, columns - x);
      kernels->narrow(n, src + y * job->pitch + x, narrow);
      for (int64_t s = 0; s < n; s++) dst[y * to + (x + s) * job->w.phases] = narrow[s];
    }
  }
}

static void result_plane(const planes_job *job, int64_t group, int64_t result, const float *planes, float *out, const float *bias,
                         uint16_t *dst) {
  terms t;
  for (int64_t py = 0; py < min(job->h.phases, job->h.size); py++) {
    for (int64_t px = 0; px < min(job->w.phases, job->w.size); px++) {
      const int64_t rows = ceil_div(job->h.size - py, job->h.phases), columns = ceil_div(job->w.size - px, job->w.phases);
      list_terms(job, group, result, py, px, &t);
      job->c->kernels->planes((rows - 1) * job->pitch + columns, t.n, t.weight, t.at, planes, out);
      store_phase(job, rows, columns, out, bias, dst + py * job->w.size + px);
    }
  }
}

/* Floats of a result, with the pitch of the source. */
static int64_t out_floats(const planes_job *job) { return ceil_div(job->h.size, job->h.phases) * job->pitch + job->w.size; }

static int64_t task_floats(const planes_job *job) { return job->sources * job->plane + out_floats(job) + job->h.size + 2 * SLACK; }

static void planes_task(const void *arg, int64_t task, char *workspace) {
  const planes_job *job = arg;
  const conv2d *c = job->c;
  const int64_t image = task / c->groups, group = task % c->groups;
  float *planes = (float *)(void *)workspace, *out = planes + job->sources * job->plane + SLACK,
        *bias = out + out_floats(job) + SLACK;
  widen_group(job, image, group, planes);
  for (int64_t r = 0; r < job->results; r++) {
    if (!job->backward && c->bias) {
      c->kernels->widen(1, c->bias + group * job->results + r, bias);
      for (int64_t y = 1; y < job->h.size; y++) bias[y] = bias[0];
    }
    uint16_t *dst = job->backward ? c->dx : c->y;
    dst += ((image * c->groups + group) * job->results + r) * job->h.size * job->w.size;
    result_plane(job, group, r, planes, out, !job->backward && c->bias ? bias : NULL, dst);
  }
}

static bool suits(const conv2d *c, int64_t sources, int64_t results) {
  return results < 8 && sources * c->taps <= TC_KC && c->h.kernel <= AXIS_TAPS_MAX && c->w.kernel <= AXIS_TAPS_MAX &&
         c->h.stride <= PHASES_MAX && c->w.stride <= PHASES_MAX;
}

bool tc_conv_planes_suit_forward(const conv2d *c) {
  if (!suits(c, c->in_channels, c->out_channels)) return false;
  const planes_job job = describe(c, c->x, false);
  return task_floats(&job) <= TASK_FLOATS_MAX;
}

bool tc_conv_planes_suit_backward_input(const conv2d *c) {
  if (!suits(c, c->out_channels, c->in_channels)) return false;
  const planes_job job = describe(c, c->dy, true);
  return task_floats(&job) <= TASK_FLOATS_MAX;
}

static tc_status_t run(tc_cpu *cpu, const planes_job *job) {
  const conv2d *c = job->c;
  tc_team team;
  const int64_t tasks = c->batch * c->groups;
  TC_TRY(tc_team_take(cpu, tc_cpu_threads(cpu, conv_multiplies(c)), tasks, (size_t)task_floats(job) * sizeof(float), &team));
  tc_team_run(&team, tasks, planes_task, job);
  tc_team_give(&team);
  return TC_OK;
}

tc_status_t tc_conv_planes_forward(tc_cpu *cpu, const conv2d *c) {
  const planes_job job = describe(c, c->x, false);
  return run(cpu, &job);
}

tc_status_t tc_conv_planes_backward_input(tc_cpu *cpu, const conv2d *c, bool *done) {
  const planes_job job = describe(c, c->dy, true);
  *done = c->kernels->finite(c->groups * c->out_channels * c->in_channels * c->taps, c->weight);
  return *done ? run(cpu, &job) : TC_OK;
}

/* ---- The gradient of the weight ---- */

/* Sums of products along the pixels. dY is laid out like a result, with zeros between its rows' ends: where the other factor there, or
 * any, is inf or NaN, row by row. */
static void add_image(const planes_job *job, int64_t image, int64_t group, float *planes, float *dy, const int64_t *at,
                      double *sums) {
  const conv2d *c = job->c;
  const int64_t pixels = c->h.size * c->w.size;
  widen_group(job, image, group, planes);
  const bool x_finite = c->kernels->finite(c->in_channels * pixels, conv_image(c->x, c, image, group, 0, c->in_channels, pixels));
  for (int64_t o = 0; o < c->out_channels; o++) {
    memset(dy, 0, (size_t)(c->h.out * job->pitch) * sizeof *dy);
    c->kernels->widen_rows(c->h.out, c->w.out, conv_image(c->dy, c, image, group, o, c->out_channels, c->pixels), c->w.out, 1, dy,
                           job->pitch);
    for (int64_t i = 0; i < c->in_channels; i++, sums += c->taps) {
      const float *x = planes + i * job->plane;
      if (x_finite) {
        c->kernels->dots((c->h.out - 1) * job->pitch + c->w.out, c->taps, dy, x, at, sums);
      } else {
        for (int64_t y = 0; y < c->h.out; y++)
          c->kernels->dots(c->w.out, c->taps, dy + y * job->pitch, x + y * job->pitch, at, sums);
      }
    }
  }
}

static int64_t group_weights(const conv2d *c) { return c->out_channels * c->in_channels * c->taps; }

static int64_t weight_task_floats(const planes_job *job) {
  const conv2d *c = job->c;
  return 2 * (group_weights(c) + c->taps) + group_weights(c) + job->sources * job->plane + c->h.out * job->pitch + 2 * SLACK;
}

static void weight_task(const void *arg, int64_t group, char *workspace) {
  const planes_job *job = arg;
  const conv2d *c = job->c;
  const int64_t weights = group_weights(c);
  double *sums = (double *)(void *)workspace;
  int64_t *at = (int64_t *)(void *)(sums + weights);
  float *rounded = (float *)(void *)(at + c->taps), *dy = rounded + weights, *planes = dy + c->h.out * job->pitch + SLACK;
  for (int64_t t = 0; t < c->taps; t++) at[t] = tap_place(job, t / c->w.kernel, t % c->w.kernel);
  memset(sums, 0, (size_t)weights * sizeof *sums);
  for (int64_t image = 0; image < c->batch; image++) add_image(job, image, group, planes, dy, at, sums);
  c->kernels->round(weights, sums, rounded);
  if (!c->dw_f32) {
    c->kernels->narrow(weights, rounded, (uint16_t *)c->dw + group * weights);
    return;
  }
  for (int64_t i = 0; i < weights; i++) ((float *)c->dw)[group * weights + i] = canonical_nan(rounded[i]);
}

/* Groups are the tasks, so that there should be some. */
enum { GROUPS_MIN = 8 };

bool tc_conv_planes_suit_backward_weight(const conv2d *c) {
  if (c->batch == 0 || c->groups < GROUPS_MIN || !suits(c, c->in_channels, c->out_channels)) return false;
  const planes_job job = describe(c, c->x, false);
  return weight_task_floats(&job) <= TASK_FLOATS_MAX;
}

tc_status_t tc_conv_planes_backward_weight(tc_cpu *cpu, const conv2d *c) {
  const planes_job job = describe(c, c->x, false);
  tc_team team;
  const size_t bytes = (size_t)weight_task_floats(&job) * sizeof(float);
  TC_TRY(tc_team_take(cpu, tc_cpu_threads(cpu, conv_multiplies(c)), c->groups, bytes, &team));
  tc_team_run(&team, c->groups, weight_task, &job);
  tc_team_give(&team);
  return TC_OK;
}
