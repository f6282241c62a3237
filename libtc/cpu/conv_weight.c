/* SPDX-License-Identifier: MIT
 *
 * The gradient of the weight: for each tap, output channels times input channels, summed over pixels. Pixels go in chunks of TC_KC,
 * counted through the batch. A task packs its channels of a chunk of both images, channels side by side, once for all taps: a tap is
 * another place to begin in the packed X. Each tile's sum of a chunk is added to fp64 sums of the task. Long sums are cut into
 * pieces of chunks, by the shape alone, whose fp64 sums are added in order.
 */
#include <string.h>

#include "cpu/conv.h"
#include "f16.h"
#include "status.h"

enum { A_BLOCK = 32, B_BLOCK = 32 }; /* channels of dY and of X that lie side by side */

/* What follows from the shape, and how the work is cut. */
typedef struct weight_job {
  conv2d c;
  /* Columns of the product: all channels of a block and one tap; or, where one block holds all channels, all columns of a row of
   * taps, which then lie side by side too. */
  bool joined;
  int64_t blocks, pitch;       /* of X's channels; floats from a position to the next */
  int64_t units, unit_columns; /* of a block: what one set of tiles computes */
  int64_t panels;              /* of nr columns, in a unit */
  int64_t slot_step, reach,
      width;             /* packed rows from one output row to the next, that a tap column spans; positions of a packed row */
  int64_t region_floats; /* packed floats of a chunk's X, of one block, at most */
  int64_t chunks, pieces, piece_chunks;
  int64_t a_range, b_range; /* A and B blocks of a task */
  double *partials;         /* [pieces][groups][blocks][units][panels][out_channels][nr] */
} weight_job;

/* Consecutive output pixels of one row. */
typedef struct strip {
  int64_t image, oy, ox, n, at; /* at: in the chunk */
} strip;

/* Consecutive strips of an image whose X is packed together. */
typedef struct region {
  int64_t image, oy, rows, ox; /* ox: the first column that it packs */
  int64_t slot;                /* packed rows before it */
} region;

typedef struct chunk {
  int64_t n, strips, regions, slots;
  strip strip[TC_KC];
  region region[TC_KC];
  tc_run run[TC_KC];
} chunk;

/* ---- A chunk ---- */

/* Rows that are shorter than a chunk are packed whole, next to each other; of longer ones, just what a strip sees. */
static bool rows_are_short(const conv2d *c) { return c->w.out < TC_KC; }

static int64_t slots_of(const weight_job *job, int64_t rows) { return (rows - 1) * job->slot_step + job->reach; }

static void find_chunk(const weight_job *job, int64_t number, chunk *out) {
  const conv2d *c = &job->c;
  const int64_t first = number * TC_KC;
  out->n = min(TC_KC, c->batch * c->pixels - first);
  out->strips = out->regions = out->slots = 0;
  for (int64_t at = 0; at < out->n;) {
    strip *s = &out->strip[out->strips++];
    *s = (strip){(first + at) / c->pixels, (first + at) % c->pixels / c->w.out, (first + at) % c->w.out, 0, at};
    s->n = min(out->n - at, c->w.out - s->ox);
    region *r = out->regions ? &out->region[out->regions - 1] : NULL;
    if (!r || r->image != s->image || !rows_are_short(c)) {
      if (r) out->slots += slots_of(job, r->rows);
      r = &out->region[out->regions++];
      *r = (region){s->image, s->oy, 0, rows_are_short(c) ? 0 : s->ox, out->slots};
    }
    r->rows++;
    const int64_t slot = r->slot + (s->oy - r->oy) * job->slot_step, column = (s->ox - r->ox) * c->w.stride;
    out->run[out->strips - 1] = (tc_run){at * A_BLOCK, (slot * job->width + column) * job->pitch, s->n, false};
    at += s->n;
  }
  out->slots += slots_of(job, out->region[out->regions - 1].rows);
}

/* ---- Packing ---- */

