/* SPDX-License-Identifier: MIT
 *
 * Forward and the gradient of the input by tile products (split.h), tap by tap. Both are sums over taps of a small product: pixels times
 * channels of an image, moved by the tap, by a matrix of weights. The images are split and relaid once, with channels side by side and
 * zeros around them, so that a tap is just another address of the same A tiles, whose rows are pixels. The weights are split once, into
 * B tiles in the order of the sums.
 *
 * A step's 32 terms are 32 channels of one tap. Of images with fewer channels, a pixel is 4, 8 or 16 channels wide, and a step takes
 * as many adjacent taps of a kernel row: a first layer of 3 channels has one step for 8 taps, not for 1.
 *
 * The time of a tile product grows with its rows, so a row of pixels is cut into tiles of even size: 28 pixels are 14 + 14. Two tiles,
 * of one row or of two, make a register block with 32 channels of the result. Where rows are short and there are several images, these
 * stand side by side at each pixel, as one row. What a block leaves to do, second level and store, is done beside the products of later
 * ones.
 */
#include <stdatomic.h>
#include <string.h>

#include "cpu/conv_axes.h"
#include "status.h"

enum {
  BLOCK = TC_SPLIT_TERMS,       /* channels of a step at most */
  PANEL = 2 * TC_SPLIT_COLUMNS, /* channels of the result in a register block */
  TILE_BYTES = 16 * 64,         /* of B */
  STEP_BYTES = 4 * TILE_BYTES,  /* of a panel: two hi tiles, two lo tiles */
  ROWS = TC_SPLIT_ROWS_MAX,
  SEGMENT = 256,   /* pixels of a row that are computed at once, at most */
  PIXELS = 128,    /* of the result that wait to be stored */
  STAGED = 64,     /* pixels that are relaid at once */
  CHUNKS_MAX = 64, /* that the second level adds in fp32 */
};

typedef struct phase {
  int64_t first, steps;
} phase;

typedef struct tiles_job {
  const conv2d *c;
  const tc_split_kernels *split;
  const uint16_t *src;  /* [batch][groups][terms][inner rows][inner columns] */
  uint16_t *dst;        /* [batch][groups][results][rows][columns] */
  const uint16_t *bias; /* or NULL */
  int64_t terms, results;
  bool backward; /* weight is [terms][results][taps], not [results][terms][taps] */
  tap_axis h, w;
  int64_t blocks, steps, panels;  /* of channels; of all phases; of a group's results */
  int64_t pixel, columns;         /* bytes of a pixel, and taps of a kernel row that a step takes */
  int64_t row_steps, block_steps; /* of a kernel row, and of a block of channels */
  int64_t rows, segment;          /* of an A tile; pixels of a row that are computed at once */
  int64_t band;                   /* rows of the result that a task computes */
  /* Of a pass: */
  int64_t first_image, bundles, bundle;            /* bundle images stand side by side */
  int64_t row, region, block, group, relaid_bytes; /* bytes: hi and lo have a region each; relaid_bytes is a bundle's */
  phase phases[PHASES_MAX * PHASES_MAX];
  int64_t *offsets, *step_of; /* [steps]: where a step's terms begin; [blocks][block_steps]: its number */
  char *weights, *relaid;     /* [groups][panels][steps]; [bundles][groups][blocks][hi, lo] */
  atomic_bool *special;       /* [batch]: an image has infinities or NaNs; and then the weights */
} tiles_job;

static int64_t block_channels(const tiles_job *job, int64_t block) { return min(BLOCK, job->terms - block * BLOCK); }

/* ---- The steps ---- */

/* Of a tap: its step within those of a block, and its first term there. */
static int64_t step_of_tap(const tiles_job *job, int64_t tap) {
  return tap / job->c->w.kernel * job->row_steps + tap % job->c->w.kernel / job->columns;
}

static int64_t term_of_tap(const tiles_job *job, int64_t tap) {
  return tap % job->c->w.kernel % job->columns * (BLOCK / job->columns);
}

