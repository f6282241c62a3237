/* SPDX-License-Identifier: MIT
 *
 * The gradient of the weight by tile products (split.h), tap by tap: dW[o,i,t] = sum over pixels of dY[o,p] * X[i, p moved by t]. Terms
 * are pixels, so A tiles are rows of dY, and B tiles have pairs of pixels of 16 channels of X. Both images are split and relaid once, on
 * grids of the same pitch, with the taps' reach as a margin: so all output pixels of an image are one run of terms (those in margins
 * are zeros of dY), and a tap is X from another pixel on. An odd distance breaks the pairs, therefore X is there twice, the second time
 * from its second pixel on. Where the stride is s, X falls into s by s grids of every s-th pixel.
 *
 * A task has 32 output by 32 input channels, all taps, and the images of one piece. It goes through chunks of terms; each one's parts of
 * dY and X stay in a near cache while all taps use them. The fp64 sums of pieces, which are cut by the shape, are added in order.
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
  GRIDS_MAX = PHASES_MAX * PHASES_MAX,
  STAGED = 512, /* positions that are staged at once */
  STAGED_LD = STAGED + TC_SPLIT_TERMS + 16,
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

typedef struct weight_job {
  const conv2d *c;
  const tc_split_kernels *split;
  grid_axis h, w;
  int64_t rows, o_panels, i_panels; /* of an A tile; register blocks */
  int64_t steps;                    /* of an image */
  int64_t grids, region;            /* of X; bytes of hi (or lo) of one copy of 16 channels of a grid */
  int64_t a_panel, b_tile;          /* bytes of an image: of a panel of dY, and of 16 channels of X */
  int64_t images, pieces;           /* of a piece; in all */
  int64_t first_piece, slots;       /* of a pass */
  char *a, *b;                      /* [image of the pass][groups][o_panels], [..][groups][2*i_panels][grids][copies][hi, lo] */
  double *sums; /* [slots + 1][groups][out_channels][in_channels*taps]; the last are those of all pieces so far */
  atomic_bool *special;
} weight_job;

static int64_t group_weights(const weight_job *job) { return job->c->out_channels * job->c->in_channels * job->c->taps; }

static int64_t pass_first_image(const weight_job *job) { return job->first_piece * job->images; }

/* Images of a piece, which may be the last one. */
static int64_t piece_images(const weight_job *job, int64_t piece) { return min(job->images, job->c->batch - piece * job->images); }

/* ---- Packing ---- */

static void note_special(const weight_job *job, bool special) {
  if (special) atomic_store_explicit(job->special, true, memory_order_relaxed);
}

/* staged[x][p] = element (x, first + p) of rows of n elements whose row y starts at position y*pitch + at; zeros elsewhere. Elements are
 * step apart in src, rows line, x plane. */
typedef struct grid_source {
  const uint16_t *src;
  int64_t count, rows, n, at, pitch, step, line, plane;
} grid_source;

static void stage(const weight_job *job, const grid_source *g, int64_t first, int64_t length, float *staged) {
  for (int64_t x = 0; x < TC_SPLIT_ROWS_MAX; x++) memset(staged + x * STAGED_LD, 0, (size_t)length * sizeof *staged);
  for (int64_t y = max(0, (first - g->at) / g->pitch - 1); y < g->rows; y++) {
    const int64_t start = y * g->pitch + g->at;
    const range part = range_clip((range){start, start + g->n}, first, first + length);
    if (start >= first + length) break;
    if (part.first == part.end) continue;
    job->c->kernels->widen_rows(g->count, part.end - part.first, g->src + y * g->line + (part.first - start) * g->step, g->plane,
                                g->step, staged + (part.first - first), STAGED_LD);
  }
}