static void pack_dy(const weight_job *job, const chunk *k, int64_t group, int64_t first, const int64_t *at, float *dst) {
  const conv2d *c = &job->c;
  const int64_t channels = min(A_BLOCK, c->out_channels - first);
  for (int64_t s = 0; s < k->strips; s++) {
    int64_t n = k->strip[s].n;
    const strip *from = &k->strip[s];
    while (s + 1 < k->strips && k->strip[s + 1].image == from->image) n += k->strip[++s].n;
    const uint16_t *src =
        conv_image(c->dy, c, from->image, group, first, c->out_channels, c->pixels) + from->oy * c->w.out + from->ox;
    c->kernels->spread(channels, n, src, c->pixels, dst + from->at * A_BLOCK, at);
  }
}

static void pack_x_row(const weight_job *job, const uint16_t *src, int64_t channels, int64_t first, const int64_t *at, float *dst) {
  const conv2d *c = &job->c;
  const int64_t before = min(job->width, max(0, -first)), end = max(before, min(job->width, c->w.size - first));
  memset(dst, 0, (size_t)(before * job->pitch) * sizeof *dst);
  if (end > before)
    c->kernels->spread(channels, end - before, src + first + before, c->h.size * c->w.size, dst + before * job->pitch, at);
  memset(dst + end * job->pitch, 0, (size_t)((job->width - end) * job->pitch) * sizeof *dst);
}

static void pack_x(const weight_job *job, const chunk *k, int64_t group, int64_t block, const int64_t *at, float *dst) {
  const conv2d *c = &job->c;
  const int64_t channels = min(B_BLOCK, c->in_channels - block * B_BLOCK);
  for (const region *r = k->region; r < k->region + k->regions; r++) {
    const uint16_t *src = conv_image(c->x, c, r->image, group, block * B_BLOCK, c->in_channels, c->h.size * c->w.size);
    for (int64_t slot = 0; slot < slots_of(job, r->rows); slot++) {
      const int64_t oy = r->oy + slot / job->slot_step, y = oy * c->h.stride - c->h.pad + slot % job->slot_step;
      float *row = dst + (r->slot + slot) * job->width * job->pitch;
      if (y < 0 || y >= c->h.size) {
        memset(row, 0, (size_t)(job->width * job->pitch) * sizeof *row);
      } else {
        pack_x_row(job, src + y * c->w.size, channels, r->ox * c->w.stride - c->w.pad, at, row);
      }
    }
  }
}

/* ---- Sums ---- */

/* A task's memory: a chunk, where its columns go, its packed images, and sums or a row of results on its way out. */
typedef struct weight_memory {
  chunk *k;
  int64_t *at_a, *at_b;
  float *a, *b, *row;
  double *sums;
} weight_memory;

static int64_t columns_of(const weight_job *job, int64_t block) {
  return job->joined ? job->unit_columns : min(B_BLOCK, job->c.in_channels - block * B_BLOCK);
}

/* Sums are [blocks][units][panels][rows][nr]: floats of one block. */
static int64_t block_sums(const weight_job *job, int64_t rows) { return job->units * job->panels * rows * job->c.kernels->nr; }

/* Adds a chunk's sums of one block of X to some rows, of all that the sums have. */
static void add_block(const weight_job *job, const weight_memory *w, int64_t block, int64_t rows, double *sums, int64_t all_rows) {
  const conv2d *c = &job->c;
  const int64_t nr = c->kernels->nr, mr = c->kernels->mr, ldb = c->w.stride * job->pitch, columns = columns_of(job, block);
  for (int64_t unit = 0; unit < job->units; unit++) {
    const int64_t ky = job->joined ? unit : unit / c->w.kernel, kx = job->joined ? 0 : unit % c->w.kernel;
    const float *b = w->b + (ky * c->h.dilation * job->width + kx * c->w.dilation) * job->pitch;
    for (int64_t panel = 0; panel < job->panels; panel++, sums += all_rows * nr) {
      const int64_t n = min(nr, columns - panel * nr);
      for (int64_t o = 0, m; n > 0 && o < rows; o += m) {
        const int64_t left = min(A_BLOCK - o % A_BLOCK, rows - o);
        m = even_part(left, mr);
        const float *a = w->a + o / A_BLOCK * A_BLOCK * TC_KC + o % A_BLOCK;
        c->kernels->outer(m, n, w->k->strips, w->k->run, a, A_BLOCK, b + panel * nr, ldb, sums + o * nr, nr);
      }
    }
  }
}

/* ---- Results ---- */

