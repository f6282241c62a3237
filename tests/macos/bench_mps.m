/* SPDX-License-Identifier: MIT
 *
 * tc_gemm beside Apple's MPSMatrixMultiplication, both in fp16: for each problem one line of JSON with the milliseconds of one call,
 * by itself (with waiting for it) and as one of many in a batch, and the largest difference of the results. The two take turns;
 * figures are the best of the rounds. */
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tc/tc.h"

enum { ROUNDS = 9, BATCH = 20 };

/* macOS ends a command buffer that takes seconds, so batches of large problems have fewer calls. */
static const int64_t batch_terms = INT64_C(20) << 30;

typedef struct problem {
  int64_t M, N, K;
  int transpose_b;
} problem;

static const problem problems[] = {
    {256, 256, 256, 0},    {512, 512, 512, 0},    {1024, 1024, 1024, 0}, {1024, 1024, 1024, 1}, {2048, 2048, 2048, 0},
    {4096, 4096, 4096, 0}, {4096, 4096, 4096, 1}, {64, 12544, 576, 0},   {512, 784, 4608, 0},   {1, 4096, 4096, 1},
};

/* One problem, ready for both. */
typedef struct contest {
  problem sizes;
  tc_context *ctx;
  tc_gemm_desc desc;
  tc_buffer *a, *b, *c;
  id<MTLCommandQueue> queue;
  MPSMatrixMultiplication *product;
  MPSMatrix *left, *right, *result;
} contest;

static void require(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "bench_mps: %s: %s\n", what, tc_last_error());
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- Preparing ---- */

static int64_t b_rows(const problem *p) { return p->transpose_b ? p->N : p->K; }
static int64_t b_columns(const problem *p) { return p->transpose_b ? p->K : p->N; }

/* The same values between -1 and 1 every time. */
static void fill(uint16_t *out, int64_t count) {
  uint32_t state = 1;
  for (int64_t i = 0; i < count; i++) {
    state = state * 1664525 + 1013904223;
    out[i] = tc_f32_to_f16((float)(state >> 8) / (1 << 23) - 1);
  }
}

/* The caller owns it. */
static MPSMatrix *matrix(id<MTLDevice> device, int64_t rows, int64_t columns) {
  const NSUInteger row_bytes = (NSUInteger)columns * sizeof(uint16_t);
  id<MTLBuffer> buffer = [device newBufferWithLength:(NSUInteger)rows * row_bytes options:MTLResourceStorageModeShared];
  require(buffer != nil, "a matrix has no memory");
  fill([buffer contents], rows * columns);
  MPSMatrixDescriptor *descriptor = [MPSMatrixDescriptor matrixDescriptorWithRows:(NSUInteger)rows
                                                                          columns:(NSUInteger)columns
                                                                         rowBytes:row_bytes
                                                                         dataType:MPSDataTypeFloat16];
  MPSMatrix *made = [[MPSMatrix alloc] initWithBuffer:buffer descriptor:descriptor];
  [buffer release];
  return made;
}

/* A buffer of ours. */
static tc_buffer *operand(tc_context *ctx, int64_t count) {
  tc_buffer *made;
  void *data;
  require(!tc_buffer_alloc(ctx, (size_t)count * sizeof(uint16_t), &made), "tc_buffer_alloc");
  require(!tc_buffer_map(made, &data), "tc_buffer_map");
  fill(data, count);
  return made;
}

static contest open_contest(tc_context *ctx, id<MTLDevice> device, const problem *p) {
  contest made = {.sizes = *p, .ctx = ctx, .desc = TC_GEMM_DESC_INIT, .queue = [device newCommandQueue]};
  made.desc.M = p->M;
  made.desc.N = p->N;
  made.desc.K = p->K;
  made.desc.transpose_b = p->transpose_b;
  made.a = operand(ctx, p->M * p->K);
  made.b = operand(ctx, p->K * p->N);
  made.c = operand(ctx, p->M * p->N);
  made.left = matrix(device, p->M, p->K);
  made.right = matrix(device, b_rows(p), b_columns(p));
  made.result = matrix(device, p->M, p->N);
  made.product = [[MPSMatrixMultiplication alloc] initWithDevice:device
                                                   transposeLeft:NO
                                                  transposeRight:p->transpose_b ? YES : NO
                                                      resultRows:(NSUInteger)p->M
                                                   resultColumns:(NSUInteger)p->N
                                                 interiorColumns:(NSUInteger)p->K
                                                           alpha:1
                                                            beta:0];
  return made;
}

