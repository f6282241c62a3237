/* SPDX-License-Identifier: MIT
 *
 * A libFuzzer target. Bytes make a descriptor and choose buffers; the call may succeed or fail, but it must not crash, must say why
 * it fails, and must then leave the memory alone. Each buffer is a page between PROT_NONE pages.
 */
#include "common/context.h"
#include "common/operand.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BUFFERS = 5, PAGE = 16384, SLOT = 4 };

typedef struct memory {
  tc_context *ctx;
  guarded pages[BUFFERS], desc;
  tc_buffer *buffers[BUFFERS];
} memory;

static memory the_memory;

/* A backend may count what is alive at the end. */
static void close_memory(void) {
  for (int i = 0; i < BUFFERS; i++) tc_buffer_free(the_memory.ctx, the_memory.buffers[i]);
  tc_shutdown(the_memory.ctx);
}

static memory *open_memory(void) {
  memory *m = &the_memory;
  if (m->ctx) return m;
  m->ctx = open_context();
  atexit(close_memory);
  m->desc = guarded_open(PAGE, AT_END);
  for (int i = 0; i < BUFFERS; i++) {
    m->pages[i] = guarded_open(PAGE, i % 2 ? AT_START : AT_END);
    if (tc_buffer_wrap(m->ctx, m->pages[i].data, PAGE, &m->buffers[i]) != TC_OK) abort();
  }
  return m;
}

/* ---- Reading the input ---- */

typedef struct reader {
  const uint8_t *data;
  size_t size;
} reader;

static uint8_t next_byte(reader *in) {
  if (in->size == 0) return 0;
  in->size--;
  return *in->data++;
}

static int64_t next_value(reader *in) {
  static const int64_t edges[] = {INT64_MAX,
                                  INT64_MIN,
                                  INT32_MAX,
                                  INT32_MIN,
                                  (int64_t)1 << 32,
                                  (int64_t)1 << 31,
                                  -1,
                                  (int64_t)1 << 62,
                                  (int64_t)1 << 61,
                                  INT64_MAX - 1,
                                  PAGE / 2,
                                  PAGE,
                                  PAGE / 2 - 1,
                                  INT64_MAX / 2,
                                  ((int64_t)1 << 33),
                                  0x3f800000,
                                  /* 1.0f */ 0x7fc00000 /* NaN */};
  uint8_t kind = next_byte(in);
  if (kind < 64) return kind % 9;
  if (kind < 128) return next_byte(in);
  if (kind < 224) return edges[kind % (sizeof(edges) / sizeof(*edges))];
  uint64_t value = 0;
  for (int i = 0; i < 8; i++) value = value << 8 | next_byte(in);
  return (int64_t)value;
}

/* Sets fields of a valid descriptor: 4 or 8 bytes at any multiple of 4. */
static void edit(reader *in, uint8_t *desc, size_t size) {
  for (int edits = next_byte(in) % 8; edits > 0; edits--) {
    uint8_t where = next_byte(in);
    int64_t value = next_value(in);
    size_t slot = where % (size / SLOT) * SLOT;
    size_t bytes = where & 0x80 || slot + sizeof(value) > size ? SLOT : sizeof(value);
    memcpy(desc + slot, &value, bytes);
  }
}

/* ---- The calls ---- */

static tc_status_t call_gemm(memory *m, tc_buffer **b) { return tc_gemm(m->ctx, (void *)m->desc.data, b[0], b[1], b[2]); }
static tc_status_t call_batched(memory *m, tc_buffer **b) {
  return tc_gemm_batched(m->ctx, (void *)m->desc.data, b[0], b[1], b[2]);
}
static tc_status_t call_forward(memory *m, tc_buffer **b) {
  return tc_conv2d_forward_desc(m->ctx, (void *)m->desc.data, b[0], b[1], b[3], b[2], b[4]);
}
static tc_status_t call_backward_input(memory *m, tc_buffer **b) {
  return tc_conv2d_backward_input_desc(m->ctx, (void *)m->desc.data, b[0], b[1], b[2], b[3], b[4]);
}
static tc_status_t call_backward_weight(memory *m, tc_buffer **b) {
  return tc_conv2d_backward_weight_desc(m->ctx, (void *)m->desc.data, b[0], b[1], b[2], b[3]);
}

static const tc_gemm_desc gemm = {.struct_size = sizeof(gemm), .M = 3, .N = 4, .K = 5, .alpha = 1};
static const tc_gemm_batched_desc batched = {
    .struct_size = sizeof(batched), .M = 3, .N = 4, .K = 5, .alpha = 1, .batch = 2, .stride_a = 15, .stride_b = 20, .stride_c = 12};
static const tc_conv2d_desc conv = {.struct_size = sizeof(conv),
                                    .batch = 2,
                                    .in_channels = 4,
                                    .out_channels = 6,
                                    .H = 5,
                                    .W = 6,
                                    .kH = 3,
                                    .kW = 2,
                                    .out_H = 3,
                                    .out_W = 7,
                                    .pad_top = 1,
                                    .pad_bottom = 1,
                                    .pad_left = 1,
                                    .pad_right = 1,
                                    .stride_h = 2,
                                    .stride_w = 1,
                                    .dilation_h = 1,
                                    .dilation_w = 1,
                                    .groups = 2,
                                    .alpha = 1};

static const struct {
  tc_status_t (*call)(memory *, tc_buffer **);
  const void *valid;
  size_t size;
} ops[] = {{call_gemm, &gemm, sizeof(gemm)},
           {call_batched, &batched, sizeof(batched)},
           {call_forward, &conv, sizeof(conv)},
           {call_backward_input, &conv, sizeof(conv)},
           {call_backward_weight, &conv, sizeof(conv)}};

static uint64_t checksum(const memory *m) {
  uint64_t sum = 0, word;
  for (int i = 0; i < BUFFERS; i++) {
    for (size_t b = 0; b < PAGE; b += sizeof(word)) {
      memcpy(&word, m->pages[i].data + b, sizeof(word));
      sum = (sum ^ word) * 0x100000001b3u;
    }
  }
  return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  memory *m = open_memory();
  reader in = {data, size};
  const uint8_t op = next_byte(&in) % (sizeof(ops) / sizeof(*ops)), choices = next_byte(&in);
  memset(m->desc.data, 0, PAGE);
  memcpy(m->desc.data, ops[op].valid, ops[op].size);
  edit(&in, m->desc.data, ops[op].size);
  tc_buffer *buffers[BUFFERS];
  for (int i = 0; i < BUFFERS; i++) buffers[i] = i >= 3 && choices & 1 << i ? NULL : m->buffers[i];
  if (choices & 1) buffers[next_byte(&in) % BUFFERS] = m->buffers[next_byte(&in) % BUFFERS];
  uint64_t before = checksum(m);
  tc_status_t status = ops[op].call(m, buffers);
  if (status != TC_OK && (checksum(m) != before || tc_last_error()[0] == 0 || status < TC_ERROR_STATE || status > 0)) abort();
  return 0;
}