/* n elements of dW, a distance apart. */
static void store_elements(const weight_job *job, int64_t n, const float *values, int64_t first, int64_t distance) {
  enum { AT_ONCE = 64 };
  uint16_t narrow[AT_ONCE];
  for (int64_t x = 0; x < n; x += AT_ONCE) {
    const int64_t part = min(AT_ONCE, n - x), at = first + x * distance;
    if (job->c.dw_f32) {
      for (int64_t i = 0; i < part; i++) ((float *)job->c.dw)[at + i * distance] = canonical_nan(values[x + i]);
    } else if (distance == 1) {
      job->c.kernels->narrow(part, values + x, (uint16_t *)job->c.dw + at);
    } else {
      job->c.kernels->narrow(part, values + x, narrow);
      for (int64_t i = 0; i < part; i++) ((uint16_t *)job->c.dw)[at + i * distance] = narrow[i];
    }
  }
}

/* Elements of row o of dW that a block has, as its sums stood: of each unit, the channels of one tap, or of a row of taps. */
static void store_row(const weight_job *job, const float *row, int64_t group, int64_t block, int64_t o) {
  const conv2d *c = &job->c;
  const int64_t taps_at_once = job->joined ? c->w.kernel : 1, channels = columns_of(job, block) / taps_at_once;
  const int64_t first = ((group * c->out_channels + o) * c->in_channels + block * B_BLOCK) * c->taps;
  for (int64_t unit = 0; unit < job->units; unit++, row += job->panels * c->kernels->nr) {
    for (int64_t t = 0; t < taps_at_once; t++) {
      store_elements(job, channels, row + t * channels, first + unit * taps_at_once + t, c->taps);
    }
  }
}

static void store_rows(const weight_job *job, const weight_memory *w, int64_t group, int64_t block, int64_t first, int64_t rows,
                       const double *sums, int64_t all_rows) {
  const int64_t nr = job->c.kernels->nr;
  for (int64_t o = 0; o < rows; o++) {
    for (int64_t line = 0; line < job->units * job->panels; line++) {
      job->c.kernels->round(nr, sums + (line * all_rows + o) * nr, w->row + line * nr);
    }
    store_row(job, w->row, group, block, first + o);
  }
}

/* ---- Tasks ---- */

static int64_t row_floats(const weight_job *job) { return round_up(block_sums(job, 1), 16); }

static int64_t slack(const conv2d *c) { return c->kernels->nr; } /* that the last tile may read beyond a region */

static size_t memory_bytes(const weight_job *job) {
  const int64_t sums = job->pieces == 1 ? job->b_range * block_sums(job, job->a_range * A_BLOCK) : 0;
  const int64_t floats = job->a_range * A_BLOCK * TC_KC + round_up(job->region_floats + slack(&job->c), 16) + row_floats(job);
  return (size_t)(sums * (int64_t)sizeof(double) + floats * (int64_t)sizeof(float)) + sizeof(chunk) +
         (size_t)(TC_KC + round_up(job->width, 8)) * sizeof(int64_t);
}

static weight_memory carve(const weight_job *job, char *workspace) {
  weight_memory w;
  w.a = (float *)(void *)workspace;
  w.b = w.a + job->a_range * A_BLOCK * TC_KC;
  w.row = w.b + round_up(job->region_floats + slack(&job->c), 16);
  w.at_a = (int64_t *)(void *)(w.row + row_floats(job));
  w.at_b = w.at_a + TC_KC;
  w.sums = (double *)(void *)(w.at_b + round_up(job->width, 8));
  w.k = (chunk *)(void *)(w.sums + (job->pieces == 1 ? job->b_range * block_sums(job, job->a_range * A_BLOCK) : 0));
  for (int64_t x = 0; x < TC_KC; x++) w.at_a[x] = x * A_BLOCK;
  for (int64_t x = 0; x < job->width; x++) w.at_b[x] = x * job->pitch;
  return w;
}

/* What a task computes: rows from first_row on, blocks from first_block on. */
typedef struct part {
  int64_t group, piece, first_row, rows, first_block, blocks;
} part;

static int64_t row_parts(const weight_job *job) { return ceil_div(ceil_div(job->c.out_channels, A_BLOCK), job->a_range); }

static int64_t block_parts(const weight_job *job) { return ceil_div(job->blocks, job->b_range); }