static void list_phase(tiles_job *job, int64_t py, int64_t px, phase *p) {
  const conv2d *c = job->c;
  for (int64_t block = 0; block < job->blocks; block++) {
    for (int64_t t = 0; t < c->taps; t++) {
      const int64_t ky = t / c->w.kernel, kx = t % c->w.kernel, step = p->first + p->steps;
      if (job->backward && (phase_of_tap(&c->h, ky) != py || phase_of_tap(&c->w, kx) != px)) continue;
      if (kx % job->columns) continue;
      job->offsets[step] = block * job->block + job->h.shift[ky] * job->row + job->w.shift[kx] * job->bundle * job->pixel;
      job->step_of[block * job->block_steps + step_of_tap(job, t)] = step;
      p->steps++;
    }
  }
}

static void list_steps(tiles_job *job) {
  int64_t first = 0;
  for (int64_t py = 0; py < job->h.phases; py++) {
    for (int64_t px = 0; px < job->w.phases; px++) {
      phase *p = &job->phases[py * job->w.phases + px];
      *p = (phase){first, 0};
      list_phase(job, py, px, p);
      first += p->steps;
    }
  }
}

/* With that many images side by side. A tile may read rows beyond the image, for pixels that nobody wants. */
static void set_sizes(tiles_job *job, int64_t bundle) {
  const int64_t beyond = ROWS * max(bundle, job->w.step) * job->pixel + 64;
  job->bundle = bundle;
  job->row = (job->w.relaid + job->columns - 1) * bundle * job->pixel;
  job->region = round_up(job->h.relaid * job->row + beyond, 64);
  if (job->region % 4096 == 0) job->region += 64; /* hi and lo don't share cache sets */
  job->block = 2 * job->region;
  job->group = job->blocks * job->block;
  job->relaid_bytes = job->c->groups * job->group;
}

/* ---- Relaying ---- */

static void relay_row(const tiles_job *job, const uint16_t *src, int64_t channels, int64_t n, char *hi, float *staged,
                      const int64_t *at, atomic_bool *special) {
  const int64_t plane = job->h.inner * job->w.inner, distance = job->bundle * job->pixel;
  for (int64_t x = 0; x < n; x += STAGED) {
    const int64_t some = min(STAGED, n - x);
    job->c->kernels->spread(channels, some, src + x, plane, staged, at);
    for (int64_t tile = 0; tile < some; tile += ROWS) {
      const tc_split_form form = {.rows = min(ROWS, some - tile), .lda = distance};
      char *to = hi + (x + tile) * distance;
      if (job->split->pack(&form, staged + tile * BLOCK, BLOCK, to, to + job->region))
        atomic_store_explicit(special, true, memory_order_relaxed);
    }
  }
}

/* One block of channels of a bundle. A pixel of few channels is written with zeros up to BLOCK, which the next one then overwrites. */
static void relay_task(const void *arg, int64_t task, char *workspace) {
  const tiles_job *job = arg;
  const int64_t block = task % job->blocks, group = task / job->blocks % job->c->groups,
                bundle = task / job->blocks / job->c->groups;
  const int64_t channels = block_channels(job, block), plane = job->h.inner * job->w.inner, pixel = job->bundle * job->pixel;
  const int64_t columns = max(0, min(job->w.inner, job->w.relaid - job->w.before)), filled = (job->w.before + columns) * pixel;
  char *hi = job->relaid + bundle * job->relaid_bytes + group * job->group + block * job->block;
  float *staged = (float *)(void *)workspace;
  int64_t at[STAGED];
  for (int64_t x = 0; x < STAGED; x++) at[x] = x * BLOCK;
  memset(staged, 0, STAGED * BLOCK * sizeof *staged);
  for (int64_t y = 0; y < job->h.relaid; y++, hi += job->row) {
    const int64_t inner = y - job->h.before;
    const bool inside = inner >= 0 && inner < job->h.inner;
    for (int64_t half = 0; half < 2; half++) {
      char *row = hi + half * job->region;
      if (inside) memset(row, 0, (size_t)(job->w.before * pixel));
      memset(row + (inside ? filled : 0), 0, (size_t)(job->row - (inside ? filled : 0)));
    }
    for (int64_t i = 0; inside && i < job->bundle; i++) {
      const int64_t image = job->first_image + bundle * job->bundle + i;
      const uint16_t *src =
          job->src + ((image * job->c->groups + group) * job->terms + block * BLOCK) * plane + inner * job->w.inner;
      relay_row(job, src, channels, columns, hi + job->w.before * pixel + i * job->pixel, staged, at, &job->special[image]);
    }
  }
}