/* One panel of dY of one image: [step][hi, lo][row]. */
static void pack_dy_task(const void *arg, int64_t task, char *workspace) {
  const weight_job *job = arg;
  const conv2d *c = job->c;
  const int64_t panel = task % job->o_panels, group = task / job->o_panels % c->groups, image = task / job->o_panels / c->groups;
  const tc_split_form form = {.rows = job->rows, .lda = ROW};
  float *staged = (float *)(void *)workspace;
  for (int64_t tile = 0; tile < 2; tile++) {
    const int64_t o = (panel * 2 + tile) * job->rows, count = min(job->rows, c->out_channels - o);
    if (count <= 0) return;
    const uint16_t *src = conv_image(c->dy, c, pass_first_image(job) + image, group, o, c->out_channels, c->pixels);
    const grid_source dy = {src, count, job->h.out, job->w.out, 0, job->w.grid, 1, job->w.out, c->pixels};
    for (int64_t step = 0; step < job->steps; step++) {
      const int64_t at = step * TC_SPLIT_TERMS % STAGED;
      if (at == 0) stage(job, &dy, step * TC_SPLIT_TERMS, STAGED, staged);
      char *hi = job->a + task * job->a_panel + (step * 4 + tile) * job->rows * ROW;
      note_special(job, job->split->pack(&form, staged + at, STAGED_LD, hi, hi + 2 * job->rows * ROW));
    }
  }
}

/* 16 channels of one grid of X of one image, both copies. */
static void pack_x_task(const void *arg, int64_t task, char *workspace) {
  const weight_job *job = arg;
  const conv2d *c = job->c;
  const int64_t grid = task % job->grids, tile = task / job->grids % (2 * job->i_panels);
  const int64_t group = task / job->grids / (2 * job->i_panels) % c->groups,
                image = task / job->grids / (2 * job->i_panels) / c->groups;
  const int64_t channel = tile * TC_SPLIT_COLUMNS, count = min(TC_SPLIT_COLUMNS, c->in_channels - channel);
  if (count <= 0) return;
  static const tc_split_form form = {.pairs = true};
  const int64_t py = grid / job->w.stride, px = grid % job->w.stride;
  const range rows = places_inside(&job->h, py), columns = places_inside(&job->w, px);
  const int64_t y = (rows.first + job->h.start) * job->h.stride + py, x = (columns.first + job->w.start) * job->w.stride + px;
  const uint16_t *src = conv_image(c->x, c, pass_first_image(job) + image, group, channel, c->in_channels, c->h.size * c->w.size);
  const grid_source from = {.src = src + y * c->w.size + x,
                            .count = count,
                            .rows = max(0, rows.end - rows.first),
                            .n = max(0, columns.end - columns.first),
                            .at = rows.first * job->w.grid + columns.first,
                            .pitch = job->w.grid,
                            .step = job->w.stride,
                            .line = job->h.stride * c->w.size,
                            .plane = c->h.size * c->w.size};
  float *staged = (float *)(void *)workspace;
  char *to = job->b + task * 4 * job->region;
  for (int64_t at = 0; at < job->region; at += TILE_BYTES) {
    const int64_t position = at / ROW * 2, within = position % STAGED;
    if (within == 0) stage(job, &from, position, STAGED + 1, staged);
    for (int64_t copy = 0; copy < 2; copy++) {
      char *hi = to + copy * 2 * job->region + at;
      note_special(job, job->split->pack(&form, staged + within + copy, STAGED_LD, hi, hi + job->region));
    }
  }
}

/* ---- Sums ---- */

typedef struct worker {
  const weight_job *job;
  int64_t group, o_panel, i_panel;
  double *sums;   /* [taps][row of the panel][PANEL] */
  float *partial; /* of a chunk */
  double *to;     /* the sums that wait for partial, or NULL */
} worker;

static void add_slice(void *self, int64_t slice, int64_t slices) {
  worker *w = self;
  const int64_t rows = 2 * w->job->rows, first = rows * slice / slices, end = rows * (slice + 1) / slices;
  if (w->to) w->job->c->kernels->add((end - first) * PANEL, w->partial + first * PANEL, w->to + first * PANEL);
}

