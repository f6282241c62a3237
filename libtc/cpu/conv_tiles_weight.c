/* SPDX-License-Identifier: MIT
 *
 * The gradient of the weight by tile products (split.h), tap by tap: dW[o,i,t] = sum over pixels of dY[o,p] * X[i, p moved by t]. Terms
 * are pixels, so A tiles are rows of dY, and B tiles have pairs of terms of 16 channels of X. Both images are split and relaid once, on
 * grids of the same pitch, with the taps' reach as a margin: so all output pixels of an image are one run of terms (those in margins
 * are zeros of dY), and a tap is X from another place on. At each place several images lie side by side: their run fills steps better,
 * and if they are an even number, a tap moves by whole pairs. Of single images X is there twice, the second time from its second pixel
 * on, for odd distances. Where the stride is s, X falls into s by s grids of every s-th pixel.
 *
 * A task has 32 output by 32 input channels, all taps, and the chunks of terms of one piece. A chunk's parts of dY and X stay in a near
 * cache while all taps use them. The second level of the sums is fp32 within a piece, fp64 over pieces; pieces are cut by the shape.
 */
#include <stdatomic.h>
#include <string.h>

#include "cpu/conv_axes.h"
#include "f16.h"
#include "status.h"

enum {
  PANEL = 2 * TC_SPLIT_COLUMNS, /* channels of X in a register block */
  ROW = 64,                     /* bytes of a tile's row */
  TILE_BYTES = 16 * ROW,
  BUNDLE_MAX = 8,
  CHUNKS_MAX = 64, /* that the second level adds in fp32 */
  STAGED = 256,    /* terms that are staged at once */
};

/* One axis: tap t sees position place*stride + phase[t] of X where dY has place - shift[t] (counted from the margin's start). */
typedef struct grid_axis {
  int64_t size, stride, out, grid; /* grid: places, dY's and the margin */
  int64_t start;                   /* of the margin: place 0 is position start*stride + phase of X */
  int64_t phase[AXIS_TAPS_MAX], shift[AXIS_TAPS_MAX];
} grid_axis;

static grid_axis grid_of(const axis *a) {
  grid_axis g = {.size = a->size, .stride = a->stride, .out = a->out};
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (int64_t t = 0; t < a->kernel; t++) {
    const int64_t reach = t * a->dilation - a->pad;
    g.shift[t] = floor_div(reach, a->stride);
    g.phase[t] = phase_of_tap(a, t);
    first = min(first, g.shift[t]);
    last = max(last, g.shift[t]);
  }
  for (int64_t t = 0; t < a->kernel; t++) g.shift[t] -= first;
  g.start = first;
  g.grid = a->out + last - first;
  return g;
}

/* Places of a phase that lie on X. */
static range places_inside(const grid_axis *g, int64_t phase) {
  const int64_t before = -(g->start * g->stride + phase), last = g->size - 1 + before;
  return (range){before > 0 ? ceil_div(before, g->stride) : 0, last < 0 ? 0 : min(g->grid, last / g->stride + 1)};
}

/* Places from a row to the next. What a tap sees right of a row is the left margin of the next one, so that one margin may do for both. */
static int64_t pitch_of(const grid_axis *g) {
  int64_t pitch = g->out;
  for (int64_t phase = 0; phase < g->stride; phase++) {
    const range inside = places_inside(g, phase);
    if (inside.first < inside.end) pitch = max(pitch, max(inside.end, g->grid - inside.first));
  }
  return pitch;
}

typedef struct weight_job {
  const conv2d *c;
  const tc_split_kernels *split;
  grid_axis h, w;
  int64_t pitch, bundle;            /* places from a row to the next; images side by side */
  int64_t rows, o_panels, i_panels; /* of an A tile; register blocks */
  int64_t blocks;                   /* register blocks of all groups */
  int64_t steps;                    /* of a bundle */
  int64_t copies, grids, region;    /* of X; bytes of hi (or lo) of one copy of 16 channels of a grid */
  int64_t a_panel, b_tile;          /* bytes of a bundle: of a panel of dY, and of 16 channels of X */
  int64_t bundles, pieces;          /* of a pass */
  int64_t first_bundle;             /* of this pass */
  char *a, *b;                      /* [bundle of the pass][groups][o_panels], [..][groups][2*i_panels][grids][copies][hi, lo] */
  float *sums;                      /* [pieces][blocks][2*rows][taps][PANEL] */
  double *totals;                   /* of the passes before, likewise; NULL if there is one pass */
  atomic_bool *special;
} weight_job;

