/* SPDX-License-Identifier: MIT
 *
 * Operands of calls under test: memory flush against a PROT_NONE page, NaN wherever the call has no business, and data of a chosen
 * kind in the elements of the operand.
 */
#ifndef TC_TESTS_OPERAND_H
#define TC_TESTS_OPERAND_H

#include "half.h"
#include "rng.h"

#include <stddef.h>

/* A PROT_NONE page follows the last byte, or precedes the first one; or the memory is that of tc_buffer_alloc, without guards, but
 * of the operand's exact size where a backend wraps whole pages only. */
typedef enum placement { AT_END, AT_START, IN_LIBRARY } placement;
extern const char *const placement_names[];

typedef enum data_kind {
  DATA_NAN,      /* all NaN, as the gaps are */
  DATA_CONSTANT, /* parameter */
  DATA_NORMAL,   /* normal numbers times parameter */
  DATA_INTEGER,  /* integers within +-parameter */
  DATA_ODD,      /* odd integers, 257 to 2047, of both signs: no bf16 holds them */
  DATA_FINITE,   /* any finite fp16: all exponents, subnormals, zeros of both signs */
  DATA_SUBNORMAL,
  DATA_SPECIAL /* normal numbers, one of parameter elements is an infinity, a NaN, a zero of either sign or a subnormal */
} data_kind;

typedef struct contents {
  data_kind kind;
  double parameter;
} contents;

/* A memory block between PROT_NONE pages (or the library's own, which is never protected). The pages in between are whole ones of
 * Metal, too. */
typedef struct guarded {
  uint8_t *map, *pages, *data; /* pages: without the guards */
  size_t map_bytes, page_bytes, bytes;
} guarded;

guarded guarded_open(size_t bytes, placement place);
void guarded_protect(const guarded *g, bool writable);
void guarded_close(guarded *g);

/* count[0] matrices of count[1] rows and count[2] columns; strides and offset in elements. */
typedef struct operand {
  tc_dtype_t dtype;
  int64_t offset, count[3], stride[3];
  guarded memory;
  tc_buffer *buffer;
  uint8_t *begin, *end; /* what the buffer wraps: memory and, where a backend takes whole pages only, the rest of these */
  int64_t shift;        /* elements from begin to memory, to be added to the offset in a call */
} operand;

/* Fills in memory and all that follows it; the other fields are the caller's. Memory ends (or starts) with the operand's last (first) byte.
 * An operand of more than SPARSE_BYTES gets its elements only; its gaps stay untouched zero pages, so they take no memory. */
enum { SPARSE_BYTES = 1 << 28 };
void operand_open(operand *o, tc_context *ctx, placement place, contents fill, rng *r);
void operand_close(operand *o, tc_context *ctx);

int64_t operand_elements(const operand *o); /* count[0] * count[1] * count[2] */
size_t operand_bytes(const operand *o);     /* up to the last element, with the offset */
double operand_get(const operand *o, int64_t element);
void operand_set(const operand *o, int64_t element, double value);

/* Where the nth element of the operand stands in the buffer (in elements). */
int64_t operand_place(const operand *o, int64_t n);

/* All elements, dense. The caller frees. */
double *operand_values(const operand *o);

/* A copy of the bytes, which the caller frees, and the way back. Of a sparse operand: NULL, and nothing. */
uint8_t *operand_snapshot(const operand *o);
void operand_restore(const operand *o, const uint8_t *snapshot);

/* memory for count things, or the program ends */
void *allocate(int64_t count, size_t size);

typedef enum accuracy {
  RULE_BOUND,  /* every element within its bound */
  RULE_RANDOM, /* also: the statistics of random data */
  RULE_EXACT   /* every element is the exact result, rounded once */
} accuracy;

/* Compares an output with what it should be, and everything outside of its elements with the bytes before the call.
 * before may be NULL if the operand is sparse; stats may be NULL. */
bool check_output(const operand *o, const expected *want, const uint8_t *before, accuracy how, error_statistics *stats);

#endif