/* Terms first .. first+steps-1 (in steps, through the images of a piece) of one tap. */
static void multiply(worker *w, int64_t image, int64_t first, int64_t steps, int64_t tap) {
  const weight_job *job = w->job;
  const conv2d *c = job->c;
  const int64_t ky = tap / c->w.kernel, kx = tap % c->w.kernel, half = 2 * job->rows * ROW;
  const int64_t grid = job->h.phase[ky] * job->w.stride + job->w.phase[kx],
                shift = job->h.shift[ky] * job->w.grid + job->w.shift[kx];
  const tc_split_layout layout = {ROW, half, job->rows * ROW, ROW, job->region, job->b_tile};
  const tc_split_side side = {add_slice, w};
  tc_split_step step[TC_SPLIT_STEPS_MAX];
  for (int64_t s = 0; s < steps; s++) {
    const int64_t i = image + (first + s) / job->steps, at = (first + s) % job->steps, item = i * c->groups + w->group;
    step[s].a = job->a + (item * job->o_panels + w->o_panel) * job->a_panel + at * 2 * half;
    step[s].b = job->b + (item * 2 * job->i_panels + 2 * w->i_panel) * job->b_tile + (grid * 4 + shift % 2 * 2) * job->region +
                (at * TC_SPLIT_TERMS + shift) / 2 * ROW;
  }
  const int64_t o = w->o_panel * 2 * job->rows, i = w->i_panel * PANEL;
  const tc_split_block block = {.layout = &layout,
                                .a_tiles = c->out_channels - o > job->rows ? 2 : 1,
                                .b_tiles = c->in_channels - i > TC_SPLIT_COLUMNS ? 2 : 1,
                                .rows = job->rows,
                                .strict = c->strict,
                                .steps = steps,
                                .step = step,
                                .c = w->partial,
                                .ldc = PANEL,
                                .c_next = job->rows * PANEL};
  job->split->gemm(&block, &side);
  w->to = w->sums + tap * 2 * job->rows * PANEL;
}

/* Moves the sums of the task to where all are: from [taps][o][i] to [o][i][taps]. */
static void deliver(const worker *w, int64_t slot) {
  const weight_job *job = w->job;
  const conv2d *c = job->c;
  const int64_t o = w->o_panel * 2 * job->rows, i = w->i_panel * PANEL, columns = min(PANEL, c->in_channels - i);
  double *to = job->sums + (slot * c->groups + w->group) * group_weights(job);
  for (int64_t r = 0; r < min(2 * job->rows, c->out_channels - o); r++) {
    double *row = to + ((o + r) * c->in_channels + i) * c->taps;
    for (int64_t t = 0; t < c->taps; t++) {
      const double *sums = w->sums + (t * 2 * job->rows + r) * PANEL;
      for (int64_t x = 0; x < columns; x++) row[x * c->taps + t] = sums[x];
    }
  }
}

static size_t sums_bytes(const weight_job *job) { return (size_t)(job->c->taps * 2 * job->rows * PANEL) * sizeof(double); }

static void compute_task(const void *arg, int64_t task, char *workspace) {
  const weight_job *job = arg;
  const conv2d *c = job->c;
  const int64_t blocks = job->o_panels * job->i_panels, slot = task / blocks / c->groups, piece = job->first_piece + slot;
  worker w = {.job = job,
              .group = task / blocks % c->groups,
              .o_panel = task / job->i_panels % job->o_panels,
              .i_panel = task % job->i_panels,
              .sums = (double *)(void *)workspace,
              .partial = (float *)(void *)(workspace + sums_bytes(job))};
  memset(w.sums, 0, sums_bytes(job));
  memset(w.partial, 0, (size_t)(2 * job->rows * PANEL) * sizeof(float));
  const int64_t steps = piece_images(job, piece) * job->steps, chunk = even_part(steps, TC_SPLIT_STEPS_MAX);
  job->split->begin(job->rows);
  for (int64_t first = 0; first < steps; first += chunk) {
    for (int64_t t = 0; t < c->taps; t++) multiply(&w, slot * job->images, first, min(chunk, steps - first), t);
  }
  job->split->end();
  add_slice(&w, 0, 1);
  deliver(&w, slot);
}

/* One output channel: the sums of the pass's pieces are added in their order; after the last pass they are the result. */
static void reduce_task(const void *arg, int64_t task, char *workspace) {
  const weight_job *job = arg;
  const conv2d *c = job->c;
  const int64_t n = c->in_channels * c->taps, all = c->groups * group_weights(job),
                slots = min(job->slots, job->pieces - job->first_piece);
  double *sums = job->sums + job->slots * all + task * n;
  float *rounded = (float *)(void *)workspace;
  for (int64_t slot = 0; slot < slots; slot++) {
    const double *more = job->sums + slot * all + task * n;
    for (int64_t x = 0; x < n; x++) sums[x] = (job->first_piece + slot ? sums[x] : 0) + more[x];
  }
  if (job->first_piece + slots < job->pieces) return;
  c->kernels->round(n, sums, rounded);
  if (c->dw_f32) {
    for (int64_t x = 0; x < n; x++) ((float *)c->dw)[task * n + x] = canonical_nan(rounded[x]);
  } else {
    c->kernels->narrow(n, rounded, (uint16_t *)c->dw + task * n);
  }
}