static int64_t all_bundles(const weight_job *job) { return ceil_div(job->c->batch, job->bundle); }

static int64_t pass_bundles(const weight_job *job) { return min(job->bundles, all_bundles(job) - job->first_bundle); }

static int64_t row_sums(const weight_job *job) { return job->c->taps * PANEL; }

static int64_t block_sums(const weight_job *job) { return 2 * job->rows * row_sums(job); }

static bool one_piece_is_all(const weight_job *job) { return job->pieces == 1 && !job->totals; }

/* ---- Packing ---- */

static void note_special(const weight_job *job, bool special) {
  if (special) atomic_store_explicit(job->special, true, memory_order_relaxed);
}

/* Images whose pixel (y*step_h + phase_h, x*step_w + phase_w) lies at place (y - start_h)*pitch + x - start_w of grid phase_w, as far as
 * places are within rows and columns. */
typedef struct source {
  const uint16_t *src; /* of the first image */
  int64_t images, image, count, plane;
  int64_t height, width, step_h, step_w, phase_h, start_h, start_w, rows, columns;
} source;

/* Neighbouring pixels of a plane, and where in at it says where they go. */
typedef struct run {
  int64_t src, n, at;
} run;

typedef struct stager {
  float staged[(STAGED + PHASES_MAX * BUNDLE_MAX) * PANEL]; /* [step_w][terms][channel] */
  int64_t at[STAGED + 2 * PHASES_MAX];
  run runs[STAGED + 2];
} stager;

/* Terms of each grid that are staged at once, and places between grids there, for one term more. */
static int64_t staged_terms(int64_t grids) { return STAGED / grids / TC_SPLIT_TERMS * TC_SPLIT_TERMS; }

/* Pixels at places first .. end-1 of any of the grids. */
static int64_t list_runs(const weight_job *job, const source *s, int64_t first, int64_t end, int64_t grid, stager *st) {
  int64_t runs = 0, pixels = 0;
  for (int64_t y = first / job->pitch; y < s->rows && y * job->pitch < end; y++) {
    const int64_t row = y * job->pitch, line = (y + s->start_h) * s->step_h + s->phase_h;
    const range places = range_clip((range){0, s->columns}, first - row, end - row);
    const range x =
        range_clip((range){(places.first + s->start_w) * s->step_w, (places.end + s->start_w) * s->step_w}, 0, s->width);
    if (line < 0 || line >= s->height || x.first == x.end) continue;
    const int64_t src = line * s->width + x.first;
    if (runs && st->runs[runs - 1].src + st->runs[runs - 1].n == src) {
      st->runs[runs - 1].n += x.end - x.first;
    } else {
      st->runs[runs++] = (run){src, x.end - x.first, pixels};
    }
    for (int64_t i = x.first; i < x.end; i++)
      st->at[pixels++] = (i % s->step_w * grid + (row + i / s->step_w - s->start_w - first) * job->bundle) * PANEL;
  }
  return runs;
}

/* Terms from first on, of each grid so many as staged_terms says and those of one place more; zeros where no pixel is. */
static void stage(const weight_job *job, const source *s, int64_t first, stager *st) {
  const int64_t terms = staged_terms(s->step_w), grid = terms + job->bundle, place = first / job->bundle;
  const int64_t runs = list_runs(job, s, place, place + grid / job->bundle, grid, st);
  memset(st->staged, 0, (size_t)(s->step_w * grid * PANEL) * sizeof(float));
  for (int64_t image = 0; image < s->images; image++) {
    for (const run *r = st->runs; r < st->runs + runs; r++)
      job->c->kernels->spread(s->count, r->n, s->src + image * s->image + r->src, s->plane, st->staged + image * PANEL,
                              st->at + r->at);
  }
}

static source source_of(const weight_job *job, const uint16_t *tensor, int64_t bundle, int64_t group, int64_t first, int64_t count,
                        int64_t channels, int64_t plane) {
  const int64_t image = (job->first_bundle + bundle) * job->bundle;
  return (source){.src = conv_image(tensor, job->c, image, group, first, channels, plane),
                  .images = min(job->bundle, job->c->batch - image),
                  .image = job->c->groups * channels * plane,
                  .count = min(count, channels - first),
                  .plane = plane};
}

