/* SPDX-License-Identifier: MIT */
/* What the face's own tests share. */
#ifndef FACE_TESTING_H
#define FACE_TESTING_H

#include "face.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition, ...)                              \
  do {                                                     \
    if (condition) break;                                  \
    printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
    printf(__VA_ARGS__);                                   \
    printf("\n");                                          \
    failures++;                                            \
  } while (0)

/* One dispatch of a kernel: function constants, buffers by index, sizes. */
typedef struct call {
  const char *kernel;
  face_value values[4];
  size_t value_count;
  face_binding buffers[6];
  size_t threadgroup_lengths[2];
  uint32_t groups[3], threads[3];
} call;

/* A file of the tests, NUL behind it. */
static inline char *read_file(const char *name, size_t *length) {
  char path[1000];
  snprintf(path, sizeof path, "%s/kernels/%s", FACE_DIRECTORY, name);
  FILE *file = fopen(path, "rb");
  if (!file) perror(path), exit(1);
  char *text = calloc(1, 1 << 20);
  *length = fread(text, 1, (1 << 20) - 1, file);
  fclose(file);
  return text;
}

static inline face_library *compile_file(const char *name) {
  size_t length;
  char *text = read_file(name, &length), *error = NULL;
  face_library *library = face_library_new(text, length, 300, &error);
  if (!library) printf("%s", error), exit(1);
  free(text);
  return library;
}

/* NULL where all went well, else the error, which the caller frees. */
static inline char *dispatch(const face_library *library, const call *c, face_counters *counters) {
  char *error = NULL;
  face_function *function = face_function_new(library, c->kernel, c->values, c->value_count, &error);
  if (!function) return error;
  face_dispatch_desc desc = {.function = function};
  memcpy(desc.buffers, c->buffers, sizeof c->buffers);
  memcpy(desc.threadgroup_lengths, c->threadgroup_lengths, sizeof c->threadgroup_lengths);
  for (int i = 0; i < 3; i++) {
    desc.threadgroups[i] = c->groups[i] ? c->groups[i] : 1;
    desc.threads[i] = c->threads[i] ? c->threads[i] : 1;
  }
  if (face_dispatch(&desc, counters, &error)) error = NULL;
  face_function_free(function);
  return error;
}

/* Whether the error is there and holds the text; frees it. */
static inline bool error_has(char *error, const char *text) {
  bool found = error && strstr(error, text);
  if (error && !found) printf("the error is: %s\n", error);
  free(error);
  return found;
}

#endif
