/* SPDX-License-Identifier: MIT
 *
 * Forward and the gradient of the input, tap by tap. Both are sums over taps of a small product: pixels times channels of an image,
 * moved by the tap, by a matrix of weights. The images are relaid once, to fp32 with channels side by side and zeros around them, so
 * that a tap is just another place to begin; the weights are relaid once too, into panels in the order in which the sums take them.
 *
 *   forward          Y[oy,ox]  takes tap t from X at oy*stride + t, counted from the padding's start
 *   backward_input   dX[iy,ix] takes from dY the taps whose reach is a multiple of the stride away: with stride s the rows and
 *                    columns of dX fall into s phases, each with taps of its own, and consecutive ones see consecutive pixels of dY
 *
 * Padding is zeros that take part. Forward wants that; in backward_input no weight must be inf or NaN.
 */
#include <stdatomic.h>
#include <string.h>

#include "cpu/conv_axes.h"
#include "status.h"

/* ---- The job ---- */

enum { BLOCK = 32 }; /* channels that lie side by side */

/* Taps and channels of one phase in the order of their sum: first to first+runs-1 of the job's runs. */
typedef struct phase {
  int64_t first, runs, terms;
} phase;

typedef struct taps_job {
  const conv2d *c;
  const uint16_t *src;    /* [batch][groups][terms][inner rows][inner columns] */
  uint16_t *dst;          /* [batch][groups][results][rows][columns] */
  const uint16_t *bias;   /* or NULL */
  int64_t terms, results; /* channels of a group that are summed over, and that come out */
  bool transposed;        /* weight is [terms][results][taps], not [results][terms][taps] */
  tap_axis h, w;
  int64_t blocks, pitch;            /* of channels; floats from one relaid position to the next */
  int64_t row, block, group, image; /* floats of each */
  phase phases[PHASES_MAX * PHASES_MAX];
  tc_run *runs;
  int64_t *places;             /* [blocks][taps]: the first term, in a panel of weights */
  int64_t panels;              /* of a group */
  int64_t images, first_image; /* of this pass */
  int64_t band;                /* rows of the result that a task computes */
  float *relaid, *weights;     /* [images][group]...; [groups][panels][terms*taps][nr] */
  atomic_bool *special;        /* a weight was inf or NaN */
} taps_job;

static int64_t block_channels(const taps_job *job, int64_t block) { return min(BLOCK, job->terms - block * BLOCK); }

/* Adds terms that follow each other, to the run before if both operands go on there. An fp32 sum ends after TC_KC terms. */
static void add_terms(taps_job *job, phase *p, int64_t a, int64_t b, int64_t n) {
  while (n) {
    const int64_t part = min(n, TC_KC - p->terms % TC_KC);
    tc_run *next = job->runs + p->first + p->runs, *last = p->runs ? next - 1 : NULL;
    if (last && !last->ends && last->a + last->n == a) {
      last->n += part;
    } else {
      last = next;
      *last = (tc_run){a, b, part, false};
      p->runs++;
    }
    p->terms += part;
    last->ends = p->terms % TC_KC == 0;
    a += part;
    b += part * job->c->kernels->nr;
    n -= part;
  }
}

/* Taps in the order of what they see, so that neighbours may join. */
static void list_phase(taps_job *job, int64_t py, int64_t px, bool backward, phase *p, int64_t *term) {
  const conv2d *c = job->c;
  for (int64_t block = 0; block < job->blocks; block++) {
    for (int64_t t = 0; t < c->taps; t++) {
      const int64_t tap = backward ? c->taps - 1 - t : t, ky = tap / c->w.kernel, kx = tap % c->w.kernel;
      if (backward && (phase_of_tap(&c->h, ky) != py || phase_of_tap(&c->w, kx) != px)) continue;
      const int64_t n = block_channels(job, block);
      const int64_t a = block * job->block + job->h.shift[ky] * job->row + job->w.shift[kx] * job->pitch;
      job->places[block * c->taps + tap] = *term;
      add_terms(job, p, a, *term * c->kernels->nr, n);
      *term += n;
    }
  }
  if (p->runs) job->runs[p->first + p->runs - 1].ends = true;
}

static void list_runs(taps_job *job, bool backward) {
  int64_t term = 0, first = 0;
  for (int64_t py = 0; py < job->h.phases; py++) {
    for (int64_t px = 0; px < job->w.phases; px++) {
      phase *p = &job->phases[py * job->w.phases + px];
      *p = (phase){.first = first};
      list_phase(job, py, px, backward, p, &term);
      first += p->runs;
    }
  }
}

/* ---- Relaying ---- */

