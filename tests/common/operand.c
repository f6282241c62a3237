/* SPDX-License-Identifier: MIT */
#include "operand.h"

#include "check.h"
#include "context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *allocate(int64_t count, size_t size) {
  void *memory = calloc(count > 0 ? (size_t)count : 1, size);
  if (!memory) give_up("no memory for %lld elements", (long long)count);
  return memory;
}

const char *const placement_names[] = {"at_end", "at_start", "in_library"};

/* ---- Guarded memory ---- */

/* A multiple of all pages: the machine's, and Metal's. */
static size_t page_bytes(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return page > 16384 ? page : 16384;
}

static size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

guarded guarded_open(size_t bytes, placement place) {
  size_t page = page_bytes(), inner = round_up(bytes, page);
  guarded g = {.map_bytes = inner + 3 * page, .bytes = bytes};
  g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (g.map == MAP_FAILED) give_up("no memory for %zu bytes between guards", bytes);
  g.pages = (uint8_t *)round_up((uintptr_t)g.map + 1, page);
  g.page_bytes = inner;
  g.data = place == AT_START ? g.pages : g.pages + inner - bytes;
  guarded_protect(&g, true);
  return g;
}

void guarded_protect(const guarded *g, bool writable) {
  if (g->page_bytes == 0) return;
  if (mprotect(g->pages, g->page_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ)) give_up("mprotect failed");
}

void guarded_close(guarded *g) {
  if (g->map) munmap(g->map, g->map_bytes);
  *g = (guarded){0};
}

/* ---- Data ---- */

static double special_value(rng *r) {
  static const double values[] = {INFINITY, -INFINITY, NAN, 0.0, -0.0, 0x1p-24, -0x1p-15, 65504.0};
  return values[rng_between(r, 0, COUNT(values) - 1)];
}

static double one_value(contents fill, rng *r) {
  switch (fill.kind) {
  case DATA_NAN:
    return NAN;
  case DATA_CONSTANT:
    return fill.parameter;
  case DATA_NORMAL:
    return rng_normal(r) * fill.parameter;
  case DATA_INTEGER:
    return (double)rng_between(r, -(int64_t)fill.parameter, (int64_t)fill.parameter);
  case DATA_ODD:
    return (double)((2 * rng_between(r, 128, 1023) + 1) * (rng_one_in(r, 2) ? 1 : -1));
  case DATA_FINITE:
    return half_value((uint16_t)(rng_between(r, 0, 0x7bff) | (rng_one_in(r, 2) ? 0x8000 : 0)));
  case DATA_SUBNORMAL:
    return half_value((uint16_t)(rng_between(r, 1, 0x3ff) | (rng_one_in(r, 2) ? 0x8000 : 0)));
  case DATA_SPECIAL:
    return rng_one_in(r, (int64_t)fill.parameter) ? special_value(r) : rng_normal(r);
  }
  give_up("no such data");
}

/* ---- Operands ---- */

static size_t element_bytes(const operand *o) { return o->dtype == TC_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t); }

int64_t operand_elements(const operand *o) { return o->count[0] * o->count[1] * o->count[2]; }

size_t operand_bytes(const operand *o) {
  if (operand_elements(o) == 0) return 0;
  int64_t last = o->offset;
  for (int axis = 0; axis < 3; axis++) last += (o->count[axis] - 1) * o->stride[axis];
  return (size_t)(last + 1) * element_bytes(o);
}

int64_t operand_place(const operand *o, int64_t n) {
  int64_t column = n % o->count[2], row = n / o->count[2] % o->count[1], matrix = n / o->count[2] / o->count[1];
  return o->offset + matrix * o->stride[0] + row * o->stride[1] + column * o->stride[2];
}

double operand_get(const operand *o, int64_t element) {
  const uint8_t *at = o->memory.data + (size_t)element * element_bytes(o);
  uint16_t half;
  float single;
  if (o->dtype == TC_DTYPE_F32) {
    memcpy(&single, at, sizeof(single));
    return single;
  }
  memcpy(&half, at, sizeof(half));
  return half_value(half);
}

void operand_set(const operand *o, int64_t element, double value) {
  uint8_t *at = o->memory.data + (size_t)element * element_bytes(o);
  uint16_t half = half_round(value);
  float single = (float)value;
  if (o->dtype == TC_DTYPE_F32) {
    memcpy(at, &single, sizeof(single));
  } else {
    memcpy(at, &half, sizeof(half));
  }
}

double *operand_values(const operand *o) {
  int64_t elements = operand_elements(o);
  double *values = allocate(elements, sizeof(double));
  for (int64_t n = 0; n < elements; n++) values[n] = operand_get(o, operand_place(o, n));
  return values;
}

static bool sparse(const operand *o) { return o->memory.bytes > SPARSE_BYTES; }

/* ---- The rest of the pages that a buffer must wrap: as NaN as the gaps, and nobody's business ---- */

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#define HAS_ASAN __has_feature(address_sanitizer)
#else
#define HAS_ASAN 0
#endif

#if HAS_ASAN
#include <sanitizer/asan_interface.h>
static void forbid(const uint8_t *from, const uint8_t *to) { __asan_poison_memory_region(from, (size_t)(to - from)); }
static void allow(const uint8_t *from, const uint8_t *to) { __asan_unpoison_memory_region(from, (size_t)(to - from)); }
#else
static void forbid(const uint8_t *from, const uint8_t *to) { (void)from, (void)to; }
static void allow(const uint8_t *from, const uint8_t *to) { (void)from, (void)to; }
#endif

/* Finds whole units around the operand's memory. */
static void wrap_around(operand *o, size_t unit) {
  const guarded *m = &o->memory;
  o->begin = m->data - (uintptr_t)m->data % unit;
  o->end = o->begin + round_up((size_t)(m->data + m->bytes - o->begin), unit);
  o->shift = (m->data - o->begin) / (int64_t)element_bytes(o);
}