/* One panel of dY of one bundle: [step][hi, lo][row]. */
static void pack_dy_task(const void *arg, int64_t task, char *workspace) {
  const weight_job *job = arg;
  const conv2d *c = job->c;
  const int64_t panel = task % job->o_panels, group = task / job->o_panels % c->groups, bundle = task / job->o_panels / c->groups;
  const int64_t half = 2 * job->rows * ROW, terms = staged_terms(1);
  const tc_split_form form = {.along = true, .rows = job->rows, .lda = ROW};
  stager *st = (stager *)(void *)workspace;
  source dy = source_of(job, c->dy, bundle, group, panel * 2 * job->rows, 2 * job->rows, c->out_channels, c->pixels);
  dy.height = dy.rows = c->h.out;
  dy.width = dy.columns = c->w.out;
  dy.step_h = dy.step_w = 1;
  for (int64_t step = 0; step < job->steps; step++) {
    const int64_t at = step * TC_SPLIT_TERMS % terms;
    if (at == 0) stage(job, &dy, step * TC_SPLIT_TERMS, st);
    for (int64_t row = 0; row < dy.count; row += job->rows) {
      char *hi = job->a + task * job->a_panel + step * 2 * half + row * ROW;
      note_special(job, job->split->pack(&form, st->staged + at * PANEL + row, PANEL, hi, hi + half));
    }
  }
}

/* All copies of one tile's rows in all grids of a row's phases; to is the first grid's. */
static void pack_x_rows(const weight_job *job, const stager *st, int64_t at, int64_t channel, char *to) {
  static const tc_split_form form = {.along = true, .pairs = true};
  const int64_t phases = job->w.stride, grid = staged_terms(phases) + job->bundle;
  for (int64_t part = 0; part < phases * job->copies; part++) {
    const float *from = st->staged + (part / job->copies * grid + at + part % job->copies) * PANEL + channel;
    char *hi = to + part * 2 * job->region;
    note_special(job, job->split->pack(&form, from, PANEL, hi, hi + job->region));
  }
}

/* 32 channels of one bundle of X, in all grids of one phase of rows. */
static void pack_x_task(const void *arg, int64_t task, char *workspace) {
  const weight_job *job = arg;
  const conv2d *c = job->c;
  const int64_t phase = task % job->h.stride, item = task / job->h.stride, panel = item % job->i_panels;
  const int64_t group = item / job->i_panels % c->groups, bundle = item / job->i_panels / c->groups;
  const int64_t terms = staged_terms(job->w.stride);
  stager *st = (stager *)(void *)workspace;
  source x = source_of(job, c->x, bundle, group, panel * PANEL, PANEL, c->in_channels, c->h.size * c->w.size);
  x.height = job->h.size, x.rows = job->h.grid, x.step_h = job->h.stride, x.start_h = job->h.start, x.phase_h = phase;
  x.width = job->w.size, x.columns = job->w.grid, x.step_w = job->w.stride, x.start_w = job->w.start;
  char *to = job->b + item * 2 * job->b_tile + phase * job->w.stride * job->copies * 2 * job->region;
  for (int64_t at = 0; at < job->region; at += TILE_BYTES) {
    const int64_t term = at / ROW * 2;
    if (term % terms == 0) stage(job, &x, term, st);
    for (int64_t channel = 0; channel < x.count; channel += TC_SPLIT_COLUMNS)
      pack_x_rows(job, st, term % terms, channel, to + channel / TC_SPLIT_COLUMNS * job->b_tile + at);
  }
}

/* ---- Sums ---- */

/* A register block of a group. */
typedef struct part {
  int64_t group, o_panel, i_panel;
  int64_t outs, ins; /* channels that it has */
} part;

static part part_of(const weight_job *job, int64_t block) {
  part p = {block / job->i_panels / job->o_panels, block / job->i_panels % job->o_panels, block % job->i_panels, 0, 0};
  p.outs = min(2 * job->rows, job->c->out_channels - p.o_panel * 2 * job->rows);
  p.ins = min(PANEL, job->c->in_channels - p.i_panel * PANEL);
  return p;
}

typedef struct worker {
  const weight_job *job;
  part part;
  float *sums;    /* [row][taps][PANEL] */
  float *partial; /* of a chunk: [row][PANEL] */
  float *to;      /* the sums that wait for partial, or NULL */
} worker;