/* One block of channels of one image, or one row of it if the channels are many. */
static void relay_rows(const taps_job *job, int64_t image, int64_t group, int64_t block, int64_t first, int64_t end, int64_t *at) {
  const conv2d *c = job->c;
  const int64_t channels = block_channels(job, block), plane = job->h.inner * job->w.inner;
  const uint16_t *src = job->src + (((job->first_image + image) * c->groups + group) * job->terms + block * BLOCK) * plane;
  float *dst = job->relaid + image * job->image + group * job->group + block * job->block;
  const int64_t columns = min(job->w.inner, job->w.relaid - job->w.before);
  for (int64_t x = 0; x < columns; x++) at[x] = (job->w.before + x) * job->pitch;
  for (int64_t y = first; y < end; y++) {
    float *row = dst + y * job->row;
    const int64_t inner = y - job->h.before;
    if (inner < 0 || inner >= job->h.inner || columns <= 0) {
      memset(row, 0, (size_t)job->row * sizeof *row);
      continue;
    }
    memset(row, 0, (size_t)(job->w.before * job->pitch) * sizeof *row);
    const int64_t filled = (job->w.before + columns) * job->pitch;
    memset(row + filled, 0, (size_t)(job->row - filled) * sizeof *row);
    c->kernels->spread(channels, columns, src + inner * job->w.inner, plane, row, at);
  }
}

/* Term (block, channel, tap) of column r of a panel. */
static void pack_panel(const taps_job *job, int64_t group, int64_t panel, int64_t *at) {
  const conv2d *c = job->c;
  const int64_t nr = c->kernels->nr, taps = c->taps, first = panel * nr, columns = min(nr, job->results - first);
  float *dst = job->weights + (group * job->panels + panel) * job->terms * taps * nr;
  const uint16_t *src = c->weight + group * job->results * job->terms * taps;
  if (columns < nr) memset(dst, 0, (size_t)(job->terms * taps * nr) * sizeof *dst);
  for (int64_t block = 0; block < job->blocks; block++) {
    const int64_t channels = block_channels(job, block), *places = job->places + block * taps;
    if (job->transposed) {
      for (int64_t t = 0; t < taps; t++) at[t] = places[t] * nr;
      for (int64_t k = 0; k < channels; k++) {
        const uint16_t *row = src + ((block * BLOCK + k) * job->results + first) * taps;
        if (!c->kernels->finite(columns * taps, row)) atomic_store_explicit(job->special, true, memory_order_relaxed);
        c->kernels->spread(columns, taps, row, taps, dst + k * nr, at);
      }
    } else {
      for (int64_t k = 0; k < channels; k++) {
        for (int64_t t = 0; t < taps; t++) at[k * taps + t] = (places[t] + k) * nr;
      }
      c->kernels->spread(columns, channels * taps, src + (first * job->terms + block * BLOCK) * taps, job->terms * taps, dst, at);
    }
  }
}

/* ---- Tasks ---- */

enum { PIXEL_FLOATS = 8192 }; /* of the result that wait to be stored */

static void pack_task(const void *arg, int64_t task, char *workspace) {
  const taps_job *job = arg;
  pack_panel(job, task / job->panels, task % job->panels, (int64_t *)(void *)workspace);
}

static void relay_task(const void *arg, int64_t task, char *workspace) {
  const taps_job *job = arg;
  const int64_t block = task % job->blocks, group = task / job->blocks % job->c->groups;
  relay_rows(job, task / job->blocks / job->c->groups, group, block, 0, job->h.relaid, (int64_t *)(void *)workspace);
}

/* The places of one phase in some rows of the result, and where they come from and go to; distances in floats. */
typedef struct rectangle {
  const phase *p;
  int64_t rows, columns;
  const float *image, *panel;
  float *out;
  int64_t row, column;         /* of the image */
  int64_t out_row, out_column; /* of out */
} rectangle;

/* m places in a row, or in a column. */
static void compute_tile(const taps_job *job, const rectangle *r, int64_t n, int64_t y, int64_t x, int64_t m, bool down) {
  float *out = r->out + y * r->out_row + x * r->out_column;
  const float *image = r->image + y * r->row + x * r->column;
  const int64_t ld = down ? r->row : r->column, ldout = down ? r->out_row : r->out_column;
  if (r->p->runs) {
    job->c->kernels->taps(m, n, r->p->runs, job->runs + r->p->first, image, ld, r->panel, out, ldout);
  } else {
    for (int64_t i = 0; i < m; i++) memset(out + i * ldout, 0, (size_t)job->c->kernels->nr * sizeof *out);
  }
}

/* Fewer places in a tile don't keep the multipliers busy. */
enum { TILE_LOW = 4 };

