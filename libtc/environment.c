/* SPDX-License-Identifier: MIT */
#include "environment.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

/* The value of a variable, NULL if it is unset or empty. */
static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

typedef struct choice {
  const char *word;
  int value;
} choice;

/* *out = the value of the word in the variable; unchanged if the variable is unset. allowed is the list for the sentence. */
static tc_status_t read_choice(const char *name, const choice *choices, const char *allowed, int *out) {
  const char *word = variable(name);
  if (!word) return TC_OK;
  for (const choice *c = choices; c->word; c++) {
    if (strcmp(c->word, word) == 0) {
      *out = c->value;
      return TC_OK;
    }
  }
  return tc_fail(TC_ERROR_ENVIRONMENT, "%s=%.64s is not known, allowed are %s", name, word, allowed);
}

static tc_status_t read_threads(int64_t *out) {
  const char *text = variable("TC_NUM_THREADS");
  if (!text) return TC_OK;
  const size_t digits = strspn(text, "0123456789");
  const long n = digits && digits < 8 && !text[digits] ? strtol(text, NULL, 10) : 0;
  TC_REQUIRE(n >= 1 && n <= TC_THREADS_MAX, TC_ERROR_ENVIRONMENT,
             "TC_NUM_THREADS=%.64s is not allowed, a whole number from 1 to %d is", text, TC_THREADS_MAX);
  *out = n;
  return TC_OK;
}

tc_status_t tc_environment_read(tc_environment *out) {
  static const choice backends[] = {{"cpu", TC_BACKEND_CPU}, {"metal", TC_BACKEND_METAL}, {NULL, 0}};
  static const choice flags[] = {{"0", 0}, {"1", 1}, {NULL, 0}};
  static const choice paths[] = {{"col", TC_CONV_PATH_COL}, {"implicit", TC_CONV_PATH_IMPLICIT}, {NULL, 0}};
  int backend = TC_BACKEND_AUTO, verbose = 0, path = TC_CONV_PATH_ANY;
  int64_t threads = 0;
  TC_TRY(read_choice("TC_BACKEND", backends, "cpu, metal", &backend));
  TC_TRY(read_choice("TC_VERBOSE", flags, "0, 1", &verbose));
  TC_TRY(read_choice("TC_CONV_PATH", paths, "col, implicit", &path));
  TC_TRY(read_threads(&threads));
  *out = (tc_environment){(tc_backend_t)backend, variable("TC_CPU_ISA"), threads, verbose != 0, (tc_conv_path_t)path};
  return TC_OK;
}