static void add_slice(void *self, int64_t slice, int64_t slices) {
  worker *w = self;
  const int64_t rows = w->part.outs, ld = row_sums(w->job);
  for (int64_t r = rows * slice / slices; w->to && r < rows * (slice + 1) / slices; r++) {
    for (int64_t i = 0; i < PANEL; i++) w->to[r * ld + i] += w->partial[r * PANEL + i];
  }
}

/* The terms of some steps of the pass, for one tap. */
static void multiply(worker *w, int64_t first, int64_t steps, int64_t tap, bool first_chunk) {
  const weight_job *job = w->job;
  const conv2d *c = job->c;
  const int64_t ky = tap / c->w.kernel, kx = tap % c->w.kernel, half = 2 * job->rows * ROW;
  const int64_t grid = job->h.phase[ky] * job->w.stride + job->w.phase[kx],
                shift = (job->h.shift[ky] * job->pitch + job->w.shift[kx]) * job->bundle;
  const tc_split_layout layout = {ROW, half, job->rows * ROW, ROW, job->region, job->b_tile};
  const tc_split_side side = {add_slice, w};
  tc_split_step step[TC_SPLIT_STEPS_MAX];
  for (int64_t s = 0; s < steps; s++) {
    const int64_t at = (first + s) % job->steps, item = (first + s) / job->steps * c->groups + w->part.group;
    step[s].a = job->a + (item * job->o_panels + w->part.o_panel) * job->a_panel + at * 2 * half;
    step[s].b = job->b + (item * job->i_panels + w->part.i_panel) * 2 * job->b_tile +
                (grid * job->copies + shift % 2) * 2 * job->region + (at * TC_SPLIT_TERMS + shift) / 2 * ROW;
  }
  float *sums = w->sums + tap * PANEL;
  const tc_split_block block = {.layout = &layout,
                                .a_tiles = w->part.outs > job->rows ? 2 : 1,
                                .b_tiles = w->part.ins > TC_SPLIT_COLUMNS ? 2 : 1,
                                .rows = job->rows,
                                .strict = c->strict,
                                .steps = steps,
                                .step = step,
                                .c = first_chunk ? sums : w->partial,
                                .ldc = first_chunk ? row_sums(job) : PANEL,
                                .c_next = job->rows * (first_chunk ? row_sums(job) : PANEL)};
  job->split->gemm(&block, &side);
  w->to = first_chunk ? NULL : sums;
}

/* Results from [taps][PANEL] to [in_channels][taps]. */
static void store_row(const weight_job *job, const part *p, int64_t row, const float *sums) {
  const conv2d *c = job->c;
  const int64_t out = p->group * c->out_channels + p->o_panel * 2 * job->rows + row;
  const int64_t at = (out * c->in_channels + p->i_panel * PANEL) * c->taps;
  if (!c->dw_f32) {
    c->kernels->gather(p->ins, c->taps, sums, PANEL, NULL, (uint16_t *)c->dw + at, c->taps);
    return;
  }
  for (int64_t i = 0; i < p->ins; i++) {
    for (int64_t t = 0; t < c->taps; t++) ((float *)c->dw)[at + i * c->taps + t] = canonical_nan(sums[t * PANEL + i]);
  }
}

/* Steps of a chunk. */
static int64_t chunk_steps(const weight_job *job) { return even_part(pass_bundles(job) * job->steps, TC_SPLIT_STEPS_MAX); }

static void compute_task(const void *arg, int64_t task, char *workspace) {
  const weight_job *job = arg;
  const int64_t piece = task / job->blocks, taps = job->c->taps;
  const int64_t steps = pass_bundles(job) * job->steps, chunk = chunk_steps(job), chunks = ceil_div(steps, chunk);
  const int64_t first = chunks * piece / job->pieces * chunk, end = min(steps, chunks * (piece + 1) / job->pieces * chunk);
  float *partial = (float *)(void *)workspace, *own = partial + 2 * job->rows * PANEL;
  worker w = {.job = job,
              .part = part_of(job, task % job->blocks),
              .sums = one_piece_is_all(job) ? own : job->sums + task * block_sums(job),
              .partial = partial};
  if (w.part.ins <= TC_SPLIT_COLUMNS || first == end) memset(w.sums, 0, (size_t)block_sums(job) * sizeof *w.sums);
  job->split->begin(job->rows);
  for (int64_t at = first; at < end; at += chunk) {
    for (int64_t t = 0; t < taps; t++) multiply(&w, at, min(chunk, end - at), t, at == first);
  }
  job->split->end();
  add_slice(&w, 0, 1);
  for (int64_t r = 0; r < w.part.outs && one_piece_is_all(job); r++) store_row(job, &w.part, r, w.sums + r * row_sums(job));
}