/* Tiles lie in rows; what would leave a low one at the end of each row is done down the columns. */
static void compute_rectangle(const taps_job *job, const rectangle *r, int64_t n) {
  const int64_t mr = job->c->kernels->mr, rest = r->columns % mr;
  const int64_t across = rest < TILE_LOW && r->rows >= TILE_LOW ? r->columns - rest : r->columns;
  const int64_t tile = across ? even_part(across, mr) : mr, tile_down = even_part(r->rows, mr);
  for (int64_t y = 0; y < r->rows; y++) {
    for (int64_t x = 0; x < across; x += tile) compute_tile(job, r, n, y, x, min(tile, across - x), false);
  }
  for (int64_t x = across; x < r->columns; x++) {
    for (int64_t y = 0; y < r->rows; y += tile_down) compute_tile(job, r, n, y, x, min(tile_down, r->rows - y), true);
  }
}

/* Rows from y on and columns from x on, of one panel; x is a multiple of the phases. */
static void compute_part(const taps_job *job, const float *image, const float *panel, int64_t n, int64_t y, int64_t rows, int64_t x,
                         int64_t columns, float *out) {
  const int64_t nr = job->c->kernels->nr;
  for (int64_t py = 0; py < min(job->h.phases, rows); py++) {
    for (int64_t px = 0; px < min(job->w.phases, columns); px++) {
      rectangle r = {.p = &job->phases[(y + py) % job->h.phases * job->w.phases + px]};
      r.rows = ceil_div(rows - py, job->h.phases);
      r.columns = ceil_div(columns - px, job->w.phases);
      r.row = job->h.step * job->row;
      r.column = job->w.step * job->pitch;
      r.image = image + (y + py) / job->h.phases * r.row + x / job->w.phases * r.column;
      r.panel = panel;
      r.out = out + (py * columns + px) * nr;
      r.out_row = job->h.phases * columns * nr;
      r.out_column = job->w.phases * nr;
      compute_rectangle(job, &r, n);
    }
  }
}

static void compute_task(const void *arg, int64_t task, char *workspace) {
  const taps_job *job = arg;
  const conv2d *c = job->c;
  const int64_t nr = c->kernels->nr, bands = ceil_div(job->h.size, job->band);
  const int64_t band = task % bands, image = task / bands % job->images, panel = task / bands / job->images % job->panels;
  const int64_t group = task / bands / job->images / job->panels, width = job->w.size, plane = job->h.size * width;
  const int64_t n = min(nr, job->results - panel * nr), end = min(job->h.size, (band + 1) * job->band);
  const float *relaid = job->relaid + image * job->image + group * job->group;
  const float *weights = job->weights + (group * job->panels + panel) * job->terms * c->taps * nr;
  uint16_t *dst = job->dst + (((job->first_image + image) * c->groups + group) * job->results + panel * nr) * plane;
  float *pixels = (float *)(void *)workspace, bias[64] = {0};
  if (job->bias) c->kernels->widen(n, job->bias + group * job->results + panel * nr, bias);
  const int64_t pixels_max = PIXEL_FLOATS / nr, rows = max(1, pixels_max / width);
  const int64_t columns = width <= pixels_max ? width : pixels_max / job->w.phases * job->w.phases;
  for (int64_t y = band * job->band; y < end; y += rows) {
    const int64_t some = min(rows, end - y);
    for (int64_t x = 0; x < width; x += columns) {
      const int64_t part = min(columns, width - x);
      compute_part(job, relaid, weights, n, y, some, x, part, pixels);
      c->kernels->gather(n, some * part, pixels, nr, job->bias ? bias : NULL, dst + y * width + x, plane);
    }
  }
}

/* ---- The call ---- */

/* Relaid images stay in a shared cache: so many bytes of them at once, or one image. */
static const int64_t PASS_BYTES = 4 << 20;
/* Multiply-adds of a task, enough to hide what it costs to take one. */
static const int64_t TASK_MULTIPLIES = 1 << 21;

/* Everything but memory. */
static void lay_out(taps_job *job) {
  const conv2d *c = job->c;
  job->blocks = ceil_div(job->terms, BLOCK);
  job->pitch = min(job->terms, BLOCK);
  job->row = job->w.relaid * job->pitch;
  job->block = job->h.relaid * job->row;
  job->group = job->blocks * job->block;
  job->image = c->groups * job->group;
  job->panels = ceil_div(job->results, c->kernels->nr);
  job->images = min(c->batch, max(1, PASS_BYTES / (job->image * (int64_t)sizeof(float))));
  const int64_t row_multiplies =
      job->w.size * min(job->results, c->kernels->nr) * job->terms * c->taps / (job->h.phases * job->w.phases);
  const int64_t stored = PIXEL_FLOATS / c->kernels->nr / job->w.size; /* rows at once */
  job->band = min(job->h.size, max(max(1, stored), TASK_MULTIPLIES / (row_multiplies + 1)));
}

