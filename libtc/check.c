/* SPDX-License-Identifier: MIT */
#include "check.h"

#include <string.h>

_Static_assert(sizeof(void *) == 8, "libtc is for 64-bit machines: sizes of memory are held in int64_t");

enum { STRUCT_SIZE_MIN = sizeof(size_t), STRUCT_SIZE_MAX = 4096 };

static tc_status_t struct_size(const char *name, const void *theirs, size_t *out) {
  TC_REQUIRE(theirs, TC_ERROR_ARGUMENT, "%s is NULL", name);
  memcpy(out, theirs, sizeof *out);
  TC_REQUIRE(*out >= STRUCT_SIZE_MIN && *out <= STRUCT_SIZE_MAX, TC_ERROR_ARGUMENT,
             "%s->struct_size = %zu is out of range, %d to %d is allowed; start from the INIT macro", name, *out,
             (int)STRUCT_SIZE_MIN, (int)STRUCT_SIZE_MAX);
  return TC_OK;
}

tc_status_t tc_struct_read(const char *name, const void *theirs, void *ours, size_t size) {
  size_t given;
  TC_TRY(struct_size(name, theirs, &given));
  for (size_t i = size; i < given; i++) {
    TC_REQUIRE(((const unsigned char *)theirs)[i] == 0, TC_ERROR_UNSUPPORTED,
               "%s->struct_size = %zu, and byte %zu is set, but this library knows only the first %zu bytes", name, given, i, size);
  }
  memset(ours, 0, size);
  memcpy(ours, theirs, given < size ? given : size);
  return TC_OK;
}

tc_status_t tc_struct_write(const char *name, const void *ours, size_t size, void *theirs) {
  size_t given;
  TC_TRY(struct_size(name, theirs, &given));
  const size_t known = given < size ? given : size;
  memcpy(theirs, ours, known);
  memset((char *)theirs + known, 0, given - known);
  memcpy(theirs, &given, sizeof given);
  return TC_OK;
}

tc_status_t tc_enum_check(const char *name, int value, int last) {
  TC_REQUIRE(value >= 0 && value <= last, TC_ERROR_ARGUMENT, "%s = %d is not known, 0 to %d are", name, value, last);
  return TC_OK;
}

tc_status_t tc_sizes_check(const tc_size_rule *rules, size_t n) {
  for (const tc_size_rule *rule = rules; rule < rules + n; rule++) {
    TC_REQUIRE(rule->value >= rule->minimum, TC_ERROR_SHAPE, "%s = %lld is too small, %lld is the least", rule->name,
               (long long)rule->value, (long long)rule->minimum);
  }
  return TC_OK;
}

tc_operand tc_tensor(const char *name, const tc_buffer *buffer, const char *formula, int64_t elements, const char *offset_name,
                     int64_t offset, tc_dtype_t dtype, bool written) {
  const int64_t size = tc_dtype_size(dtype);
  return (tc_operand){name, buffer, formula, elements, offset_name, offset, size, size, written, false};
}

static tc_status_t operand_check(const tc_context *ctx, const tc_operand *o) {
  TC_REQUIRE(o->buffer, TC_ERROR_ARGUMENT, "%s is NULL", o->name);
  TC_REQUIRE(o->buffer->ctx == ctx, TC_ERROR_ARGUMENT, "%s belongs to another context than ctx", o->name);
  TC_REQUIRE(o->offset >= 0, TC_ERROR_SHAPE, "%s = %lld is negative", o->offset_name, (long long)o->offset);
  if (o->elements == 0) return TC_OK;
  const int64_t bytes = tc_count_mul(tc_count_add(o->elements, o->offset), o->element_size);
  TC_REQUIRE(bytes != TC_COUNT_HUGE, TC_ERROR_SHAPE, "%s holds %zu bytes, %s*%lld are needed, which is 2^63 or more", o->name,
             o->buffer->bytes, o->formula, (long long)o->element_size);
  if (o->offset == 0) {
    TC_REQUIRE((uint64_t)bytes <= o->buffer->bytes, TC_ERROR_BUFFER, "%s holds %zu bytes, %s*%lld = %lld are needed", o->name,
               o->buffer->bytes, o->formula, (long long)o->element_size, (long long)bytes);
  } else {
    TC_REQUIRE((uint64_t)bytes <= o->buffer->bytes, TC_ERROR_BUFFER, "%s holds %zu bytes, (%s + %s)*%lld = %lld are needed",
               o->name, o->buffer->bytes, o->offset_name, o->formula, (long long)o->element_size, (long long)bytes);
  }
  const uintptr_t address = (uintptr_t)o->buffer->memory.data;
  TC_REQUIRE(address % (uintptr_t)o->alignment == 0, TC_ERROR_ALIGNMENT, "%s starts at address %#llx, a multiple of %lld is needed",
             o->name, (unsigned long long)address, (long long)o->alignment);
  return TC_OK;
}

static uintptr_t operand_begin(const tc_operand *o) { return (uintptr_t)tc_at(o->buffer, o->offset, o->element_size); }

static bool overlap(const tc_operand *a, const tc_operand *b) {
  if (a->elements == 0 || b->elements == 0) return false;
  const uintptr_t a_begin = operand_begin(a), b_begin = operand_begin(b);
  return a_begin < b_begin + (uintptr_t)(b->elements * b->element_size) &&
         b_begin < a_begin + (uintptr_t)(a->elements * a->element_size);
}

tc_status_t tc_operands_check(const tc_context *ctx, const tc_operand *operands, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (operands[i].optional && !operands[i].buffer) continue;
    TC_TRY(operand_check(ctx, &operands[i]));
    for (size_t j = 0; j < i; j++) {
      if (!operands[j].buffer || !(operands[i].written || operands[j].written)) continue;
      TC_REQUIRE(!overlap(&operands[i], &operands[j]), TC_ERROR_OVERLAP, "%s overlaps %s, at addresses %#llx and %#llx",
                 operands[i].name, operands[j].name, (unsigned long long)operand_begin(&operands[i]),
                 (unsigned long long)operand_begin(&operands[j]));
    }
  }
  return TC_OK;
}
