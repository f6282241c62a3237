/* SPDX-License-Identifier: MIT
 *
 * The tiles of amxemu against cases worked out by hand from Intel's manual: sizes, what loads and stores touch, the order of sums,
 * rounding, and subnormal values.
 */
#include "common/check.h"
#include "common/operand.h"
#include "cpu/amxemu.h"

#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Configurations ---- */

typedef struct config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} config;

/* C is tile 0, A tile 1, B tile 2: M rows, N columns, K pairs. */
static config sizes(uint8_t M, uint8_t N, uint8_t K) {
  config c = {.palette = 1};
  c.rows[0] = M, c.row_bytes[0] = (uint16_t)(N * 4);
  c.rows[1] = M, c.row_bytes[1] = (uint16_t)(K * 4);
  c.rows[2] = K, c.row_bytes[2] = (uint16_t)(N * 4);
  return c;
}

/* Whether that much of a thing faults, in a child. */
static bool faults(const config *c, void (*run)(void)) {
  pid_t pid = fork();
  if (pid == 0) {
    signal(SIGILL, SIG_DFL);
    signal(SIGTRAP, SIG_DFL);
    close(2);
    tc_amxemu_config(c);
    if (run) run();
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void configurations(void) {
  config c = sizes(16, 16, 16);
  CHECK(!faults(&c, NULL));
  c = sizes(16, 16, 16), c.palette = 2;
  CHECK(faults(&c, NULL));
  c = sizes(16, 16, 16), c.start_row = 1;
  CHECK(faults(&c, NULL));
  c = sizes(16, 16, 16), c.reserved[13] = 1;
  CHECK(faults(&c, NULL));
  c = sizes(17, 16, 16);
  CHECK(faults(&c, NULL));
  c = sizes(16, 17, 16);
  CHECK(faults(&c, NULL));
  c = sizes(16, 16, 16), c.rows[3] = 1; /* and no bytes */
  CHECK(faults(&c, NULL));
  c = sizes(16, 16, 16), c.rows[8] = 1, c.row_bytes[8] = 4; /* there is no tile 8 */
  CHECK(faults(&c, NULL));
}

static void multiply(void) { tc_amxemu_product(0, 1, 2); }
static void multiply_alike(void) { tc_amxemu_product(0, 1, 1); }
static void use_released(void) {
  tc_amxemu_release();
  tc_amxemu_zero(0);
}
static void use_unconfigured(void) { tc_amxemu_zero(7); }

static void operands_that_fit(void) {
  config c = sizes(3, 4, 5);
  CHECK(!faults(&c, multiply));
  CHECK(faults(&c, multiply_alike));
  CHECK(faults(&c, use_released));
  CHECK(faults(&c, use_unconfigured));
  c = sizes(3, 4, 5), c.rows[1] = 4;
  CHECK(faults(&c, multiply));
  c = sizes(3, 4, 5), c.row_bytes[1] = 16;
  CHECK(faults(&c, multiply));
  c = sizes(3, 4, 5), c.row_bytes[2] = 20;
  CHECK(faults(&c, multiply));
}

/* ---- Memory ---- */

/* Exactly rows of that many bytes are read and written; the rest of a tile is zeros, which a product shows. */
static void loads_and_stores(void) {
  for (int64_t stride = 12; stride <= 100; stride += 44) {
    guarded from = guarded_open((size_t)(2 * stride + 12), AT_END), to = guarded_open((size_t)(2 * stride + 12), AT_END);
    const config c = sizes(3, 3, 16);
    for (size_t i = 0; i < from.bytes; i++) from.data[i] = (uint8_t)(i + 1);
    memset(to.data, 0xee, to.bytes);
    note("stride %lld", (long long)stride);
    tc_amxemu_config(&c);
    tc_amxemu_load(0, from.data, stride);
    tc_amxemu_store(0, to.data, stride);
    for (size_t i = 0; i < to.bytes; i++) CHECK_INT(to.data[i], i % (size_t)stride < 12 ? from.data[i] : 0xee);
    tc_amxemu_zero(0);
    tc_amxemu_store(0, to.data, stride);
    for (size_t i = 0; i < to.bytes; i++) CHECK_INT(to.data[i], i % (size_t)stride < 12 ? 0 : 0xee);
    tc_amxemu_release();
    guarded_close(&from);
    guarded_close(&to);
  }
}

/* A negative stride walks backwards. */
static void backwards(void) {
  const config c = sizes(2, 1, 1);
  const uint32_t from[2] = {1, 2};
  uint32_t to[2];
  tc_amxemu_config(&c);
  tc_amxemu_load(0, &from[1], -4);
  tc_amxemu_store(0, to, 4);
  CHECK_INT(to[0], 2);
  CHECK_INT(to[1], 1);
  tc_amxemu_release();
}

/* ---- TDPBF16PS ---- */

static uint16_t bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return (uint16_t)(bits >> 16);
}

/* c + the products of one row of terms and one column: pairs of them. */
static float dot(float c, const float *a, const float *b, uint8_t pairs) {
  uint16_t left[32], right[32];
  const config size = sizes(1, 1, pairs);
  for (int p = 0; p < 2 * pairs; p++) left[p] = bf16(a[p]), right[p] = bf16(b[p]);
  tc_amxemu_config(&size);
  tc_amxemu_load(0, &c, 4);
  tc_amxemu_load(1, left, 4 * pairs);
  tc_amxemu_load(2, right, 4); /* a row for each pair */
  multiply();
  tc_amxemu_store(0, &c, 4);
  tc_amxemu_release();
  return c;
}

#define DOT(c, pairs, ...) dot(c, (const float[][2 * (pairs)]){__VA_ARGS__}[0], (const float[][2 * (pairs)]){__VA_ARGS__}[1], pairs)

static void one_element(void) {
  CHECK(DOT(0, 1, {2, 3}, {5, 7}) == 31);
  CHECK(DOT(100, 2, {2, 3, -1, 4}, {5, 7, 1, 0.5f}) == 132);
  CHECK(DOT(1, 1, {INFINITY, 1}, {1, 1}) == INFINITY);
  CHECK(isnan(DOT(1, 1, {INFINITY, 0}, {0, 0})));
  CHECK(isnan(DOT(1, 1, {INFINITY, INFINITY}, {1, -1})));
}

/* Even and odd terms have sums of their own, which meet before C: 2^24 + 1 is lost in a sum, and kept beside it. */
static void order_of_sums(void) {
  CHECK(DOT(0, 2, {0x1p24f, 0, 1, 0}, {1, 1, 1, 1}) == 0x1p24f);     /* 1 meets 2^24 in the even sum: a tie, to even */
  CHECK(DOT(0, 2, {0x1p24f, 1, 0, 1}, {1, 1, 1, 1}) == 0x1p24f + 2); /* 1 + 1 in the odd one */
  CHECK(DOT(-0x1p24f, 1, {0x1p24f, 1}, {1, 1}) == 0);                /* 2^24 + 1 is rounded before C is added */
  CHECK(DOT(1, 2, {0x1p24f, 0, -0x1p24f, 0}, {1, 1, 1, 1}) == 1);    /* C comes last */
  CHECK(DOT(0x1p24f, 2, {1, 0, 1, 0}, {1, 1, 1, 1}) == 0x1p24f + 2); /* not term by term into C */
}

/* A product is not flushed before it is added: 2^-126 + 1.5 * 2^-127. */
static void fused(void) { CHECK(DOT(0, 2, {1, 0, 0x1p-100f, 0}, {0x1p-126f, 0, 0x1.8p-27f, 0}) == 0x1.cp-126f); }

static void ties_to_even(void) {
  CHECK(DOT(0x1p24f, 1, {1, 0}, {1, 0}) == 0x1p24f);
  CHECK(DOT(0x1p24f, 1, {3, 0}, {1, 0}) == 0x1p24f + 4);
  CHECK(DOT(0x1p24f + 2, 1, {1, 0}, {1, 0}) == 0x1p24f + 4);
}

/* Subnormal values are 0: of A or B, of C, of either sum, of the result; the smallest normal number is kept. */
static void subnormal(void) {
  CHECK(DOT(0, 1, {0x1p-127f, 0}, {0x1p100f, 0}) == 0);
  CHECK(DOT(0, 1, {0x1p100f, 0}, {0x1p-127f, 0}) == 0);
  CHECK(DOT(0, 1, {0x1p-126f, 0}, {1, 0}) == 0x1p-126f);
  CHECK(DOT(0x1p-127f, 1, {0, 0}, {0, 0}) == 0);
  CHECK(DOT(0, 1, {0x1p-100f, 0x1p-100f}, {0x1p-27f, 0x1p-27f}) == 0); /* 2^-127 each, though both make 2^-126 */
  CHECK(DOT(0x1p-126f, 1, {-0x1p-100f, 0}, {0x1.8p-27f, 0}) == 0x1p-126f);
  CHECK(DOT(0x1.8p-126f, 1, {-0x1p-100f, 0}, {0x1p-26f, 0}) == 0);
  CHECK(signbit(DOT(0, 1, {-0x1p-100f, 0}, {0x1p-100f, 0})) == 0); /* -0 + 0 */
}

/* Each element has its own row and column, and its own term of C. */
static void all_elements(void) {
  enum { M = 5, N = 7, K = 3 };
  uint16_t a[M][2 * K], b[K][N][2];
  float c[M][N];
  const config size = sizes(M, N, K);
  for (int i = 0; i < M; i++) {
    for (int p = 0; p < 2 * K; p++) a[i][p] = bf16((float)(i * 6 + p));
    for (int j = 0; j < N; j++) c[i][j] = (float)(1000 * i + j);
  }
  for (int p = 0; p < 2 * K; p++) {
    for (int j = 0; j < N; j++) b[p / 2][j][p % 2] = bf16((float)(j - p));
  }
  tc_amxemu_config(&size);
  tc_amxemu_load(0, c, sizeof(c[0]));
  tc_amxemu_load(1, a, sizeof(a[0]));
  tc_amxemu_load(2, b, sizeof(b[0]));
  multiply();
  tc_amxemu_store(0, c, sizeof(c[0]));
  tc_amxemu_release();
  for (int i = 0; i < M; i++) {
    for (int j = 0; j < N; j++) {
      int want = 1000 * i + j;
      for (int p = 0; p < 2 * K; p++) want += (i * 6 + p) * (j - p);
      note("element %d, %d", i, j);
      CHECK(c[i][j] == (float)want);
    }
  }
}

int main(int argc, char **argv) {
  static const test tests[] = {{"configurations", configurations},
                               {"operands_that_fit", operands_that_fit},
                               {"loads_and_stores", loads_and_stores},
                               {"backwards", backwards},
                               {"one_element", one_element},
                               {"order_of_sums", order_of_sums},
                               {"fused", fused},
                               {"ties_to_even", ties_to_even},
                               {"subnormal", subnormal},
                               {"all_elements", all_elements}};
  return run_tests("amxemu", tests, COUNT(tests), argc, argv);
}