/* ---- Weights ---- */

static const int64_t STAGED_STEP = BLOCK * PANEL;

/* Columns of a panel and channels of a block, in fp32: [step of the block][term][column]. */
static void stage_weights(const tiles_job *job, const uint16_t *weight, int64_t first, int64_t columns, int64_t block,
                          float *staged, int64_t *at) {
  const tc_cpu_kernels *kernels = job->c->kernels;
  const int64_t taps = job->c->taps, channels = block_channels(job, block);
  if (columns < PANEL || channels < BLOCK) memset(staged, 0, (size_t)(job->block_steps * STAGED_STEP) * sizeof *staged);
  for (int64_t k = 0; k < channels; k++) {
    for (int64_t t = 0; t < taps; t++) at[k * taps + t] = step_of_tap(job, t) * STAGED_STEP + (term_of_tap(job, t) + k) * PANEL;
  }
  if (job->backward) {
    for (int64_t k = 0; k < channels; k++)
      kernels->spread(columns, taps, weight + ((block * BLOCK + k) * job->results + first) * taps, taps, staged, at + k * taps);
  } else {
    kernels->spread(columns, channels * taps, weight + (first * job->terms + block * BLOCK) * taps, job->terms * taps, staged, at);
  }
}

static void pack_task(const void *arg, int64_t task, char *workspace) {
  const tiles_job *job = arg;
  const int64_t group = task / job->panels, first = task % job->panels * PANEL, columns = min(PANEL, job->results - first);
  const uint16_t *weight = job->c->weight + group * job->results * job->terms * job->c->taps;
  float *staged = (float *)(void *)workspace;
  int64_t *at = (int64_t *)(void *)(staged + job->block_steps * STAGED_STEP);
  bool special = false;
  for (int64_t block = 0; block < job->blocks; block++) {
    stage_weights(job, weight, first, columns, block, staged, at);
    for (int64_t step = 0; step < job->block_steps; step++) {
      static const tc_split_form form = {.along = true, .pairs = true};
      const int64_t number = job->step_of[block * job->block_steps + step];
      char *hi = job->weights + (task * job->steps + number) * STEP_BYTES;
      for (int64_t tile = 0; tile < 2; tile++, hi += TILE_BYTES)
        special |= job->split->pack(&form, staged + step * STAGED_STEP + tile * TC_SPLIT_COLUMNS, PANEL, hi, hi + 2 * TILE_BYTES);
    }
  }
  if (special) atomic_store_explicit(&job->special[job->c->batch], true, memory_order_relaxed);
}

/* ---- Blocks ---- */

/* Two tiles of pixels that have the same steps, or one. Pixels of the result stand in slots of PANEL floats. */
typedef struct pair {
  int64_t tiles;
  const char *a[2];
  float *out[2];
  int64_t pixels[2]; /* that are wanted, of a tile's rows */
} pair;

/* What a task has at hand, and what is left to do beside later products. */
typedef struct worker {
  const tiles_job *job;
  const char *panel;
  int64_t columns; /* of the panel that are results */
  int64_t slot;    /* floats from a tile's row to the next in slots */
  pair sums;
  bool pending; /* pair += partials, [2][ROWS][PANEL] */
  /* Stores: pixels of each image of the bundle, at dst and then image after image. */
  const float *slots, *bias;
  uint16_t *dst;
  int64_t pixels, stored;       /* of all images; how many are done */
  float *buffers[2], *partials; /* slots, in turns; the sums of a chunk */
} worker;

static void add_rows(const worker *w, int64_t tile, int64_t first, int64_t end) {
  for (int64_t i = first; i < end; i++) {
    float *sum = w->sums.out[tile] + i * w->slot;
    const float *more = w->partials + (tile * ROWS + i) * PANEL;
    for (int64_t j = 0; j < PANEL; j++) sum[j] += more[j];
  }
}