static size_t lines(int64_t bytes) { return (size_t)round_up(bytes, 64); }

static tc_status_t run(tc_cpu *cpu, taps_job *job, bool backward, bool *done) {
  const conv2d *c = job->c;
  lay_out(job);
  const int64_t runs = job->blocks * c->taps + job->terms * c->taps / TC_KC,
                weights = c->groups * job->panels * job->terms * c->taps * c->kernels->nr;
  const size_t runs_bytes = lines(runs * (int64_t)sizeof(tc_run)), places_bytes = lines(runs * (int64_t)sizeof(int64_t));
  const size_t weight_bytes = lines(weights * (int64_t)sizeof(float)),
               relaid_bytes = lines(job->images * job->image * (int64_t)sizeof(float));
  const int64_t threads = tc_cpu_threads(cpu, conv_multiplies(c)), bands = ceil_div(job->h.size, job->band);
  const int64_t thread_bytes =
      max(PIXEL_FLOATS * (int64_t)sizeof(float), max(BLOCK * c->taps, job->w.inner) * (int64_t)sizeof(int64_t));
  void *memory;
  TC_TRY(tc_workspace_take(cpu, TC_WORKSPACE_PACKED, runs_bytes + places_bytes + weight_bytes + relaid_bytes, &memory));
  job->runs = memory;
  job->places = (int64_t *)(void *)((char *)memory + runs_bytes);
  job->weights = (float *)(void *)((char *)job->places + places_bytes);
  job->relaid = (float *)(void *)((char *)job->weights + weight_bytes);
  atomic_bool special = false;
  job->special = &special;
  tc_team team;
  const tc_status_t status = tc_team_take(cpu, threads, INT64_MAX, (size_t)thread_bytes, &team);
  if (status == TC_OK) {
    list_runs(job, backward);
    tc_team_run(&team, c->groups * job->panels, pack_task, job);
    *done = !special;
    for (job->first_image = 0; *done && job->first_image < c->batch; job->first_image += job->images) {
      job->images = min(job->images, c->batch - job->first_image);
      tc_team_run(&team, job->images * c->groups * job->blocks, relay_task, job);
      tc_team_run(&team, c->groups * job->panels * job->images * bands, compute_task, job);
    }
    tc_team_give(&team);
  }
  tc_workspace_give(cpu, TC_WORKSPACE_PACKED, memory);
  return status;
}

/* A relaid image takes so many floats at most; strides are limited so that sizes can be computed. */
static const double IMAGE_FLOATS_MAX = 1 << 27;
enum { STRIDE_MAX = 1024 };

static bool taps_are_few(const conv2d *c) {
  return c->h.kernel <= AXIS_TAPS_MAX && c->w.kernel <= AXIS_TAPS_MAX && c->taps <= TAPS_MAX;
}

static bool suits(const conv2d *c, const tap_axis *h, const tap_axis *w, int64_t terms, int64_t results) {
  const double floats = (double)h->relaid * (double)w->relaid * (double)round_up(terms, BLOCK) * (double)c->groups;
  return results >= 8 && floats <= IMAGE_FLOATS_MAX;
}

bool tc_conv_taps_suit_forward(const conv2d *c) {
  if (!taps_are_few(c) || c->h.stride > STRIDE_MAX || c->w.stride > STRIDE_MAX) return false;
  const tap_axis h = forward_axis(&c->h), w = forward_axis(&c->w);
  return suits(c, &h, &w, c->in_channels, c->out_channels);
}

bool tc_conv_taps_suit_backward_input(const conv2d *c) {
  if (!taps_are_few(c) || c->h.stride > PHASES_MAX || c->w.stride > PHASES_MAX) return false;
  const tap_axis h = backward_axis(&c->h), w = backward_axis(&c->w);
  return suits(c, &h, &w, c->out_channels, c->in_channels);
}

tc_status_t tc_conv_taps_forward(tc_cpu *cpu, const conv2d *c) {
  taps_job job = {.c = c, .src = c->x, .dst = c->y, .bias = c->bias, .terms = c->in_channels, .results = c->out_channels};
  job.h = forward_axis(&c->h);
  job.w = forward_axis(&c->w);
  bool done;
  return run(cpu, &job, false, &done);
}

tc_status_t tc_conv_taps_backward_input(tc_cpu *cpu, const conv2d *c, bool *done) {
  taps_job job = {.c = c, .src = c->dy, .dst = c->dx, .terms = c->out_channels, .results = c->in_channels, .transposed = true};
  job.h = backward_axis(&c->h);
  job.w = backward_axis(&c->w);
  return run(cpu, &job, true, done);
}
