/* SPDX-License-Identifier: MIT */
#include "dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "metal/embedded.h"

static face_library *library;

/* Kernels with values for their function constants, kept since there are few. */
enum { FUNCTIONS = 1024 };
static struct function {
  tc_plan_kernel kernel;
  face_function *made;
} functions[FUNCTIONS];
static size_t function_count;

/* The content of a file, which the caller frees. */
static tc_embedded read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) give_up("%s can't be read", path);
  const size_t bytes = (size_t)ftell(file);
  char *data = malloc(bytes + 1);
  rewind(file);
  if (!data || fread(data, 1, bytes, file) != bytes) give_up("%s can't be read", path);
  fclose(file);
  return (tc_embedded){data, bytes};
}

void kernels_open(void) {
  const char *path = getenv("TC_TEST_METAL_SOURCE"); /* mutate.py */
  const tc_embedded source = path ? read_file(path) : tc_metal_source;
  char *error = NULL;
  library = face_library_new(source.data, source.bytes, 300, &error);
  if (!library) give_up("%s", error);
  if (path) free((void *)(uintptr_t)source.data);
}

void kernels_close(void) {
  for (size_t i = 0; i < function_count; i++) face_function_free(functions[i].made);
  face_library_free(library);
}

static face_function *function_make(const tc_plan_kernel *kernel) {
  face_value values[TC_PLAN_CONSTANTS];
  for (uint32_t i = 0; i < kernel->constant_count; i++) {
    values[i] = (face_value){kernel->constants[i].index, FACE_BOOL, kernel->constants[i].value};
  }
  char *error = NULL;
  face_function *made = face_function_new(library, kernel->name, values, kernel->constant_count, &error);
  if (!made) give_up("%s: %s", kernel->name, error);
  return made;
}

static const face_function *function_of(const tc_plan_kernel *kernel) {
  for (size_t i = 0; i < function_count; i++) {
    if (tc_plan_kernel_equal(&functions[i].kernel, kernel)) return functions[i].made;
  }
  if (function_count == FUNCTIONS) give_up("more than %d functions", FUNCTIONS);
  functions[function_count] = (struct function){*kernel, function_make(kernel)};
  return functions[function_count++].made;
}

static bool dispatch(const char *name, const face_dispatch_desc *desc, face_counters *counters) {
  char *error = NULL;
  if (face_dispatch(desc, counters, &error)) return true;
  check_failed(__FILE__, __LINE__, "%s: %s", name, error);
  free(error);
  return false;
}

bool step_run(const tc_plan_step *step, const face_binding operands[TC_ROLES], face_counters *counters) {
  face_dispatch_desc desc = {.function = function_of(&step->kernel)};
  desc.buffers[TC_BUFFER_PARAMS] = (face_binding){(void *)(uintptr_t)step->params, step->params_bytes};
  for (uint32_t i = 0; i < step->binding_count; i++) {
    const tc_plan_binding *b = &step->bindings[i];
    const face_binding *whole = &operands[b->role];
    desc.buffers[b->index] = (face_binding){(char *)whole->pointer + b->offset, whole->length - b->offset};
  }
  memcpy(desc.threadgroups, step->threadgroups, sizeof desc.threadgroups);
  memcpy(desc.threads, step->threads, sizeof desc.threads);
  return dispatch(step->kernel.name, &desc, counters);
}

bool plan_run(const tc_plan *plan, const face_binding operands[TC_ROLES]) {
  face_binding bound[TC_ROLES];
  memcpy(bound, operands, sizeof bound);
  void *workspace = malloc(plan->workspace_bytes + 1);
  if (!workspace) give_up("no memory for %llu bytes", (unsigned long long)plan->workspace_bytes);
  memset(workspace, 0xff, plan->workspace_bytes);
  bound[TC_ROLE_WORKSPACE] = (face_binding){workspace, plan->workspace_bytes};
  bool good = true;
  for (size_t i = 0; good && i < plan->count; i++) good = step_run(&plan->steps[i], bound, NULL);
  free(workspace);
  return good;
}

bool kernel_run(const char *name, const face_binding *buffers, size_t count, uint32_t threads) {
  const tc_plan_kernel kernel = {.name = name};
  face_dispatch_desc desc = {.function = function_of(&kernel), .threadgroups = {1, 1, 1}, .threads = {threads, 1, 1}};
  memcpy(desc.buffers, buffers, count * sizeof *buffers);
  return dispatch(name, &desc, NULL);
}