/* At most so many pixels of one image. */
static void store_some(worker *w, int64_t most) {
  const tiles_job *job = w->job;
  const int64_t plane = job->h.size * job->w.size, each = w->pixels / job->bundle;
  const int64_t image = w->stored / each, first = w->stored % each, n = min(most, each - first);
  job->c->kernels->gather(w->columns, n, w->slots + (first * job->bundle + image) * PANEL, job->bundle * PANEL, w->bias,
                          w->dst + image * job->c->groups * job->results * plane + first, plane);
  w->stored += n;
}

static void work_slice(void *self, int64_t slice, int64_t slices) {
  worker *w = self;
  for (int64_t tile = 0; w->pending && tile < w->sums.tiles; tile++)
    add_rows(w, tile, w->sums.pixels[tile] * slice / slices, w->sums.pixels[tile] * (slice + 1) / slices);
  if (w->stored < w->pixels) store_some(w, ROWS);
}

static void finish_sums(worker *w) {
  for (int64_t tile = 0; w->pending && tile < w->sums.tiles; tile++) add_rows(w, tile, 0, w->sums.pixels[tile]);
  w->pending = false;
}

static void finish_stores(worker *w) {
  while (w->stored < w->pixels) store_some(w, PIXELS);
}

static void zero_pair(const worker *w, const pair *pixels) {
  for (int64_t tile = 0; tile < pixels->tiles; tile++) {
    for (int64_t i = 0; i < pixels->pixels[tile]; i++) memset(pixels->out[tile] + i * w->slot, 0, PANEL * sizeof(float));
  }
}

/* The sums of a pair over the steps of a phase: chunks of even size, added in their order. Only whole tiles may be written to slots by
 * the kernel; of others, the pixels that are wanted are added to zeros. */
static void multiply(worker *w, const phase *p, const pair *pixels) {
  const tiles_job *job = w->job;
  const int64_t lda = job->bundle > 1 ? job->pixel : job->w.step * job->pixel;
  const tc_split_layout layout = {lda, job->region, pixels->a[1] - pixels->a[0], 64, 2 * TILE_BYTES, TILE_BYTES};
  const tc_split_side side = {work_slice, w};
  const int64_t most = even_part(p->steps, TC_SPLIT_STEPS_MAX);
  const bool whole = pixels->pixels[0] == job->rows && (pixels->tiles == 1 || pixels->pixels[1] == job->rows);
  if (!whole) zero_pair(w, pixels);
  for (int64_t first = 0; first < p->steps; first += most) {
    tc_split_step step[TC_SPLIT_STEPS_MAX];
    const int64_t steps = min(most, p->steps - first);
    for (int64_t s = 0; s < steps; s++) {
      const int64_t number = p->first + first + s;
      step[s] = (tc_split_step){pixels->a[0] + job->offsets[number], w->panel + number * STEP_BYTES};
    }
    const bool direct = first == 0 && whole;
    const tc_split_block block = {.layout = &layout,
                                  .a_tiles = pixels->tiles,
                                  .b_tiles = w->columns > TC_SPLIT_COLUMNS ? 2 : 1,
                                  .rows = job->rows,
                                  .strict = job->c->strict,
                                  .steps = steps,
                                  .step = step,
                                  .c = direct ? pixels->out[0] : w->partials,
                                  .ldc = direct ? w->slot : PANEL,
                                  .c_next = direct ? pixels->out[1] - pixels->out[0] : ROWS * PANEL};
    job->split->gemm(&block, &side);
    w->sums = *pixels;
    w->pending = !direct;
  }
}

static void end_pair(worker *w, const phase *p, pair *pixels) {
  if (pixels->tiles == 1) {
    pixels->a[1] = pixels->a[0];
    pixels->out[1] = pixels->out[0];
  }
  if (pixels->tiles) (p->steps ? multiply(w, p, pixels) : zero_pair(w, pixels));
  pixels->tiles = 0;
}

/* Part of a task's result that is stored at once: rows y .. y_end-1, columns x .. x_end-1. */
typedef struct area {
  int64_t y, y_end, x, x_end;
} area;

