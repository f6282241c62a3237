/* SPDX-License-Identifier: MIT
 * The Metal backend's table: contexts, buffers, and ops, each of which is a plan that run.m encodes. */
#import "metal/metal.h"

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Entries ---- */

/* What a slot needs around Metal's calls: an autorelease pool, and the default floating-point environment. */
typedef struct entry {
  NSAutoreleasePool *pool;
  fenv_t callers;
} entry;

static entry enter(void) {
  entry e;
  fegetenv(&e.callers);
  fesetenv(FE_DFL_ENV);
  e.pool = [[NSAutoreleasePool alloc] init];
  return e;
}

static void leave(const entry *e) {
  [e->pool drain];
  fesetenv(&e->callers);
}

/* ---- Life ---- */

/* A child of a process that used Metal has the device, but can't use it: open says so. */
static bool metal_available(void) {
  if (tc_metal_forked()) return true;
  const entry e = enter();
  const bool exists = tc_gpu_exists();
  leave(&e);
  return exists;
}

static void release_all(tc_metal *m) {
  [m->workspace release];
  [m->event release];
  [m->queue release];
  if (m->gpu) tc_gpu_give(m->gpu);
  pthread_mutex_destroy(&m->encoding);
  pthread_mutex_destroy(&m->flying);
  free(m);
}

/* The kernel of large products stands for all. */
static tc_status_t name_kernel(tc_metal *m) {
  tc_gemm_batched_desc d = TC_GEMM_BATCHED_DESC_INIT;
  d.M = d.N = d.K = d.lda = d.ldb = d.ldc = 1024;
  tc_plan plan = {0};
  TC_TRY(tc_plan_gemm(&m->gpu->plan, &d, &plan));
  snprintf(m->info.kernel, sizeof m->info.kernel, "%s", plan.steps[0].kernel.name);
  tc_plan_free(&plan);
  return TC_OK;
}

static tc_status_t set_up(tc_metal *m) {
  TC_TRY(tc_gpu_take(&m->gpu));
  m->queue = [m->gpu->device newCommandQueue];
  m->event = [m->gpu->device newSharedEvent];
  TC_REQUIRE(m->queue && m->event, TC_ERROR_DEVICE, "the GPU gives no command queue or no shared event");
  TC_TRY(tc_metal_probe(m));
  TC_TRY(name_kernel(m));
  m->info.backend = TC_BACKEND_METAL;
  snprintf(m->info.device, sizeof m->info.device, "%s", [[m->gpu->device name] UTF8String]);
  snprintf(m->info.isa_reason, sizeof m->info.isa_reason, "%s; probe: %s", m->gpu->library_origin, m->gpu->findings);
  return TC_OK;
}

static tc_status_t metal_open(const tc_environment *environment, void **state) {
  TC_TRY(tc_metal_fork_check());
  tc_metal *m = calloc(1, sizeof *m);
  TC_REQUIRE(m, TC_ERROR_MEMORY, "no memory for a Metal context");
  pthread_mutex_init(&m->encoding, NULL);
  pthread_mutex_init(&m->flying, NULL);
  m->conv_path = environment->conv_path;
  m->threads = environment->threads ? environment->threads : 1;
  const entry e = enter();
  const tc_status_t status = set_up(m);
  if (status != TC_OK) release_all(m);
  leave(&e);
  if (status == TC_OK) *state = m;
  return status;
}

/* In a forked child nothing of Metal's is released. */
static void metal_close(void *state) {
  if (tc_metal_forked()) return;
  const entry e = enter();
  tc_metal_finish(state);
  release_all(state);
  leave(&e);
}

/* ---- Properties ---- */

/* The GPU does the work; the number of threads is only kept. */
static void metal_set_threads(void *state, int64_t n) { __atomic_store_n(&((tc_metal *)state)->threads, n, __ATOMIC_SEQ_CST); }

static void metal_device_info(void *state, tc_device_info *out) {
  const tc_metal *m = state;
  *out = m->info;
  out->threads = __atomic_load_n(&m->threads, __ATOMIC_SEQ_CST);
}