/* One block: the sums of the pass's pieces are added in their order; after the last pass they are the result. */
static void reduce_task(const void *arg, int64_t block, char *workspace) {
  const weight_job *job = arg;
  const part p = part_of(job, block);
  const int64_t n = row_sums(job);
  const bool last = job->first_bundle + pass_bundles(job) == all_bundles(job);
  float *rounded = (float *)(void *)workspace;
  double *own = (double *)(void *)(rounded + n);
  for (int64_t r = 0; r < p.outs; r++) {
    double *sums = job->totals ? job->totals + block * block_sums(job) + r * n : own;
    if (job->first_bundle == 0) memset(sums, 0, (size_t)n * sizeof *sums);
    for (int64_t piece = 0; piece < job->pieces; piece++)
      job->c->kernels->add(n, job->sums + (piece * job->blocks + block) * block_sums(job) + r * n, sums);
    if (!last) continue;
    job->c->kernels->round(n, sums, rounded);
    store_row(job, &p, r, rounded);
  }
}

/* ---- The call ---- */

static const int64_t PASS_BYTES = 64 << 20, SUMS_BYTES = 64 << 20, TASKS = 32;

static int64_t image_terms(const weight_job *job) { return (job->c->h.out - 1) * job->pitch + job->c->w.out; }

/* Of the numbers of images that make about the fewest steps, the smallest even one. */
static int64_t bundle_of(const weight_job *job, int64_t image_bytes) {
  int64_t steps[BUNDLE_MAX + 1], fewest = INT64_MAX;
  for (int64_t b = 1; b <= BUNDLE_MAX; b *= 2) {
    steps[b] = b > 1 && b * image_bytes > PASS_BYTES ? INT64_MAX
                                                     : ceil_div(job->c->batch, b) * ceil_div(b * image_terms(job), TC_SPLIT_TERMS);
    fewest = min(fewest, steps[b]);
  }
  for (int64_t b = 2; b <= BUNDLE_MAX; b *= 2) {
    if (steps[b] <= fewest + fewest / 32) return b;
  }
  return 1;
}

/* Everything but memory. Pieces are cut by the shape: enough for many threads, and none with too much to add in fp32. */
static void lay_out(weight_job *job) {
  const conv2d *c = job->c;
  const int64_t tiles = ceil_div(c->out_channels, TC_SPLIT_ROWS_MAX);
  job->pitch = pitch_of(&job->w);
  job->rows = ceil_div(c->out_channels, tiles);
  job->o_panels = ceil_div(tiles, 2);
  job->i_panels = ceil_div(c->in_channels, PANEL);
  job->blocks = c->groups * job->o_panels * job->i_panels;
  job->grids = c->h.stride * c->w.stride;
  const int64_t reach = (job->h.grid - c->h.out) * job->pitch + job->w.grid - c->w.out;
  const int64_t channels = 2 * job->i_panels * TC_SPLIT_COLUMNS * job->grids + 2 * job->o_panels * job->rows;
  job->bundle = bundle_of(job, 4 * c->groups * channels * (image_terms(job) + reach));
  job->copies = job->bundle % 2 ? 2 : 1;
  job->steps = ceil_div(job->bundle * image_terms(job), TC_SPLIT_TERMS);
  job->region = round_up((job->steps * TC_SPLIT_TERMS + reach * job->bundle) / 2 + 1, 16) * ROW;
  job->a_panel = job->steps * 4 * job->rows * ROW;
  job->b_tile = job->grids * job->copies * 2 * job->region;
  const int64_t bytes = c->groups * (job->o_panels * job->a_panel + 2 * job->i_panels * job->b_tile);
  job->bundles = min(all_bundles(job), max(1, PASS_BYTES / bytes));
  const int64_t chunks = ceil_div(job->bundles * job->steps, TC_SPLIT_STEPS_MAX);
  const int64_t sums = job->blocks * block_sums(job) * (int64_t)sizeof(float);
  job->pieces = min(min(chunks, ceil_div(TASKS, job->blocks)), max(1, SUMS_BYTES / sums));
  job->pieces = max(job->pieces, ceil_div(chunks, CHUNKS_MAX));
}