/* The tiles of one phase in an area, two at a time. */
static void compute_phase(worker *w, const char *images, int64_t py, int64_t px, const area *r, float *slots) {
  const tiles_job *job = w->job;
  const int64_t bundle = job->bundle, phases = job->w.phases, width = r->x_end - r->x;
  const int64_t pixels = ceil_div(width - px, phases) * bundle, lda = bundle > 1 ? job->pixel : job->w.step * job->pixel;
  const phase *p = &job->phases[py * phases + px];
  pair at = {0};
  for (int64_t y = r->y; y < r->y_end; y++) {
    if (y % job->h.phases != py) continue;
    const char *row = images + y / job->h.phases * job->h.step * job->row + r->x / phases * lda;
    for (int64_t x = 0; x < pixels; x += job->rows) {
      at.a[at.tiles] = row + x * lda;
      at.out[at.tiles] = slots + ((y - r->y) * width * bundle + px + x * phases) * PANEL;
      at.pixels[at.tiles++] = min(job->rows, pixels - x);
      if (at.tiles == 2) end_pair(w, p, &at);
    }
  }
  end_pair(w, p, &at);
}

static int64_t slot_floats(const tiles_job *job, int64_t bundle) { return max(PIXELS, job->segment * bundle) * PANEL; }

static void compute_area(worker *w, const char *images, uint16_t *dst, const area *r, float *slots) {
  const tiles_job *job = w->job;
  for (int64_t py = 0; py < job->h.phases; py++) {
    for (int64_t px = 0; px < min(job->w.phases, r->x_end - r->x); px++) compute_phase(w, images, py, px, r, slots);
  }
  finish_sums(w);
  finish_stores(w); /* of the area before */
  w->slots = slots;
  w->dst = dst + r->y * job->w.size + r->x;
  w->pixels = (r->y_end - r->y) * (r->x_end - r->x) * job->bundle;
  w->stored = 0;
}

/* Areas are whole rows or parts of one, so that their pixels follow each other. */
static void compute_band(worker *w, const char *images, uint16_t *dst, int64_t first, int64_t end) {
  const tiles_job *job = w->job;
  const int64_t width = job->w.size, rows = job->segment < width ? 1 : max(1, PIXELS / (width * job->bundle));
  int turn = 0;
  for (int64_t y = first; y < end; y += rows) {
    for (int64_t x = 0; x < width; x += job->segment, turn ^= 1) {
      const area r = {y, min(end, y + rows), x, min(width, x + job->segment)};
      compute_area(w, images, dst, &r, w->buffers[turn]);
    }
  }
  finish_stores(w);
}

static void compute_task(const void *arg, int64_t task, char *workspace) {
  const tiles_job *job = arg;
  const int64_t bands = ceil_div(job->h.size, job->band), band = task % bands, bundle = task / bands % job->bundles;
  const int64_t panel = task / bands / job->bundles % job->panels, group = task / bands / job->bundles / job->panels;
  const int64_t image = job->first_image + bundle * job->bundle, results = job->results;
  float bias[PANEL] = {0}, *floats = (float *)(void *)workspace;
  const int64_t size = slot_floats(job, job->bundle);
  worker w = {.job = job,
              .panel = job->weights + (group * job->panels + panel) * job->steps * STEP_BYTES,
              .columns = min(PANEL, results - panel * PANEL),
              .slot = job->w.phases * PANEL,
              .bias = job->bias ? bias : NULL,
              .buffers = {floats, floats + size},
              .partials = floats + 2 * size};
  if (job->bias) job->c->kernels->widen(w.columns, job->bias + group * results + panel * PANEL, bias);
  job->split->begin(job->rows);
  compute_band(&w, job->relaid + bundle * job->relaid_bytes + group * job->group,
               job->dst + ((image * job->c->groups + group) * results + panel * PANEL) * job->h.size * job->w.size,
               band * job->band, min(job->h.size, (band + 1) * job->band));
  job->split->end();
}

/* ---- Passes ---- */

/* Relaid images stay in a shared cache: so many bytes of them at once, or one bundle. */
static const int64_t PASS_BYTES = 12 << 20;
/* Multiply-adds of a task, enough to hide what it costs to take one. */
static const int64_t TASK_MULTIPLIES = 1 << 23;