static void metal_trim(void *state) {
  tc_metal *m = state;
  if (tc_metal_forked()) return;
  const entry e = enter();
  pthread_mutex_lock(&m->encoding);
  [m->workspace release];
  m->workspace = nil;
  pthread_mutex_unlock(&m->encoding);
  leave(&e);
}

/* ---- Memory of buffers, shared with the GPU ---- */

static tc_status_t alloc_memory(const tc_gpu *gpu, size_t bytes, tc_memory *out) {
  id<MTLBuffer> buffer = tc_metal_new_buffer(gpu, bytes);
  TC_REQUIRE(buffer, TC_ERROR_MEMORY, "no memory for bytes = %zu on the GPU, where a buffer has at most %zu", bytes,
             gpu->buffer_limit);
  *out = (tc_memory){[buffer contents], buffer};
  return TC_OK;
}

static tc_status_t metal_memory_alloc(void *state, size_t bytes, tc_memory *out) {
  const tc_metal *m = state;
  TC_TRY(tc_metal_check(state));
  const entry e = enter();
  const tc_status_t status = alloc_memory(m->gpu, bytes, out);
  leave(&e);
  return status;
}

/* Metal has no empty buffers: ours has a page that nobody uses, and the caller's pointer. */
static tc_status_t wrap_memory(const tc_gpu *gpu, void *ptr, size_t bytes, tc_memory *out) {
  TC_REQUIRE(bytes == 0 || ((uintptr_t)ptr % TC_METAL_PAGE == 0 && bytes % TC_METAL_PAGE == 0), TC_ERROR_ALIGNMENT,
             "ptr = %p and bytes = %zu must be multiples of the GPU's page, which is %d", ptr, bytes, TC_METAL_PAGE);
  TC_REQUIRE(bytes <= gpu->buffer_limit, TC_ERROR_MEMORY, "bytes = %zu is too much for the GPU, where a buffer has at most %zu",
             bytes, gpu->buffer_limit);
  id<MTLBuffer> buffer = bytes == 0 ? tc_metal_new_buffer(gpu, 0)
                                    : [gpu->device newBufferWithBytesNoCopy:ptr
                                                                     length:bytes
                                                                    options:MTLResourceStorageModeShared
                                                                deallocator:nil];
  TC_REQUIRE(buffer, TC_ERROR_MEMORY, "the GPU can't take in the memory at ptr = %p with bytes = %zu", ptr, bytes);
  *out = (tc_memory){ptr, buffer};
  return TC_OK;
}

static tc_status_t metal_memory_wrap(void *state, void *ptr, size_t bytes, tc_memory *out) {
  const tc_metal *m = state;
  TC_TRY(tc_metal_check(state));
  const entry e = enter();
  const tc_status_t status = wrap_memory(m->gpu, ptr, bytes, out);
  leave(&e);
  return status;
}

/* A command buffer that still uses the memory keeps it. */
static void metal_memory_free(tc_memory *memory) {
  if (tc_metal_forked()) return;
  const entry e = enter();
  [(id<MTLBuffer>)memory->owned release];
  leave(&e);
}

/* ---- Ops ---- */

typedef struct call {
  tc_metal *m;
  entry entry;
  tc_plan plan;
  tc_plan_request request; /* of a convolution */
} call;

static tc_status_t call_begin(void *state, call *c) {
  TC_TRY(tc_metal_check(state));
  *c = (call){.m = state, .entry = enter()};
  return TC_OK;
}

/* Runs the plan, if planning went well. */
static tc_status_t call_end(call *c, tc_status_t status, const tc_buffer *const operands[TC_ROLES]) {
  const tc_plan_step *longest = c->plan.steps;
  for (size_t i = 1; i < c->plan.count; i++) {
    if (c->plan.steps[i].seconds > longest->seconds) longest = &c->plan.steps[i];
  }
  if (c->plan.count) tc_kernel_use(longest->kernel.name);
  if (status == TC_OK) status = tc_metal_run(c->m, &c->plan, operands);
  tc_plan_free(&c->plan);
  leave(&c->entry);
  return status;
}

static tc_status_t metal_gemm(void *state, const tc_gemm_batched_desc *desc, const tc_buffer *A, const tc_buffer *B, tc_buffer *C) {
  call c;
  TC_TRY(call_begin(state, &c));
  const tc_buffer *const operands[TC_ROLES] = {[TC_ROLE_A] = A, [TC_ROLE_B] = B, [TC_ROLE_C] = C};
  return call_end(&c, tc_plan_gemm(&c.m->gpu->plan, desc, &c.plan), operands);
}