static part part_of(const weight_job *job, int64_t task) {
  part p;
  p.first_row = task % row_parts(job) * job->a_range * A_BLOCK;
  p.first_block = task / row_parts(job) % block_parts(job) * job->b_range;
  p.rows = min(job->a_range * A_BLOCK, job->c.out_channels - p.first_row);
  p.blocks = min(job->b_range, job->blocks - p.first_block);
  p.piece = task / row_parts(job) / block_parts(job) % job->pieces;
  p.group = task / row_parts(job) / block_parts(job) / job->pieces;
  return p;
}

static double *partial(const weight_job *job, int64_t piece, int64_t group, int64_t block, int64_t row) {
  const int64_t one = block_sums(job, job->c.out_channels);
  return job->partials + ((piece * job->c.groups + group) * job->blocks + block) * one + row * job->c.kernels->nr;
}

static void clear(const weight_job *job, int64_t blocks, int64_t rows, double *sums, int64_t all_rows) {
  const int64_t nr = job->c.kernels->nr;
  for (int64_t line = 0; line < blocks * job->units * job->panels; line++) {
    memset(sums + line * all_rows * nr, 0, (size_t)(rows * nr) * sizeof *sums);
  }
}

static void sum_task(const void *arg, int64_t task, char *workspace) {
  const weight_job *job = arg;
  const part p = part_of(job, task);
  const weight_memory w = carve(job, workspace);
  const bool whole = job->pieces == 1;
  const int64_t all_rows = whole ? p.rows : job->c.out_channels, block_distance = block_sums(job, all_rows);
  double *sums = whole ? w.sums : partial(job, p.piece, p.group, p.first_block, p.first_row);
  clear(job, p.blocks, p.rows, sums, all_rows);
  memset(w.b, 0, (size_t)(job->region_floats + slack(&job->c)) * sizeof *w.b);
  const int64_t end = min(job->chunks, (p.piece + 1) * job->piece_chunks);
  for (int64_t number = p.piece * job->piece_chunks; number < end; number++) {
    find_chunk(job, number, w.k);
    for (int64_t o = 0; o < p.rows; o += A_BLOCK) pack_dy(job, w.k, p.group, p.first_row + o, w.at_a, w.a + o * TC_KC);
    for (int64_t block = 0; block < p.blocks; block++) {
      pack_x(job, w.k, p.group, p.first_block + block, w.at_b, w.b);
      add_block(job, &w, p.first_block + block, p.rows, sums + block * block_distance, all_rows);
    }
  }
  for (int64_t block = 0; whole && block < p.blocks; block++) {
    store_rows(job, &w, p.group, p.first_block + block, p.first_row, p.rows, sums + block * block_distance, all_rows);
  }
}

/* One block of some rows: the sum of its pieces, in their order. */
enum { REDUCE_ROWS = 16 };

static void reduce_task(const void *arg, int64_t task, char *workspace) {
  const weight_job *job = arg;
  const weight_memory w = carve(job, workspace);
  const int64_t parts = ceil_div(job->c.out_channels, REDUCE_ROWS), nr = job->c.kernels->nr, all_rows = job->c.out_channels;
  const int64_t first = task % parts * REDUCE_ROWS, rows = min(REDUCE_ROWS, all_rows - first);
  const int64_t block = task / parts % job->blocks, group = task / parts / job->blocks;
  double *sums = partial(job, 0, group, block, first);
  for (int64_t piece = 1; piece < job->pieces; piece++) {
    const double *more = partial(job, piece, group, block, first);
    for (int64_t line = 0; line < job->units * job->panels; line++) {
      const int64_t at = line * all_rows * nr;
      for (int64_t x = at; x < at + rows * nr; x++) sums[x] += more[x];
    }
  }
  store_rows(job, &w, group, block, first, rows, sums, all_rows);
}

/* ---- The call ---- */

/* What a task keeps at hand, and what all pieces may take. */
enum { SUMS_MAX = 96 << 10, A_RANGE_MAX = 16, PIECES_MAX = 32, PIECE_CHUNKS_MIN = 4, SPLIT_ELEMENTS_MAX = 1 << 20 };