/* Everything that doesn't depend on the pass. */
static void prepare(tiles_job *job) {
  const conv2d *c = job->c;
  int64_t width = BLOCK; /* channels of a pixel */
  while (!job->backward && c->w.dilation == 1 && width > 4 && width / 2 >= job->terms) width /= 2;
  job->pixel = width * 2;
  job->columns = BLOCK / width;
  job->blocks = ceil_div(job->terms, BLOCK);
  job->row_steps = ceil_div(c->w.kernel, job->columns);
  job->block_steps = c->h.kernel * job->row_steps;
  job->steps = job->blocks * job->block_steps;
  job->panels = ceil_div(job->results, PANEL);
  const int64_t row_multiplies = job->w.size * min(job->results, PANEL) * job->terms * c->taps / (job->h.phases * job->w.phases);
  job->segment = round_up(even_part(job->w.size, SEGMENT), job->w.phases);
  if (job->segment > job->w.size) job->segment = job->w.size;
  job->band = min(job->h.size, max(1, TASK_MULTIPLIES / (row_multiplies + 1)));
}

/* Images side by side: as many as two tiles take, if their pixels then lie as regularly as before. */
static int64_t bundle_of(const tiles_job *job) {
  if (job->w.phases > 1 || job->w.step > 1 || job->columns > 1) return 1;
  return min(job->c->batch, max(1, 2 * ROWS / job->w.size));
}

/* Rows of a tile that a row of pixels divides well into. */
static int64_t tile_rows(const tiles_job *job, int64_t bundle) {
  const int64_t pixels = ceil_div(job->segment, job->w.phases) * bundle;
  return even_part(pixels, ROWS);
}

static void run_pass(tiles_job *job, const tc_team *team) {
  const int64_t bands = ceil_div(job->h.size, job->band);
  job->rows = tile_rows(job, job->bundle);
  tc_team_run(team, job->bundles * job->c->groups * job->blocks, relay_task, job);
  tc_team_run(team, job->c->groups * job->panels * job->bundles * bands, compute_task, job);
}

static void run_passes(tiles_job *job, const tc_team *team, int64_t most_bundles) {
  const int64_t most = job->bundle, batch = job->c->batch;
  for (job->first_image = 0; job->first_image < batch; job->first_image += job->bundles * job->bundle) {
    const int64_t left = batch - job->first_image;
    if (left < most) {
      set_sizes(job, left);
      list_steps(job);
    }
    job->bundles = min(most_bundles, left / job->bundle);
    run_pass(job, team);
  }
}

/* ---- Memory ---- */

static int64_t lines(int64_t bytes) { return round_up(bytes, 64); }

/* Divides memory, or counts its bytes if that is NULL. */
static int64_t place(tiles_job *job, int64_t bundles, char *memory) {
  const int64_t offsets = lines(job->steps * (int64_t)sizeof(int64_t)),
                flags = lines((job->c->batch + 1) * (int64_t)sizeof(atomic_bool));
  const int64_t weights = job->c->groups * job->panels * job->steps * STEP_BYTES;
  if (memory) {
    job->offsets = (int64_t *)(void *)memory;
    job->step_of = (int64_t *)(void *)(memory + offsets);
    job->special = (atomic_bool *)(void *)(memory + 2 * offsets);
    job->weights = memory + 2 * offsets + flags;
    job->relaid = job->weights + weights;
    for (int64_t i = 0; i <= job->c->batch; i++) atomic_init(&job->special[i], false);
  }
  return 2 * offsets + flags + weights + bundles * job->relaid_bytes;
}

static int64_t thread_bytes(const tiles_job *job) {
  const int64_t pack = job->block_steps * STAGED_STEP + 2 * BLOCK * job->c->taps;
  const int64_t compute = 2 * slot_floats(job, job->bundle) + 2 * ROWS * PANEL;
  return max(max(pack, STAGED * BLOCK), compute) * (int64_t)sizeof(float);
}

/* ---- The call ---- */

/* An image of the batch as a problem of its own. */
static conv2d image_alone(const tiles_job *job, int64_t image) {
  conv2d c = *job->c;
  const int64_t in = c.groups * c.in_channels * c.h.size * c.w.size * image, out = c.groups * c.out_channels * c.pixels * image;
  c.batch = 1;
  if (job->backward) {
    c.dy += out, c.dx += in;
  } else {
    c.x += in, c.y += out;
  }
  return c;
}