static void close_contest(contest *c) {
  tc_buffer_free(c->ctx, c->a);
  tc_buffer_free(c->ctx, c->b);
  tc_buffer_free(c->ctx, c->c);
  [c->product release];
  [c->left release];
  [c->right release];
  [c->result release];
  [c->queue release];
}

/* ---- Running ---- */

/* Seconds of one call, of that many that are waited for together. */
typedef double entry(contest *c, int calls);

static double ours(contest *c, int calls) {
  const double start = now();
  require(!tc_batch_begin(c->ctx), "tc_batch_begin");
  for (int i = 0; i < calls; i++) require(!tc_gemm(c->ctx, &c->desc, c->a, c->b, c->c), "tc_gemm");
  require(!tc_batch_end(c->ctx), "tc_batch_end");
  return (now() - start) / calls;
}

static double apples(contest *c, int calls) {
  const double start = now();
  id<MTLCommandBuffer> buffer = [c->queue commandBuffer];
  for (int i = 0; i < calls; i++) {
    [c->product encodeToCommandBuffer:buffer leftMatrix:c->left rightMatrix:c->right resultMatrix:c->result];
  }
  [buffer commit];
  [buffer waitUntilCompleted];
  require([buffer status] == MTLCommandBufferStatusCompleted, "MPSMatrixMultiplication failed");
  return (now() - start) / calls;
}

static int calls_in_batch(const problem *p) {
  const int64_t calls = 1 + batch_terms / (p->M * p->N * p->K);
  return calls > BATCH ? BATCH : (int)calls;
}

static double difference(const contest *c) {
  void *data;
  double worst = 0;
  require(!tc_buffer_map(c->c, &data), "tc_buffer_map");
  const uint16_t *mine = data, *theirs = [[c->result data] contents];
  for (int64_t i = 0; i < c->sizes.M * c->sizes.N; i++) {
    const double apart = fabs((double)tc_f16_to_f32(mine[i]) - tc_f16_to_f32(theirs[i]));
    if (apart > worst || isnan(apart)) worst = apart;
  }
  return worst;
}

static void measure(contest *c) {
  entry *const entries[] = {ours, apples};
  const int calls[] = {1, calls_in_batch(&c->sizes)};
  double best[2][2] = {{INFINITY, INFINITY}, {INFINITY, INFINITY}};
  for (int round = -1; round < ROUNDS; round++) /* the first only warms up */
    for (int e = 0; e < 2; e++)
      for (int many = 0; many < 2; many++) {
        const double seconds = entries[e](c, calls[many]);
        if (round >= 0 && seconds < best[e][many]) best[e][many] = seconds;
      }
  printf("{\"M\": %lld, \"N\": %lld, \"K\": %lld, \"transpose_b\": %d, \"tc_ms\": %.4f, \"mps_ms\": %.4f, \"tc_batch_ms\": %.4f, "
         "\"mps_batch_ms\": %.4f, \"difference\": \"%.3g\"}\n",
         (long long)c->sizes.M, (long long)c->sizes.N, (long long)c->sizes.K, c->sizes.transpose_b, 1e3 * best[0][0],
         1e3 * best[1][0], 1e3 * best[0][1], 1e3 * best[1][1], difference(c));
  fflush(stdout);
}

int main(void) {
  tc_context *ctx;
  require(!tc_init_backend(TC_BACKEND_METAL, &ctx), "tc_init_backend");
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  require(device != nil, "MTLCreateSystemDefaultDevice gives none");
  for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    contest c = open_contest(ctx, device, &problems[i]);
    measure(&c);
    close_contest(&c);
    [pool drain];
  }
  [device release];
  return tc_shutdown(ctx);
}