/* ---- The call ---- */

static const int64_t PIECE_BYTES = 16 << 20, PASS_BYTES = 64 << 20, SUMS_BYTES = 64 << 20, TASKS = 32;

/* Everything but memory. Pieces are cut by the shape: enough of them for many threads, and none with too much to pack. */
static void lay_out(weight_job *job) {
  const conv2d *c = job->c;
  const int64_t tiles = ceil_div(c->out_channels, TC_SPLIT_ROWS_MAX);
  job->rows = ceil_div(c->out_channels, tiles);
  job->o_panels = ceil_div(tiles, 2);
  job->i_panels = ceil_div(c->in_channels, PANEL);
  job->steps = ceil_div((c->h.out - 1) * job->w.grid + c->w.out, TC_SPLIT_TERMS);
  job->grids = c->h.stride * c->w.stride;
  const int64_t reach = (job->h.grid - c->h.out) * job->w.grid + job->w.grid - c->w.out;
  job->region = round_up((job->steps * TC_SPLIT_TERMS + reach) / 2 + 1, 16) * ROW;
  job->a_panel = job->steps * 4 * job->rows * ROW;
  job->b_tile = job->grids * 4 * job->region;
  const int64_t image_bytes = c->groups * (job->o_panels * job->a_panel + 2 * job->i_panels * job->b_tile);
  const int64_t blocks = c->groups * job->o_panels * job->i_panels;
  job->images = max(1, min(c->batch / ceil_div(TASKS, blocks), PIECE_BYTES / image_bytes));
  job->pieces = ceil_div(c->batch, job->images);
  const int64_t sums = c->groups * group_weights(job) * (int64_t)sizeof(double);
  job->slots = min(job->pieces, max(1, min(PASS_BYTES / (image_bytes * job->images), SUMS_BYTES / sums - 1)));
}

static void run_passes(weight_job *job, const tc_team *team) {
  const conv2d *c = job->c;
  for (job->first_piece = 0; job->first_piece < job->pieces; job->first_piece += job->slots) {
    const int64_t pieces = min(job->slots, job->pieces - job->first_piece);
    const int64_t images = min(pieces * job->images, c->batch - pass_first_image(job));
    tc_team_run(team, images * c->groups * job->o_panels, pack_dy_task, job);
    tc_team_run(team, images * c->groups * 2 * job->i_panels * job->grids, pack_x_task, job);
    if (*job->special) return;
    tc_team_run(team, pieces * c->groups * job->o_panels * job->i_panels, compute_task, job);
    tc_team_run(team, c->groups * c->out_channels, reduce_task, job);
  }
}

static tc_status_t run_with_sums(tc_cpu *cpu, weight_job *job) {
  const conv2d *c = job->c;
  const int64_t images = min(c->batch, job->slots * job->images);
  const size_t a_bytes = (size_t)(images * c->groups * job->o_panels * job->a_panel);
  const size_t b_bytes = (size_t)(images * c->groups * 2 * job->i_panels * job->b_tile);
  const size_t staged = TC_SPLIT_ROWS_MAX * STAGED_LD * sizeof(float), row = (size_t)(c->in_channels * c->taps) * sizeof(float);
  const size_t compute = sums_bytes(job) + (size_t)(2 * job->rows * PANEL) * sizeof(float);
  void *packed;
  TC_TRY(tc_workspace_take(cpu, TC_WORKSPACE_PACKED, a_bytes + b_bytes, &packed));
  job->a = packed;
  job->b = job->a + a_bytes;
  tc_team team;
  const size_t workspace = staged > compute ? staged : compute;
  const tc_status_t status =
      tc_team_take(cpu, tc_cpu_threads(cpu, conv_multiplies(c)), INT64_MAX, workspace > row ? workspace : row, &team);
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
  const size_t sums = (size_t)((job.slots + 1) * c->groups * group_weights(&job)) * sizeof(double);
  void *memory;
  TC_TRY(tc_workspace_take(cpu, TC_WORKSPACE_PARTIALS, sums, &memory));
  job.sums = memory;
  const tc_status_t status = run_with_sums(cpu, &job);
  tc_workspace_give(cpu, TC_WORKSPACE_PARTIALS, memory);
  return status == TC_OK && special ? vector(cpu, c) : status;
}
