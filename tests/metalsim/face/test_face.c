/* SPDX-License-Identifier: MIT */
/* Kernels that are right (kernels/features.metal): everything they need of the language gives what it must. */
#include "testing.h"

#include <math.h>

static face_library *library;

#define BIND(array) \
  { array, sizeof(array) }

static face_counters good(const call *c) {
  face_counters counters;
  char *error = dispatch(library, c, &counters);
  CHECK(!error, "%s: %s", c->kernel, error);
  free(error);
  return counters;
}

static bool set_to(const char *variable, const char *value) {
  const char *set = getenv(variable);
  return set && !strcmp(set, value);
}

/* ---- arguments ---- */

static void test_reflection(void) {
  const face_kernel *k = face_library_find(library, "scale");
  CHECK(k && k->argument_count == 3 && k->constant_count == 0 && k->max_total_threads == 0, "scale");
  const face_argument *x = &k->arguments[0], *y = &k->arguments[1], *p = &k->arguments[2];
  CHECK(!strcmp(x->name, "x") && x->space == FACE_DEVICE && x->index == 0 && !x->writable && !x->reference && x->size == 4, "x");
  CHECK(y->space == FACE_DEVICE && y->index == 2 && y->writable && y->alignment == 4, "y");
  CHECK(p->space == FACE_CONSTANT && p->index == 5 && !p->writable && p->reference && p->size == 16 && p->alignment == 8, "p");
  CHECK(!face_library_find(library, "rate_of") && !face_library_find(library, "nothing"), "only kernels are found");
  k = face_library_find(library, "reverse");
  CHECK(k->arguments[1].space == FACE_THREADGROUP && k->arguments[1].index == 1, "reverse");
  char *error;
  face_function *f = face_function_new(library, "reverse", NULL, 0, &error);
  CHECK(face_function_threadgroup_bytes(f) == 2 * 1024, "%zu bytes", face_function_threadgroup_bytes(f));
  face_function_free(f);
  CHECK(face_library_find(library, "at_most_64")->max_total_threads == 64, "max_total_threads");
  CHECK(!face_function_new(library, "nothing", NULL, 0, &error) && error_has(error, "no kernel 'nothing'"), "nothing");
}

static void test_scale(void) {
  float x[50], y[50];
  struct {
    uint32_t count;
    float factor, pair[2];
  } p[1] = {{50, 2.0f, {0, 1.0f}}};
  for (int i = 0; i < 50; i++) x[i] = i, y[i] = NAN;
  call c = {.kernel = "scale", .buffers = {[0] = BIND(x), [2] = BIND(y), [5] = BIND(p)}, .groups = {2}, .threads = {32}};
  face_counters counters = good(&c);
  for (int i = 0; i < 50; i++) CHECK(y[i] == 2 * i + 1, "%d: %g", i, y[i]);
  CHECK(counters.threadgroups == 2 && counters.threadgroup_barriers == 0, "counters");
  if (set_to("METALSIM_CHECK", "1"))
    CHECK(counters.device_read == 200 && counters.device_written == 200 && counters.constant_read == 64 * 4 + 50 * 8 &&
              counters.device_accesses == 100,
          "%lu %lu %lu %lu", (unsigned long)counters.device_read, (unsigned long)counters.device_written,
          (unsigned long)counters.constant_read, (unsigned long)counters.device_accesses);
  c.buffers[5].length = 12;
  CHECK(error_has(dispatch(library, &c, NULL), "'p' holds 12 bytes, 16 are needed"), "a short reference");
  c.buffers[5] = (face_binding){NULL, 0};
  CHECK(error_has(dispatch(library, &c, NULL), "nothing is bound to 'p' (buffer 5)"), "an unbound argument");
  c.buffers[5] = (face_binding){(char *)p + 4, 16};
  CHECK(error_has(dispatch(library, &c, NULL), "not aligned to 8 bytes"), "a misaligned argument");
}

static void test_threads(void) {
  uint32_t y[64];
  call c = {.kernel = "at_most_64", .buffers = {BIND(y)}, .threads = {64}};
  good(&c);
  c.threads[1] = 2;
  CHECK(error_has(dispatch(library, &c, NULL), "128 threads per threadgroup; 1 to 64 are allowed"), "too many threads");
}

static void test_positions(void) {
  enum { X = 5, Y = 3, Z = 3, GX = 2, GY = 3 };
  static uint32_t out[GX * GY * X * Y * Z][16];
  good(&(call){.kernel = "positions", .buffers = {BIND(out)}, .groups = {GX, GY}, .threads = {X, Y, Z}});
  for (uint32_t i = 0; i < GX * GY * X * Y * Z; i++) {
    uint32_t group = i / (X * Y * Z), index = i % (X * Y * Z), x = index % X, y = index / X % Y, z = index / X / Y;
    uint32_t want[12] = {group % GX * X + x,
                         group / GX * Y + y,
                         z,
                         GX * X * 10000 + GY * Y * 100 + Z,
                         x,
                         y,
                         z,
                         index,
                         index % 32,
                         index / 32,
                         2,
                         32};
    CHECK(!memcmp(out[i], want, sizeof want), "thread %u", i);
  }
}