static void run_passes(weight_job *job, const tc_team *team) {
  const conv2d *c = job->c;
  for (job->first_bundle = 0; job->first_bundle < all_bundles(job); job->first_bundle += job->bundles) {
    tc_team_run(team, pass_bundles(job) * c->groups * job->o_panels, pack_dy_task, job);
    tc_team_run(team, pass_bundles(job) * c->groups * job->i_panels * job->h.stride, pack_x_task, job);
    if (*job->special) return;
    tc_team_run(team, job->pieces * job->blocks, compute_task, job);
    if (!one_piece_is_all(job)) tc_team_run(team, job->blocks, reduce_task, job);
  }
}

static tc_status_t run_with_sums(tc_cpu *cpu, weight_job *job) {
  const conv2d *c = job->c;
  const size_t a_bytes = (size_t)(job->bundles * c->groups * job->o_panels * job->a_panel);
  const size_t b_bytes = (size_t)(job->bundles * c->groups * 2 * job->i_panels * job->b_tile);
  const size_t compute = (size_t)(2 * job->rows * PANEL + block_sums(job)) * sizeof(float);
  const size_t reduce = (size_t)row_sums(job) * (sizeof(float) + sizeof(double));
  void *packed;
  TC_TRY(tc_workspace_take(cpu, TC_WORKSPACE_PACKED, a_bytes + b_bytes, &packed));
  job->a = packed;
  job->b = job->a + a_bytes;
  tc_team team;
  const size_t workspace = (size_t)max((int64_t)sizeof(stager), max((int64_t)compute, (int64_t)reduce));
  const tc_status_t status = tc_team_take(cpu, tc_cpu_threads(cpu, conv_multiplies(c)), INT64_MAX, workspace, &team);
  if (status == TC_OK) {
    run_passes(job, &team);
    tc_team_give(&team);
  }
  tc_workspace_give(cpu, TC_WORKSPACE_PACKED, packed);
  return status;
}

/* A task uses its images for all taps, so there should be several. All sums are kept, and an image's grids, so there shouldn't be too
 * many of them. */
static const double IMAGE_BYTES_MAX = 1 << 28;

bool tc_conv_tiles_suit_backward_weight(const conv2d *c) {
  if (c->taps == 1 || c->taps > TAPS_MAX || c->h.kernel > AXIS_TAPS_MAX || c->w.kernel > AXIS_TAPS_MAX) return false;
  if (c->h.stride > PHASES_MAX || c->w.stride > PHASES_MAX || c->in_channels < 12 || c->w.out < 4) return false;
  const grid_axis h = grid_of(&c->h), w = grid_of(&c->w);
  const double places = (double)h.grid * (double)w.grid * (double)c->groups;
  const double channels = 2 * (double)(c->h.stride * c->w.stride) * (double)c->in_channels + (double)c->out_channels;
  const double sums = (double)c->groups * (double)c->out_channels * (double)c->in_channels * (double)c->taps * sizeof(double);
  return 4 * places * channels <= IMAGE_BYTES_MAX && 2 * sums <= (double)SUMS_BYTES;
}

tc_status_t tc_conv_tiles_backward_weight(tc_cpu *cpu, const conv2d *c, conv_driver *vector) {
  atomic_bool special = false;
  weight_job job = {.c = c, .split = cpu->split, .h = grid_of(&c->h), .w = grid_of(&c->w), .special = &special};
  tc_kernel_use(cpu->split->name);
  lay_out(&job);
  const bool passes = job.bundles < all_bundles(&job);
  const size_t weights = (size_t)(job.blocks * block_sums(&job));
  void *memory;
  TC_TRY(tc_workspace_take(cpu, TC_WORKSPACE_PARTIALS,
                           weights * ((passes ? sizeof(double) : 0) + (size_t)job.pieces * sizeof(float)), &memory));
  if (passes) job.totals = memory;
  job.sums = (float *)memory + (passes ? 2 * weights : 0);
  const tc_status_t status = run_with_sums(cpu, &job);
  tc_workspace_give(cpu, TC_WORKSPACE_PARTIALS, memory);
  return status == TC_OK && special ? vector(cpu, c) : status;
}