static tc_status_t metal_conv2d_forward(void *state, const tc_conv2d_desc *desc, const tc_buffer *X, const tc_buffer *weight,
                                        const tc_buffer *bias, tc_buffer *Y, tc_buffer *scratch_col) {
  call c;
  TC_TRY(call_begin(state, &c));
  const tc_plan_request request = {.path = c.m->conv_path, .bias = bias != NULL, .scratch_col = scratch_col != NULL};
  const tc_buffer *const operands[TC_ROLES] = {
      [TC_ROLE_X] = X, [TC_ROLE_WEIGHT] = weight, [TC_ROLE_BIAS] = bias, [TC_ROLE_Y] = Y, [TC_ROLE_SCRATCH_COL] = scratch_col};
  return call_end(&c, tc_plan_conv2d_forward(&c.m->gpu->plan, desc, &request, &c.plan), operands);
}

static tc_status_t metal_conv2d_backward_input(void *state, const tc_conv2d_desc *desc, const tc_buffer *dY,
                                               const tc_buffer *weight, tc_buffer *dX, tc_buffer *scratch_col,
                                               tc_buffer *scratch_dX_f32) {
  call c;
  TC_TRY(call_begin(state, &c));
  const tc_plan_request request = {
      .path = c.m->conv_path, .scratch_col = scratch_col != NULL, .scratch_dx = scratch_dX_f32 != NULL};
  const tc_buffer *const operands[TC_ROLES] = {[TC_ROLE_X] = dX,
                                               [TC_ROLE_WEIGHT] = weight,
                                               [TC_ROLE_Y] = dY,
                                               [TC_ROLE_SCRATCH_COL] = scratch_col,
                                               [TC_ROLE_SCRATCH_DX] = scratch_dX_f32};
  return call_end(&c, tc_plan_conv2d_backward_input(&c.m->gpu->plan, desc, &request, &c.plan), operands);
}

static tc_status_t metal_conv2d_backward_weight(void *state, const tc_conv2d_desc *desc, const tc_buffer *X, const tc_buffer *dY,
                                                tc_buffer *dW, tc_buffer *scratch_col) {
  call c;
  TC_TRY(call_begin(state, &c));
  const tc_plan_request request = {.path = c.m->conv_path, .scratch_col = scratch_col != NULL};
  const tc_buffer *const operands[TC_ROLES] = {
      [TC_ROLE_X] = X, [TC_ROLE_WEIGHT] = dW, [TC_ROLE_Y] = dY, [TC_ROLE_SCRATCH_COL] = scratch_col};
  return call_end(&c, tc_plan_conv2d_backward_weight(&c.m->gpu->plan, desc, &request, &c.plan), operands);
}

/* ---- Batches ---- */

static tc_status_t metal_batch_begin(void *state) {
  tc_metal *m = state;
  TC_TRY(tc_metal_check(m));
  pthread_mutex_lock(&m->encoding);
  m->in_batch = true;
  pthread_mutex_unlock(&m->encoding);
  return TC_OK;
}

static tc_status_t metal_batch_end(void *state) {
  TC_TRY(tc_metal_fork_check());
  const entry e = enter();
  const tc_status_t status = tc_metal_finish(state);
  leave(&e);
  return status;
}

const tc_backend tc_backend_metal = {
    .id = TC_BACKEND_METAL,
    .name = "metal",
    .available = metal_available,
    .open = metal_open,
    .close = metal_close,
    .device_info = metal_device_info,
    .set_threads = metal_set_threads,
    .trim = metal_trim,
    .memory_alloc = metal_memory_alloc,
    .memory_wrap = metal_memory_wrap,
    .memory_free = metal_memory_free,
    .gemm = metal_gemm,
    .conv2d_forward = metal_conv2d_forward,
    .conv2d_backward_input = metal_conv2d_backward_input,
    .conv2d_backward_weight = metal_conv2d_backward_weight,
    .batch_begin = metal_batch_begin,
    .batch_end = metal_batch_end,
};