/* ---- function constants ---- */

static uint64_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

static void test_constants(void) {
  float y[4], bias[4] = {1, 2, 3, 4}, extra[4] = {10, 20, 30, 40};
  call c = {.kernel = "constants", .buffers = {BIND(y)}, .threads = {4}};
  CHECK(error_has(dispatch(library, &c, NULL), "function constant 'has_bias' (0) has no value"), "a required constant");
  c.values[0] = (face_value){0, FACE_UINT, 0}, c.value_count = 1;
  CHECK(error_has(dispatch(library, &c, NULL), "has type bool, its value has type uint"), "a constant of another type");
  c.values[0] = (face_value){0, FACE_BOOL, 0};
  good(&c);
  CHECK(y[3] == 100, "without bias or shift: %g", y[3]);
  c.values[0].bits = 1;
  CHECK(error_has(dispatch(library, &c, NULL), "nothing is bound to 'bias'"), "an argument that is switched on");
  c.buffers[1] = (face_binding)BIND(bias), c.buffers[2] = (face_binding)BIND(extra);
  c.values[1] = (face_value){1, FACE_UINT, 4}, c.value_count = 2;
  good(&c);
  CHECK(y[3] == 9, "with bias: %g", y[3]);
  c.values[1].bits = 6;
  good(&c);
  CHECK(y[3] == 51, "with bias and extra: %g", y[3]);
}

static void test_constants_of_kernels(void) {
  float y[4];
  const face_kernel *k = face_library_find(library, "constants");
  CHECK(k->constant_count == 2, "%zu constants", k->constant_count);
  for (size_t i = 0; i < k->constant_count; i++)
    CHECK(!strcmp(k->constants[i].name, k->constants[i].index ? "shift" : "has_bias") &&
              k->constants[i].required == !k->constants[i].index &&
              k->constants[i].type == (k->constants[i].index ? FACE_UINT : FACE_BOOL),
          "%s", k->constants[i].name);
  CHECK(face_library_find(library, "constant_of_a_callee")->constant_count == 2, "constants of callees");
  CHECK(face_library_find(library, "no_constants")->constant_count == 0, "a kernel without constants");
  call c = {.kernel = "constant_of_a_callee",
            .values = {{2, FACE_FLOAT, bits_of(0.5f)}, {3, FACE_SHORT, (uint16_t)-7}},
            .value_count = 2,
            .buffers = {BIND(y)},
            .threads = {4}};
  good(&c);
  CHECK(y[2] == -6, "%g", y[2]);
}

/* ---- threadgroups and simdgroups ---- */

static void test_reverse(void) {
  uint32_t data[256];
  for (uint32_t i = 0; i < 256; i++) data[i] = i * 3;
  call c = {.kernel = "reverse", .buffers = {BIND(data)}, .threadgroup_lengths = {0, 1024}, .threads = {256}};
  face_counters counters = good(&c);
  for (uint32_t i = 0; i < 256; i++) CHECK(data[i] == (255 - i) * 3, "%u: %u", i, data[i]);
  CHECK(counters.threadgroup_barriers == 3, "%lu barriers", (unsigned long)counters.threadgroup_barriers);
  c.threadgroup_lengths[1] = 0;
  CHECK(error_has(dispatch(library, &c, NULL), "no length is set for threadgroup argument 'given'"),
        "a threadgroup argument without a length");
}

static void test_simdgroup_steps(void) {
  uint32_t data[128];
  for (uint32_t i = 0; i < 128; i++) data[i] = i;
  face_counters counters = good(&(call){.kernel = "simdgroup_steps", .buffers = {BIND(data)}, .threads = {128}});
  for (uint32_t i = 0; i < 128; i++) CHECK(data[i] == i / 32 * 32 * 32 + 496, "%u: %u", i, data[i]);
  CHECK(counters.simdgroup_barriers == 24, "%lu barriers", (unsigned long)counters.simdgroup_barriers);
}

static void test_unwritten_threadgroup_memory(void) {
  float y[128] = {0};
  good(&(call){.kernel = "unwritten_threadgroup_memory", .buffers = {BIND(y)}, .threads = {64}});
  for (int i = 0; i < 128; i++) CHECK(isnan(y[i]), "%d: %g", i, y[i]);
}