/* Infinities and NaNs don't survive a split: an image that has some is done again. */
static tc_status_t redo_special(tc_cpu *cpu, const tiles_job *job, conv_driver *vector) {
  for (int64_t i = 0; i < job->c->batch; i++) {
    if (!job->special[i]) continue;
    const conv2d alone = image_alone(job, i);
    TC_TRY(vector(cpu, &alone));
  }
  return TC_OK;
}

static tc_status_t run(tc_cpu *cpu, tiles_job *job, conv_driver *vector) {
  const conv2d *c = job->c;
  job->split = cpu->split;
  tc_kernel_use(job->split->name);
  prepare(job);
  set_sizes(job, bundle_of(job));
  const int64_t bundles = min(ceil_div(c->batch, job->bundle), max(1, PASS_BYTES / job->relaid_bytes));
  void *memory;
  TC_TRY(tc_workspace_take(cpu, TC_WORKSPACE_PACKED, (size_t)place(job, bundles, NULL), &memory));
  place(job, bundles, memory);
  tc_team team;
  tc_status_t status = tc_team_take(cpu, tc_cpu_threads(cpu, conv_multiplies(c)), INT64_MAX, (size_t)thread_bytes(job), &team);
  if (status == TC_OK) {
    list_steps(job);
    tc_team_run(&team, c->groups * job->panels, pack_task, job);
    const bool special = job->special[c->batch];
    if (!special) run_passes(job, &team, bundles);
    tc_team_give(&team);
    status = special ? vector(cpu, c) : redo_special(cpu, job, vector);
  }
  tc_workspace_give(cpu, TC_WORKSPACE_PACKED, memory);
  return status;
}

/* By the sizes of one image only. Rows of a few pixels leave tiles mostly empty; a relaid image takes so many bytes at most; strides are
 * limited so that sizes can be computed. */
enum { ROW_PIXELS_MIN = 4, STRIDE_MAX = 1024, FLAT_PIXELS_MAX = SEGMENT };
static const double IMAGE_BYTES_MAX = 1 << 28;

static bool taps_are_few(const conv2d *c, int64_t terms) {
  return c->h.kernel <= AXIS_TAPS_MAX && c->w.kernel <= AXIS_TAPS_MAX && c->taps <= TAPS_MAX &&
         terms <= CHUNKS_MAX * TC_SPLIT_KC / c->taps;
}

static bool fits(const conv2d *c, const tap_axis *h, const tap_axis *w, int64_t terms) {
  const double bytes = 4.0 * (double)h->relaid * (double)w->relaid * (double)c->groups * (double)max(terms, BLOCK);
  return bytes <= IMAGE_BYTES_MAX && w->size / w->phases >= ROW_PIXELS_MIN;
}

bool tc_conv_tiles_suit_forward(const conv2d *c) {
  if (!taps_are_few(c, c->in_channels) || c->h.stride > STRIDE_MAX || c->w.stride > STRIDE_MAX) return false;
  const tap_axis h = forward_axis(&c->h), w = forward_axis(&c->w);
  return fits(c, &h, &w, c->in_channels);
}

bool tc_conv_tiles_suit_backward_input(const conv2d *c) {
  if (!taps_are_few(c, c->out_channels) || c->h.stride > PHASES_MAX || c->w.stride > PHASES_MAX) return false;
  const tap_axis h = backward_axis(&c->h), w = backward_axis(&c->w);
  return fits(c, &h, &w, c->out_channels);
}

tc_status_t tc_conv_tiles_forward(tc_cpu *cpu, const conv2d *c, conv_driver *vector) {
  tiles_job job = {.c = c, .src = c->x, .dst = c->y, .bias = c->bias, .terms = c->in_channels, .results = c->out_channels};
  job.h = forward_axis(&c->h);
  job.w = forward_axis(&c->w);
  return run(cpu, &job, vector);
}

/* Short rows of one tap become one row, which divides better into tiles. */
tc_status_t tc_conv_tiles_backward_input(tc_cpu *cpu, const conv2d *problem, conv_driver *vector) {
  conv2d c = *problem;
  if (c.pixels <= FLAT_PIXELS_MAX) conv_flatten(&c);
  tiles_job job = {.c = &c, .src = c.dy, .dst = c.dx, .terms = c.out_channels, .results = c.in_channels, .backward = true};
  job.h = backward_axis(&c.h);
  job.w = backward_axis(&c.w);
  return run(cpu, &job, vector);
}
