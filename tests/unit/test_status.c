/* SPDX-License-Identifier: MIT
 *
 * Status names and numbers, the version, and tc_last_error: one sentence for each thread, kept over later successes.
 */
#include "common/check.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>

/* The numbers are frozen, so they stand here as numbers. */
static void names(void) {
  static const struct {
    int number;
    tc_status_t status;
    const char *name;
  } table[] = {
      {0, TC_OK, "TC_OK"},
      {-1, TC_ERROR_ARGUMENT, "TC_ERROR_ARGUMENT"},
      {-2, TC_ERROR_SHAPE, "TC_ERROR_SHAPE"},
      {-3, TC_ERROR_BUFFER, "TC_ERROR_BUFFER"},
      {-4, TC_ERROR_ALIGNMENT, "TC_ERROR_ALIGNMENT"},
      {-5, TC_ERROR_OVERLAP, "TC_ERROR_OVERLAP"},
      {-6, TC_ERROR_MEMORY, "TC_ERROR_MEMORY"},
      {-7, TC_ERROR_UNSUPPORTED, "TC_ERROR_UNSUPPORTED"},
      {-8, TC_ERROR_ENVIRONMENT, "TC_ERROR_ENVIRONMENT"},
      {-9, TC_ERROR_NO_DEVICE, "TC_ERROR_NO_DEVICE"},
      {-10, TC_ERROR_DEVICE, "TC_ERROR_DEVICE"},
      {-11, TC_ERROR_TIMEOUT, "TC_ERROR_TIMEOUT"},
      {-12, TC_ERROR_CLOSED, "TC_ERROR_CLOSED"},
      {-13, TC_ERROR_STATE, "TC_ERROR_STATE"},
  };
  for (size_t i = 0; i < COUNT(table); i++) {
    CHECK_INT(table[i].status, table[i].number);
    CHECK_STRING(tc_status_string(table[i].status), table[i].name);
  }
  static const int unknown[] = {1, 77, -14, -1000, INT_MAX, INT_MIN};
  for (size_t i = 0; i < COUNT(unknown); i++) {
    note("status %d", unknown[i]);
    CHECK_STRING(tc_status_string((tc_status_t)unknown[i]), "TC_ERROR_UNKNOWN");
  }
}

static void version(void) {
  char text[32];
  snprintf(text, sizeof(text), "%d.%d.%d", TC_VERSION_MAJOR, TC_VERSION_MINOR, TC_VERSION_PATCH);
  CHECK_STRING(tc_version(), text);
  CHECK_INT(tc_api_version(), TC_API_VERSION);
}

static void *another_thread(void *unused) {
  CHECK_STRING(tc_last_error(), "");
  CHECK_STATUS(tc_buffer_map(NULL, NULL), TC_ERROR_ARGUMENT);
  CHECK_CONTAINS(tc_last_error(), "tc_buffer_map");
  return unused;
}

static void last_error(void) {
  CHECK_STRING(tc_last_error(), "");
  CHECK_STATUS(tc_init(NULL), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_init: out is NULL");
  CHECK_OK(tc_shutdown(NULL));
  CHECK_STRING(tc_last_error(), "tc_init: out is NULL");
  pthread_t thread;
  if (pthread_create(&thread, NULL, another_thread, NULL)) give_up("no thread");
  pthread_join(thread, NULL);
  CHECK_STRING(tc_last_error(), "tc_init: out is NULL");
}

int main(int argc, char **argv) {
  static const test tests[] = {{"names", names}, {"version", version}, {"last_error", last_error}};
  return run_tests("status", tests, COUNT(tests), argc, argv);
}