static void test_simd_functions(void) {
  static float f[64];
  static uint32_t u[64][16];
  for (int i = 0; i < 64; i++) f[i] = i;
  good(&(call){.kernel = "simd_functions", .buffers = {BIND(f), BIND(u)}, .threads = {64}});
  for (uint32_t i = 0; i < 64; i++) {
    uint32_t lane = i % 32, first = i - lane, before = first * lane + lane * (lane - 1) / 2;
    uint32_t want[16] = {first + 31,
                         first,
                         first + 31 - lane,
                         i ^ 1,
                         lane < 3 ? i : i - 3,
                         lane > 28 ? i : i + 3,
                         first + 7,
                         first,
                         before + i,
                         before,
                         1,
                         0,
                         0xffffffff,
                         0,
                         first | 1,
                         (uint32_t)bits_of(16.0f)};
    CHECK(!memcmp(u[i], want, sizeof want) && f[i] == first * 32 + 496, "thread %u", i);
  }
}

/* ---- matrices ---- */

static float half_to_float(uint16_t h) {
  float magnitude = h & 0x7c00 ? ldexpf((h & 0x3ff) | 0x400, (h >> 10 & 31) - 25) : ldexpf(h & 0x3ff, -24);
  return h & 0x8000 ? -magnitude : magnitude;
}

/* The half nearest to an integer up to 2048, or to a quarter of one. */
static uint16_t half_of(float x) {
  for (uint32_t h = 0; h < 0x8000; h++)
    if (half_to_float(h) == fabsf(x)) return h | (x < 0 ? 0x8000 : 0);
  return 0x7e00;
}

static void fill(void *data, int count, bool half, int seed) {
  for (int i = 0; i < count; i++) {
    float value = (float)((i * 7 + seed) % 9 - 4);
    if (half)
      ((uint16_t *)data)[i] = half_of(value);
    else
      ((float *)data)[i] = value;
  }
}

static float get(const void *data, int i, bool half) {
  return half ? half_to_float(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}

static void test_multiply(const char *kernel, bool half_in, bool half_out, bool transpose_a, bool transpose_b) {
  static uint32_t A[240], B[240], C[64], D[10 * 16];
  fill(A, 240, half_in, 1), fill(B, 240, half_in, 2), fill(C, 64, half_out, 3), fill(D, 160, half_out, 4);
  face_counters counters = good(&(call){.kernel = kernel, .buffers = {BIND(A), BIND(B), BIND(C), BIND(D)}, .threads = {32}});
  CHECK(counters.multiply_accumulates == 1, "%lu", (unsigned long)counters.multiply_accumulates);
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) {
      float sum = get(C, 8 * i + j, half_out);
      for (int k = 0; k < 8; k++)
        sum += get(A, (transpose_a ? 20 * (2 + k) + 3 + i : 20 * (2 + i) + 3 + k), half_in) *
               get(B, transpose_b ? 20 * (4 + j) + 1 + k : 20 * (4 + k) + 1 + j, half_in);
      float got = get(D, transpose_a ? 16 * (1 + j) + 8 + i : 16 * (1 + i) + 8 + j, half_out);
      CHECK(got == sum, "%s (%d, %d): %g, not %g", kernel, i, j, got, sum);
    }
}

static void test_products(void) {
  test_multiply("multiply_half_float_nn", true, false, false, false);
  test_multiply("multiply_half_float_nt", true, false, false, true);
  test_multiply("multiply_half_float_tn", true, false, true, false);
  test_multiply("multiply_half_half_nn", true, true, false, false);
  test_multiply("multiply_float_float_tt", false, false, true, true);
}

/* half sums round at each product of matrices, float sums keep what half can't hold. */
static void test_rounding(void) {
  static uint16_t A[480], B[480], D[320];
  static float wide[160];
  uint16_t C[128] = {0};
  float zero[64] = {0};
  for (int i = 0; i < 240; i++) A[i] = half_of(2048), B[i] = half_of(i % 20 == 1 ? 1.0f : 0); /* B's first column is 1 */
  for (int c = 3; c < 11; c++) A[20 * 2 + c] = half_of(c == 3 ? 2048 : 1);                    /* A's first row: 2048, 1, 1, ... */
  call c = {.kernel = "multiply_half_half_nn", .buffers = {BIND(A), BIND(B), BIND(C), BIND(D)}, .threads = {32}};
  good(&c);
  CHECK(half_to_float(D[16 + 8]) == 2056, "the sum of 2048 and seven 1, rounded once to half: %g", half_to_float(D[16 + 8]));
  c.kernel = "multiply_half_float_nn", c.buffers[2] = (face_binding)BIND(zero), c.buffers[3] = (face_binding)BIND(wide);
  good(&c);
  CHECK(wide[16 + 8] == 2055, "in float: %g", wide[16 + 8]);
}