static void forbid_rest(const operand *o) {
  forbid(o->begin, o->memory.data);
  forbid(o->memory.data + o->memory.bytes, o->end);
}

static void check_rest(const operand *o) {
  allow(o->begin, o->end);
  if (sparse(o)) return;
  int64_t touched = 0;
  for (const uint8_t *at = o->begin; at < o->memory.data; at++) touched += *at != 0xff;
  for (const uint8_t *at = o->memory.data + o->memory.bytes; at < o->end; at++) touched += *at != 0xff;
  CHECK_INT(touched, 0);
}

uint8_t *operand_snapshot(const operand *o) {
  if (sparse(o)) return NULL;
  uint8_t *copy = allocate((int64_t)o->memory.bytes, 1);
  memcpy(copy, o->memory.data, o->memory.bytes);
  return copy;
}

void operand_restore(const operand *o, const uint8_t *snapshot) {
  if (snapshot) memcpy(o->memory.data, snapshot, o->memory.bytes);
}

/* Makes the memory and its buffer; nothing of it has been touched yet. */
static void open_memory(operand *o, tc_context *ctx, placement place) {
  if (place != IN_LIBRARY) {
    o->memory = guarded_open(operand_bytes(o), place);
    wrap_around(o, wrap_unit(ctx));
    if (tc_buffer_wrap(ctx, o->begin, (size_t)(o->end - o->begin), &o->buffer) != TC_OK) give_up("%s", tc_last_error());
    return;
  }
  void *data = NULL;
  o->memory = (guarded){.bytes = operand_bytes(o)};
  if (tc_buffer_alloc(ctx, o->memory.bytes, &o->buffer) != TC_OK) give_up("%s", tc_last_error());
  CHECK_OK(tc_buffer_map(o->buffer, &data));
  o->memory.data = data;
  wrap_around(o, 1);
}

void operand_open(operand *o, tc_context *ctx, placement place, contents fill, rng *r) {
  open_memory(o, ctx, place);
  bool poisoned = o->memory.bytes > 0 && !sparse(o);
  if (poisoned) memset(o->begin, 0xff, (size_t)(o->end - o->begin)); /* 0xff.. is a NaN in fp16 and in fp32 */
  if (fill.kind != DATA_NAN || !poisoned) {
    for (int64_t n = 0, elements = operand_elements(o); n < elements; n++) operand_set(o, operand_place(o, n), one_value(fill, r));
  }
  forbid_rest(o);
}

void operand_close(operand *o, tc_context *ctx) {
  check_rest(o);
  CHECK_OK(tc_buffer_free(ctx, o->buffer));
  guarded_close(&o->memory);
  o->buffer = NULL;
}

/* ---- Comparison ---- */

static bool exactly(tc_dtype_t dtype, double exact, double got) {
  return isnan(exact) ? isnan(got) : got == round_to(dtype, exact);
}

/* The library writes just one NaN, so that bits don't depend on operands' payloads. */
static bool canonical_nan(const operand *o, int64_t element) {
  uint16_t half;
  uint32_t single;
  memcpy(&half, o->memory.data + element * 2, sizeof(half));
  if (o->dtype == TC_DTYPE_F16) return half == 0x7e00;
  memcpy(&single, o->memory.data + element * 4, sizeof(single));
  return single == 0x7fc00000;
}

static bool check_elements(const operand *o, const expected *want, accuracy how, error_statistics *stats) {
  for (int64_t n = 0, elements = operand_elements(o); n < elements; n++) {
    double got = operand_get(o, operand_place(o, n));
    bool right = how == RULE_EXACT ? exactly(o->dtype, want[n].exact, got) : within_bound(o->dtype, want[n], got);
    right = right && (!isnan(got) || canonical_nan(o, operand_place(o, n)));
    if (!right) {
      int64_t column = n % o->count[2], row = n / o->count[2] % o->count[1], matrix = n / o->count[2] / o->count[1];
      return check_failed(__FILE__, __LINE__, "element [%lld, %lld, %lld] is %.9g, exact is %.17g, sum of |a||b| is %g",
                          (long long)matrix, (long long)row, (long long)column, got, want[n].exact, want[n].sum);
    }
    if (isfinite(got) && isfinite(round_to(o->dtype, want[n].exact))) error_add(stats, o->dtype, want[n], got);
  }
  return CHECK(true);
}

/* Everything but the elements of the output is as it was. */
static bool check_gaps(const operand *o, const uint8_t *before) {
  if (sparse(o)) return true;
  size_t bytes = o->memory.bytes, size = element_bytes(o);
  uint8_t *now = operand_snapshot(o);
  for (int64_t n = 0, elements = operand_elements(o); n < elements; n++) {
    size_t at = (size_t)operand_place(o, n) * size;
    memcpy(now + at, before + at, size);
  }
  bool same = check_bytes(now, before, bytes, "bytes outside of the output's elements", __FILE__, __LINE__);
  free(now);
  return same;
}

bool check_output(const operand *o, const expected *want, const uint8_t *before, accuracy how, error_statistics *stats) {
  error_statistics own = {0};
  stats = stats ? stats : &own;
  bool right = check_elements(o, want, how, stats) && check_gaps(o, before);
  if (!right || how != RULE_RANDOM || !random_enough(stats)) return right;
  /* The ratio is about fp16's rounding; an fp32 result's own rounding is no larger than that of its sums. */
  if (o->dtype == TC_DTYPE_F16) right = CHECK_AT_MOST(error_ratio(stats), 1.02);
  return CHECK_AT_MOST(error_rms(stats), 1e-3) && right;
}
