/* SPDX-License-Identifier: MIT */
#include "count.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "kernels/dispatch.h"
#include "metal/plan_steps.h"

/* ---- What the threadgroups of a step have to do ---- */

/* Both structs of parameters begin alike. */
#define SAME_FIELD(field) \
  _Static_assert(offsetof(tc_gemm_params, field) == offsetof(tc_conv2d_params, field), #field " must have the same place")
SAME_FIELD(M);
SAME_FIELD(N);
SAME_FIELD(K);
SAME_FIELD(part);
SAME_FIELD(parts);

/* A step, with its parameters read. */
typedef struct layout {
  const tc_plan_step *step;
  tc_conv2d_params p; /* of GEMM: just the fields that are the same */
  tc_plan_tile tile;  /* of a step of elements: a threadgroup's rows and columns, K is 0 */
  uint64_t phases_x, phases;
} layout;

/* What tells threadgroups apart. */
typedef struct kind {
  uint64_t phase; /* backward_input */
  uint64_t rows, columns, depth;
} kind;

static bool named(const tc_plan_step *step, const char *beginning) {
  return strncmp(step->kernel.name, beginning, strlen(beginning)) == 0;
}

static tc_plan_tile tile_of(const tc_plan_step *step) {
  const char *last = strrchr(step->kernel.name, '_') + 1;
  for (size_t i = 0; i < tc_plan_tile_count; i++) {
    if (!strcmp(tc_plan_tiles[i].name, last)) return tc_plan_tiles[i];
  }
  return (tc_plan_tile){last, step->threads[1], step->threads[0], 0, 0};
}

static layout layout_of(const tc_plan_step *step) {
  layout l = {.step = step, .tile = tile_of(step), .phases_x = 1, .phases = 1};
  memcpy(&l.p, step->params, step->params_bytes < sizeof l.p ? step->params_bytes : sizeof l.p);
  if (named(step, "tc_conv2d_backward_input_window") || named(step, "tc_conv2d_backward_input_reduce")) {
    l.phases_x = tc_plan_min((uint64_t)l.p.stride_w, (uint64_t)l.p.W);
    l.phases = l.phases_x * tc_plan_min((uint64_t)l.p.stride_h, (uint64_t)l.p.H);
  }
  return l;
}

/* Every stride-th of size elements from first on. */
static uint64_t every(int64_t size, uint64_t first, int32_t stride) {
  return (int64_t)first < size ? tc_plan_ceil((uint64_t)size - first, (uint64_t)stride) : 0;
}

/* N and K of one phase: pixels that are a stride apart, and the taps that they see. */
static void phase_sizes(const layout *l, uint64_t phase, uint64_t *N, uint64_t *K) {
  const tc_conv2d_params *p = &l->p;
  const uint64_t y = phase / l->phases_x, x = phase % l->phases_x;
  *N = p->images * every(p->H, y, p->stride_h) * every(p->W, x, p->stride_w);
  *K = p->out_channels * every(p->kH, (y + (uint64_t)p->pad_h) % (uint64_t)p->stride_h, p->stride_h) *
       every(p->kW, (x + (uint64_t)p->pad_w) % (uint64_t)p->stride_w, p->stride_w);
}

static uint64_t left(uint64_t size, uint64_t first, uint64_t most) { return first < size ? tc_plan_min(size - first, most) : 0; }

/* Of the threadgroup at (x, y, z) of the whole grid. Tiles come in stripes of 8 rows, as tile_of in metal/tile.h has it. */
static kind kind_of(const layout *l, uint64_t x, uint64_t y, uint64_t z) {
  const tc_conv2d_params *p = &l->p;
  const bool tiles = l->tile.K > 0;
  uint64_t N = p->N, K = p->K, row = y, column = x;
  if (tiles) {
    const uint64_t columns = tc_plan_ceil(p->N, l->tile.N), first = y - y % 8;
    const uint64_t height = tc_plan_min(8, tc_plan_ceil(p->M, l->tile.M) - first), place = (y - first) * columns + x;
    row = first + place % height;
    column = place / height;
  }
  const uint64_t product = tiles ? z / p->parts : z, phase = product % l->phases;
  if (l->phases > 1) phase_sizes(l, phase, &N, &K);
  return (kind){.phase = phase,
                .rows = left(p->M, row * l->tile.M, l->tile.M),
                .columns = left(N, column * l->tile.N, l->tile.N),
                .depth = tiles ? left(K, z % p->parts * p->part, p->part) : 0};
}

/* ---- Kinds in a grid ---- */

/* Threadgroups of one kind, in the order of the grid. A grid has few kinds: edges, parts and phases. */
enum { KINDS = 256, SAMPLES = 4 };
typedef struct group {
  kind kind;
  uint64_t count, seen, samples;
  uint64_t places[SAMPLES][3]; /* spread over the grid */
} group;

static group *group_find(group *groups, size_t *count, kind k) {
  size_t i = 0;
  while (i < *count && memcmp(&groups[i].kind, &k, sizeof k)) i++;
  if (i == KINDS) give_up("more than %d kinds of threadgroups", KINDS);
  if (i == *count) groups[(*count)++] = (group){.kind = k};
  return &groups[i];
}

static void note_place(group *g, uint64_t most, const uint64_t place[3]) {
  const uint64_t wanted = tc_plan_min(most, g->count);
  if (g->samples < wanted && g->seen == g->samples * g->count / wanted) memcpy(g->places[g->samples++], place, sizeof g->places[0]);
  g->seen++;
}

/* Calls either count (samples is 0) or note_place for each threadgroup. */
static void each_place(const layout *l, group *groups, size_t *kinds, uint64_t samples) {
  const tc_origin *o = &l->p.origin;
  const uint32_t *grid = l->step->threadgroups;
  for (uint64_t z = o->z; z < o->z + grid[2]; z++) {
    for (uint64_t y = o->y; y < o->y + grid[1]; y++) {
      for (uint64_t x = o->x; x < o->x + grid[0]; x++) {
        group *g = group_find(groups, kinds, kind_of(l, x, y, z));
        if (samples == 0) {
          g->count++;
        } else {
          note_place(g, samples, (uint64_t[3]){x, y, z});
        }
      }
    }
  }
}

/* ---- Counting ---- */

enum { COUNTERS = sizeof(face_counters) / sizeof(uint64_t) };
typedef union counts {
  face_counters counters;
  uint64_t values[COUNTERS];
} counts;

static bool run_one(const tc_plan_step *step, const uint64_t place[3], const face_binding operands[TC_ROLES], counts *one) {
  tc_plan_step cut = *step;
  const tc_origin origin = {.z = place[2], .x = (uint32_t)place[0], .y = (uint32_t)place[1]};
  memcpy(cut.params, &origin, sizeof origin);
  memcpy(cut.threadgroups, (uint32_t[3]){1, 1, 1}, sizeof cut.threadgroups);
  return step_run(&cut, operands, &one->counters);
}

static bool run_group(const tc_plan_step *step, const group *g, const face_binding operands[TC_ROLES], counts *sum) {
  counts samples = {0};
  for (uint64_t i = 0; i < g->samples; i++) {
    counts one;
    if (!run_one(step, g->places[i], operands, &one)) return false;
    for (int j = 0; j < COUNTERS; j++) samples.values[j] += one.values[j];
  }
  for (int j = 0; j < COUNTERS; j++) sum->values[j] += samples.values[j] * g->count / g->samples;
  return true;
}

static bool is_split(const tc_plan_step *step) {
  for (uint32_t i = 0; i < step->kernel.constant_count; i++) {
    if (step->kernel.constants[i].index == TC_CONSTANT_SPLIT) return step->kernel.constants[i].value;
  }
  return false;
}

/* Of one threadgroup. */
static uint64_t needed_by(const kind *k, uint64_t output_bytes) {
  return 2 * (k->rows + k->columns) * k->depth + output_bytes * k->rows * k->columns;
}

bool step_count_all(const tc_plan_step *step, const face_binding operands[TC_ROLES], step_count *count) {
  *count = (step_count){0};
  if (named(step, "tc_zero")) return step_run(step, operands, &count->counters); /* has no rows and columns, and is small */
  const layout l = layout_of(step);
  group groups[KINDS];
  size_t kinds = 0;
  counts sum = {0};
  each_place(&l, groups, &kinds, 0);
  each_place(&l, groups, &kinds, strstr(step->kernel.name, "_window_") ? SAMPLES : 1);
  for (size_t i = 0; i < kinds; i++) {
    if (!run_group(step, &groups[i], operands, &sum)) return false;
    if (l.tile.K) count->needed += groups[i].count * needed_by(&groups[i].kind, is_split(step) ? 4 : 2);
  }
  count->counters = sum.counters;
  return true;
}