static void test_matrix_makers(void) {
  float y[256], seen[80];
  face_counters counters = good(&(call){.kernel = "matrix_makers", .buffers = {BIND(y)}, .threads = {32}});
  for (int i = 0; i < 64; i++)
    CHECK(y[i] == 3 && y[64 + i] == (i % 9 ? 0 : 2) && y[128 + i] == 6 && y[192 + i] == 6, "%d: %g %g %g %g", i, y[i], y[64 + i],
          y[128 + i], y[192 + i]);
  CHECK(counters.multiply_accumulates == 1, "%lu", (unsigned long)counters.multiply_accumulates);
  CHECK(error_has(dispatch(library, &(call){.kernel = "matrix_elements", .buffers = {BIND(y), BIND(seen)}, .threads = {40}}, NULL),
                  "in a simdgroup of 8 threads"),
        "a simdgroup that is not full");
}

/* Each element is in one lane; in Apple's map lane 5 holds row 2, columns 2 and 3 (MLX's kernels rely on it). */
static void test_matrix_elements(void) {
  float y[64], seen[64];
  int lanes[64] = {0};
  for (int i = 0; i < 64; i++) y[i] = i;
  good(&(call){.kernel = "matrix_elements", .buffers = {BIND(y), BIND(seen)}, .threads = {32}});
  for (int i = 0; i < 64; i++) {
    CHECK(y[i] == 2 * i, "%d: %g", i, y[i]);
    lanes[(int)seen[i]]++;
  }
  for (int i = 0; i < 64; i++) CHECK(lanes[i] == 1, "%d lanes hold element %d", lanes[i], i);
  bool apple = seen[10] == 18 && seen[11] == 19;
  CHECK(apple == !set_to("METALSIM_LANE_MAP", "permuted"), "lane 5 holds %g and %g", seen[10], seen[11]);
}

/* ---- numbers ---- */

static void test_halves(void) {
  bool flushed = set_to("METALSIM_SUBNORMAL", "none");
  uint16_t x[6] = {0x3c01, 0x3c00, 0x0001,
                   0x0400, 0x1400, 0x0c00}; /* 1 + ulp, 1; smallest subnormal, smallest normal; 2^-10, 2^-12 */
  uint16_t y[12];
  float f[3];
  good(&(call){.kernel = "halves", .buffers = {BIND(x), BIND(y), BIND(f)}, .threads = {3}});
  CHECK(y[0] == 0x4000 && y[1] == 0x3c01 && y[2] == 0x3557 && y[3] == 0x4000, "%x %x %x %x", y[0], y[1], y[2], y[3]);
  CHECK(y[4] == (flushed ? 0x400 : 0x401) && y[5] == 0 && y[6] == 0 && y[7] == 0x3c00, "%x %x %x %x", y[4], y[5], y[6], y[7]);
  CHECK(y[9] == (flushed ? 0 : 4), "2^-22: %x", y[9]);
  CHECK(f[1] == (flushed ? 0x1p-14f : 0x1p-14f + 0x1p-24f), "%a", f[1]);
}

static void test_floats(void) {
  float x[3] = {0x1p-126f, 0x1p-127f, 0x1p-125f};
  bool kept = set_to("METALSIM_SUBNORMAL", "all");
  good(&(call){.kernel = "floats", .buffers = {BIND(x)}, .threads = {3}});
  CHECK(x[0] == (kept ? 0x1p-127f : 0) && x[1] == (kept ? 0x1p-128f : 0) && x[2] == 0x1p-126f, "%a %a %a", x[0], x[1], x[2]);
}

static void test_functions(void) {
  uint32_t y[11] = {0};
  good(&(call){.kernel = "functions", .buffers = {BIND(y)}});
  for (int i = 0; i < 11; i++) CHECK(y[i] == 1, "line %d of 'functions'", i + 1);
}

static void test_atomics(void) {
  float f[1] = {1};
  uint32_t u[2] = {0}, y[128];
  good(&(call){.kernel = "atomics", .buffers = {BIND(f), BIND(u), BIND(y)}, .groups = {2}, .threads = {64}});
  CHECK(f[0] == 65 && u[0] == 127 && u[1] == 0xffffffff, "%g %u %x", f[0], u[0], u[1]);
  for (int i = 0; i < 128; i++) CHECK(y[i] == 64, "%d: %u", i, y[i]);
}

int main(void) {
  library = compile_file("features.metal");
  test_reflection();
  test_scale();
  test_threads();
  test_positions();
  test_constants();
  test_constants_of_kernels();
  test_reverse();
  test_simdgroup_steps();
  test_unwritten_threadgroup_memory();
  test_simd_functions();
  test_products();
  test_rounding();
  test_matrix_makers();
  test_matrix_elements();
  test_halves();
  test_floats();
  test_functions();
  test_atomics();
  face_library_free(library);
  printf("%d failures\n", failures);
  return failures != 0;
}
