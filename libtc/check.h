/* SPDX-License-Identifier: MIT */
#ifndef TC_CHECK_H
#define TC_CHECK_H

#include <stdbool.h>

#include "context.h"

/* Arithmetic on counts >= 0 that sticks at TC_COUNT_HUGE instead of wrapping. A count of 0 stays exact: huge * 0 = 0. */
#define TC_COUNT_HUGE INT64_MAX

static inline int64_t tc_count_mul(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? TC_COUNT_HUGE : product;
}

static inline int64_t tc_count_add(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? TC_COUNT_HUGE : sum;
}

/* Copies a caller's struct into ours by the rules of struct_size (tc.h, Descriptors); size is the sizeof of ours. */
tc_status_t tc_struct_read(const char *name, const void *theirs, void *ours, size_t size);

/* Copies our struct into the caller's, as much as the caller's struct_size says, and zeros beyond ours. */
tc_status_t tc_struct_write(const char *name, const void *ours, size_t size, void *theirs);

/* Refuses a value that isn't one of the enumerators 0..last. */
tc_status_t tc_enum_check(const char *name, int value, int last);

/* A size that must be at least minimum. */
typedef struct tc_size_rule {
  const char *name;
  int64_t value, minimum;
} tc_size_rule;

tc_status_t tc_sizes_check(const tc_size_rule *rules, size_t n);

/* A tensor in a buffer: elements from offset on. */
typedef struct tc_operand {
  const char *name;
  const tc_buffer *buffer;
  const char *formula; /* of elements, for the sentence */
  int64_t elements;    /* from the first to the last one touched; TC_COUNT_HUGE if that overflows */
  const char *offset_name;
  int64_t offset;                  /* in elements */
  int64_t element_size, alignment; /* in bytes */
  bool written, optional;
} tc_operand;

/* Checks presence, context, offset, size, alignment of each operand, and that the written ones overlap nothing. */
tc_status_t tc_operands_check(const tc_context *ctx, const tc_operand *operands, size_t n);

/* A tensor with its elements' own alignment. */
tc_operand tc_tensor(const char *name, const tc_buffer *buffer, const char *formula, int64_t elements, const char *offset_name,
                     int64_t offset, tc_dtype_t dtype, bool written);

#endif