static weight_job describe(const conv2d *problem) {
  weight_job job = {.c = *problem};
  conv2d *c = &job.c;
  conv_flatten(c);
  const int64_t reach_w = (c->w.kernel - 1) * c->w.dilation + 1;
  job.blocks = ceil_div(c->in_channels, B_BLOCK);
  job.pitch = min(c->in_channels, B_BLOCK);
  job.joined = job.blocks == 1 && c->w.dilation == 1;
  job.units = job.joined ? c->h.kernel : c->taps;
  job.unit_columns = job.joined ? c->w.kernel * c->in_channels : B_BLOCK;
  job.panels = ceil_div(job.unit_columns, c->kernels->nr);
  job.reach = (c->h.kernel - 1) * c->h.dilation + 1;
  job.slot_step = min(c->h.stride, job.reach);
  job.width = (min(c->w.out, TC_KC) - 1) * c->w.stride + reach_w;
  const int64_t rows = rows_are_short(c) ? min(c->batch * c->h.out, TC_KC / c->w.out + 2) : 2;
  const int64_t regions = rows_are_short(c) ? min(c->batch, TC_KC / c->pixels + 2) : 2;
  job.region_floats = (rows * job.slot_step + regions * job.reach) * job.width * job.pitch;
  job.chunks = ceil_div(c->batch * c->pixels, TC_KC);
  return job;
}

static void cut(weight_job *job, int64_t threads) {
  const conv2d *c = &job->c;
  const int64_t elements = c->groups * c->out_channels * c->in_channels * c->taps;
  job->pieces = max(1, min(min(PIECES_MAX, job->chunks / PIECE_CHUNKS_MIN), SPLIT_ELEMENTS_MAX / elements));
  job->piece_chunks = ceil_div(job->chunks, job->pieces);
  job->pieces = max(1, ceil_div(job->chunks, max(1, job->piece_chunks)));
  job->a_range = min(A_RANGE_MAX, ceil_div(c->out_channels, A_BLOCK));
  job->b_range = job->blocks;
  while (job->a_range > 1 || job->b_range > 1) {
    const bool fits = job->b_range * block_sums(job, job->a_range * A_BLOCK) <= SUMS_MAX;
    if (fits && c->groups * job->pieces * row_parts(job) * block_parts(job) >= 4 * threads) break;
    if (job->b_range > 1 && (job->a_range == 1 || job->b_range * job->units * B_BLOCK > job->a_range * A_BLOCK)) {
      job->b_range = ceil_div(job->b_range, 2);
    } else {
      job->a_range = ceil_div(job->a_range, 2);
    }
  }
}

/* A chunk's X, of one block, stays in a second-level cache; strides are limited so that its size can be computed. */
enum { REGION_FLOATS_MAX = 1 << 18, STRIDE_MAX = 1024 };

bool tc_conv_weight_suits(const conv2d *c) {
  return c->batch > 0 && c->h.stride <= STRIDE_MAX && c->w.stride <= STRIDE_MAX && c->out_channels >= 2 &&
         c->in_channels * c->w.kernel >= 8 && describe(c).region_floats <= REGION_FLOATS_MAX;
}

tc_status_t tc_conv_weight(tc_cpu *cpu, const conv2d *problem) {
  weight_job job = describe(problem);
  const int64_t threads = tc_cpu_threads(cpu, conv_multiplies(problem));
  cut(&job, threads);
  const conv2d *c = &job.c;
  void *partials = NULL;
  if (job.pieces > 1) {
    const int64_t doubles = job.pieces * c->groups * job.blocks * block_sums(&job, c->out_channels);
    TC_TRY(tc_workspace_take(cpu, TC_WORKSPACE_PARTIALS, (size_t)doubles * sizeof(double), &partials));
  }
  job.partials = partials;
  tc_team team;
  const tc_status_t status = tc_team_take(cpu, threads, INT64_MAX, memory_bytes(&job), &team);
  if (status == TC_OK) {
    tc_team_run(&team, c->groups * job.pieces * row_parts(&job) * block_parts(&job), sum_task, &job);
    if (partials) tc_team_run(&team, c->groups * job.blocks * ceil_div(c->out_channels, REDUCE_ROWS), reduce_task, &job);
    tc_team_give(&team);
  }
  if (partials) tc_workspace_give(cpu, TC_WORKSPACE_PARTIALS, partials);
  return status;
}
