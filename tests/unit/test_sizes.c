/* SPDX-License-Identifier: MIT
 *
 * tc_conv2d_out_dim and the scratch helpers, with wrong sizes and overflow.
 */
#include "common/check.h"

typedef struct out_dim_row {
  int64_t size, kernel, pad, stride, want;
  const char *word; /* of the sentence, for an error */
} out_dim_row;

static void out_dim(void) {
  static const out_dim_row rows[] = {
      {224, 7, 3, 2, 112, NULL},
      {1, 1, 0, 1, 1, NULL},
      {5, 3, 1, 1, 5, NULL},
      {5, 3, 0, 2, 2, NULL},
      {6, 3, 0, 2, 2, NULL},
      {7, 1, 0, 100, 1, NULL},
      {1, 1, 63, 1, 127, NULL},
      {181, 182, 1, 1, 2, NULL},
      /* no output: a true floor */
      {4, 6, 0, 3, 0, NULL},
      {4, 7, 0, 3, 0, NULL},
      {4, 8, 0, 3, -1, NULL},
      {1, 3, 0, 1, -1, NULL},
      {1, 3, 0, 2, 0, NULL},
      {1, 4, 0, 2, -1, NULL},
      {1, INT64_MAX, 0, 1, 2 - INT64_MAX, NULL},
      /* large, but no overflow */
      {(int64_t)1 << 62, 1, 0, 1, (int64_t)1 << 62, NULL},
      {(int64_t)1 << 40, 1, (int64_t)1 << 40, 1, (int64_t)3 << 40, NULL},
      {INT64_MAX / 2, INT64_MAX / 2, 0, INT64_MAX, 1, NULL},
      {INT64_MAX, 1, 0, 1, INT64_MAX, NULL},
      /* errors */
      {0, 1, 0, 1, INT64_MIN, "size"},
      {-5, 1, 0, 1, INT64_MIN, "-5"},
      {5, 0, 0, 1, INT64_MIN, "kernel"},
      {5, -3, 0, 1, INT64_MIN, "-3"},
      {5, 1, -1, 1, INT64_MIN, "pad"},
      {5, 1, 0, 0, INT64_MIN, "stride"},
      {5, 1, 0, -2, INT64_MIN, "-2"},
      {5, 1, INT64_MAX, 1, INT64_MIN, "pad"},
      {5, 1, INT64_MAX / 2, 1, INT64_MIN, "pad"},
      {INT64_MAX, 1, 1, 1, INT64_MIN, "size"},
  };
  for (size_t i = 0; i < COUNT(rows); i++) {
    const out_dim_row *row = &rows[i];
    note("out_dim(%lld, %lld, %lld, %lld)", (long long)row->size, (long long)row->kernel, (long long)row->pad,
         (long long)row->stride);
    CHECK_INT(tc_conv2d_out_dim(row->size, row->kernel, row->pad, row->stride), row->want);
    if (!row->word) continue;
    CHECK_CONTAINS(tc_last_error(), "tc_conv2d_out_dim");
    CHECK_CONTAINS(tc_last_error(), row->word);
  }
}

static size_t col_bytes(const int64_t *s) { return tc_conv2d_scratch_col_bytes(s[0], s[1], s[2], s[3], s[4], s[5]); }

static size_t dx_bytes(const int64_t *s) { return tc_conv2d_scratch_dx_bytes(s[0], s[1], s[2], s[3]); }

static void scratch_bytes(void) {
  CHECK_INT((int64_t)tc_conv2d_scratch_col_bytes(8, 3, 7, 7, 112, 112), (int64_t)8 * 3 * 7 * 7 * 112 * 112 * 2);
  CHECK_INT((int64_t)tc_conv2d_scratch_dx_bytes(8, 3, 224, 224), (int64_t)8 * 3 * 224 * 224 * 4);
  CHECK_INT((int64_t)tc_conv2d_scratch_col_bytes(0, 3, 7, 7, 112, 112), 0);
  CHECK_INT((int64_t)tc_conv2d_scratch_dx_bytes(0, 3, 224, 224), 0);
  /* over 2^31 and 2^32: oneDNN#122 */
  CHECK_INT((int64_t)tc_conv2d_scratch_col_bytes(10, 32, 21, 11, 41, 980), (int64_t)10 * 32 * 21 * 11 * 41 * 980 * 2);
  CHECK_INT((int64_t)tc_conv2d_scratch_dx_bytes(46341, 1, 46341, 4), (int64_t)46341 * 46341 * 16);
  /* 2^63 still is a size_t, 2^64 isn't */
  CHECK(tc_conv2d_scratch_col_bytes((int64_t)1 << 61, 1, 1, 1, 1, 1) == (size_t)1 << 62);
  CHECK(tc_conv2d_scratch_col_bytes((int64_t)1 << 62, 1, 1, 1, 1, 1) == SIZE_MAX);
  CHECK(tc_conv2d_scratch_col_bytes((int64_t)1 << 62, 2, 1, 1, 1, 1) == SIZE_MAX);
}

/* Each size in turn is negative, then so large that the product can't be had; the others are 3, or 0: 0 times anything is 0. */
static void scratch_errors(void) {
  static const char *const names[] = {"batch", "in_channels", "kH", "kW", "out_H", "out_W"};
  static const char *const dx_names[] = {"batch", "in_channels", "H", "W"};
  for (size_t i = 0; i < COUNT(names); i++) {
    int64_t sizes[] = {3, 3, 3, 3, 3, 3};
    note("col, size %zu", i);
    sizes[i] = -7;
    CHECK(col_bytes(sizes) == SIZE_MAX);
    CHECK_CONTAINS(tc_last_error(), "tc_conv2d_scratch_col_bytes");
    CHECK_CONTAINS(tc_last_error(), names[i]);
    CHECK_CONTAINS(tc_last_error(), "-7");
    sizes[i] = INT64_MAX / 2;
    CHECK(col_bytes(sizes) == SIZE_MAX);
    sizes[(i + 1) % COUNT(sizes)] = 0;
    CHECK(col_bytes(sizes) == 0);
  }
  for (size_t i = 0; i < COUNT(dx_names); i++) {
    int64_t sizes[] = {3, 3, 3, 3};
    note("dx, size %zu", i);
    sizes[i] = INT64_MIN;
    CHECK(dx_bytes(sizes) == SIZE_MAX);
    CHECK_CONTAINS(tc_last_error(), "tc_conv2d_scratch_dx_bytes");
    CHECK_CONTAINS(tc_last_error(), dx_names[i]);
    CHECK_CONTAINS(tc_last_error(), "-9223372036854775808");
    sizes[i] = INT64_MAX;
    CHECK(dx_bytes(sizes) == SIZE_MAX);
    sizes[(i + 1) % COUNT(sizes)] = 0;
    CHECK(dx_bytes(sizes) == 0);
  }
}

int main(int argc, char **argv) {
  static const test tests[] = {{"out_dim", out_dim}, {"scratch_bytes", scratch_bytes}, {"scratch_errors", scratch_errors}};
  return run_tests("sizes", tests, COUNT(tests), argc, argv);
}
