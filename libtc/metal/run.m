/* SPDX-License-Identifier: MIT
 * Encodes plans into command buffers. */
#import "metal/metal.h"

#include <stdlib.h>

id<MTLBuffer> tc_metal_new_buffer(const tc_gpu *gpu, uint64_t bytes) {
  if (bytes > gpu->buffer_limit) return nil;
  const uint64_t pages = bytes / TC_METAL_PAGE + (bytes % TC_METAL_PAGE != 0 || bytes == 0);
  if (pages * TC_METAL_PAGE > gpu->buffer_limit) return nil;
  return [gpu->device newBufferWithLength:pages * TC_METAL_PAGE options:MTLResourceStorageModeShared];
}

/* ---- Command buffers ---- */

static tc_status_t open_buffer(tc_metal *m) {
  if (m->encoder) return TC_OK;
  TC_TRY(tc_metal_make_room(m));
  m->buffer = [[m->queue commandBuffer] retain];
  m->encoder = [[m->buffer computeCommandEncoder] retain];
  if (m->encoder) return TC_OK;
  [m->buffer release];
  m->buffer = nil;
  return tc_metal_fail(m, "the GPU gives no command buffer");
}

static void commit(tc_metal *m) {
  if (!m->encoder) return;
  [m->encoder endEncoding];
  [m->encoder release];
  [m->buffer encodeSignalEvent:m->event value:++m->value];
  [m->buffer commit];
  tc_metal_take_off(m, (tc_metal_flight){m->buffer, m->value, m->seconds});
  m->encoder = nil;
  m->buffer = nil;
  m->seconds = 0;
}

/* ---- Steps ---- */

/* All that a plan needs, before any of it is encoded. */
typedef struct prepared {
  id<MTLComputePipelineState> *pipelines; /* of each step */
  id<MTLBuffer> buffers[TC_ROLES];
} prepared;

static void prepared_free(const tc_plan *plan, prepared *p) {
  for (size_t i = 0; p->pipelines && i < plan->count; i++) [p->pipelines[i] release];
  free(p->pipelines);
}

static tc_status_t take_pipelines(tc_metal *m, const tc_plan *plan, prepared *p) {
  p->pipelines = calloc(plan->count + 1, sizeof *p->pipelines);
  TC_REQUIRE(p->pipelines, TC_ERROR_MEMORY, "no memory for a plan of %zu steps", plan->count);
  for (size_t i = 0; i < plan->count; i++) {
    const tc_plan_step *step = &plan->steps[i];
    const uint64_t threads = (uint64_t)step->threads[0] * step->threads[1] * step->threads[2];
    char reason[256];
    p->pipelines[i] = tc_gpu_pipeline(m->gpu, &step->kernel, reason, sizeof reason);
    if (!p->pipelines[i]) return tc_metal_fail(m, reason);
    if ([p->pipelines[i] maxTotalThreadsPerThreadgroup] < threads)
      return tc_metal_fail(m, "the GPU runs too few threads in a threadgroup");
  }
  return TC_OK;
}

/* The steps of one call after the other use the same workspace: the GPU runs them in order. */
static tc_status_t take_workspace(tc_metal *m, uint64_t bytes) {
  tc_workspace_count(bytes);
  if (bytes <= [m->workspace length]) return TC_OK;
  [m->workspace release];
  m->workspace = tc_metal_new_buffer(m->gpu, bytes);
  TC_REQUIRE(m->workspace, TC_ERROR_MEMORY, "no memory for a workspace of %llu bytes on the GPU", (unsigned long long)bytes);
  return TC_OK;
}

static tc_status_t prepare(tc_metal *m, const tc_plan *plan, const tc_buffer *const operands[TC_ROLES], prepared *p) {
  TC_TRY(take_workspace(m, plan->workspace_bytes));
  for (int role = 0; role < TC_ROLES; role++) p->buffers[role] = operands[role] ? (id<MTLBuffer>)operands[role]->memory.owned : nil;
  p->buffers[TC_ROLE_WORKSPACE] = m->workspace;
  return take_pipelines(m, plan, p);
}

static MTLSize size_of(const uint32_t n[3]) { return MTLSizeMake(n[0], n[1], n[2]); }

/* The encoder is serial and the buffers are tracked by Metal, so a step sees what the steps before it wrote. */
static void encode_step(tc_metal *m, const tc_plan_step *step, id<MTLComputePipelineState> pipeline, const prepared *p) {
  [m->encoder setComputePipelineState:pipeline];
  [m->encoder setBytes:step->params length:step->params_bytes atIndex:TC_BUFFER_PARAMS];
  for (uint32_t i = 0; i < step->binding_count; i++) {
    const tc_plan_binding *binding = &step->bindings[i];
    [m->encoder setBuffer:p->buffers[binding->role] offset:binding->offset atIndex:binding->index];
  }
  [m->encoder dispatchThreadgroups:size_of(step->threadgroups) threadsPerThreadgroup:size_of(step->threads)];
  m->seconds += step->seconds;
}

/* macOS ends a command buffer that keeps the GPU for some seconds, hence the cut. */
static tc_status_t encode(tc_metal *m, const tc_plan *plan, const prepared *p) {
  for (size_t i = 0; i < plan->count; i++) {
    if (m->seconds + plan->steps[i].seconds > TC_PLAN_SECONDS) commit(m);
    TC_TRY(open_buffer(m));
    encode_step(m, &plan->steps[i], p->pipelines[i], p);
  }
  return TC_OK;
}

tc_status_t tc_metal_run(tc_metal *m, const tc_plan *plan, const tc_buffer *const operands[TC_ROLES]) {
  prepared p = {NULL, {nil}};
  pthread_mutex_lock(&m->encoding);
  tc_status_t status = prepare(m, plan, operands, &p);
  if (status == TC_OK) status = encode(m, plan, &p);
  const bool wait = !m->in_batch;
  if (wait) commit(m);
  const uint64_t value = m->value;
  pthread_mutex_unlock(&m->encoding);
  prepared_free(plan, &p);
  return status == TC_OK && wait ? tc_metal_wait(m, value) : status;
}

tc_status_t tc_metal_finish(tc_metal *m) {
  pthread_mutex_lock(&m->encoding);
  m->in_batch = false;
  commit(m);
  const uint64_t value = m->value;
  pthread_mutex_unlock(&m->encoding);
  TC_TRY(tc_metal_wait(m, value));
  return tc_metal_check(m);
}
