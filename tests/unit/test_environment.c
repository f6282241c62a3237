/* SPDX-License-Identifier: MIT
 *
 * The TC_* variables: what each value does, that an empty one does nothing, and the sentence for a wrong one. Also that the library
 * prints nothing, and with TC_VERBOSE=1 one line for each call.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/gemm_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const variables[] = {"TC_BACKEND", "TC_CPU_ISA", "TC_NUM_THREADS", "TC_VERBOSE", "TC_CONV_PATH"};

static char backend[16]; /* the value of TC_BACKEND that this program was started with */

/* Only the backend is as it was. */
static void clear(void) {
  for (size_t i = 0; i < COUNT(variables); i++) unsetenv(variables[i]);
  setenv("TC_BACKEND", backend, 1);
}

static bool backend_is(const char *name) { return strcmp(backend, name) == 0; }

static tc_status_t init_with(const char *name, const char *value, tc_context **out) {
  clear();
  setenv(name, value, 1);
  note("%s=%s", name, value);
  tc_status_t status = tc_init(out);
  clear();
  return status;
}

static void allowed(void) {
  static const char *const values[][2] = {{"TC_BACKEND", "cpu"},      {"TC_CPU_ISA", "generic"}, {"TC_NUM_THREADS", "1"},
                                          {"TC_NUM_THREADS", "1024"}, {"TC_VERBOSE", "0"},       {"TC_CONV_PATH", "implicit"},
                                          {"TC_BACKEND", ""},         {"TC_CPU_ISA", ""},        {"TC_NUM_THREADS", ""},
                                          {"TC_VERBOSE", ""},         {"TC_CONV_PATH", ""}};
  for (size_t i = 0; i < COUNT(values); i++) {
    tc_context *ctx = NULL;
    if (CHECK_OK(init_with(values[i][0], values[i][1], &ctx))) close_context(ctx);
  }
  tc_context *ctx = NULL;
  if (backend_is("metal") && CHECK_OK(init_with("TC_CONV_PATH", "col", &ctx))) close_context(ctx);
}

/* Each wrong value is an error that names variable and value, and says what is allowed. */
static void refused(void) {
  static const struct {
    const char *name, *value, *allowed, *backend; /* NULL: any */
  } rows[] = {
      {"TC_BACKEND", "cuda", "metal", NULL},
      {"TC_BACKEND", "CPU", "cpu", NULL},
      {"TC_BACKEND", " cpu", "cpu", NULL},
      {"TC_CPU_ISA", "sse9", "generic", "cpu"},
      {"TC_CPU_ISA", "Generic", "generic", "cpu"},
      {"TC_CPU_ISA", "generic,", "generic", "cpu"},
      {"TC_NUM_THREADS", "0", "1024", NULL},
      {"TC_NUM_THREADS", "1025", "1024", NULL},
      {"TC_NUM_THREADS", "-1", "1024", NULL},
      {"TC_NUM_THREADS", "two", "1024", NULL},
      {"TC_NUM_THREADS", "2x", "1024", NULL},
      {"TC_NUM_THREADS", "2.5", "1024", NULL},
      {"TC_NUM_THREADS", "4294967297", "1024", NULL},
      {"TC_NUM_THREADS", "99999999999999999999999", "1024", NULL},
      {"TC_VERBOSE", "2", "0", NULL},
      {"TC_VERBOSE", "yes", "0", NULL},
      {"TC_CONV_PATH", "winograd", "implicit", NULL},
      {"TC_CONV_PATH", "col", "implicit", "cpu"}, /* known, but not on the CPU */
  };
  for (size_t i = 0; i < COUNT(rows); i++) {
    tc_context *ctx = (tc_context *)&rows;
    if (rows[i].backend && !backend_is(rows[i].backend)) continue;
    CHECK_STATUS(init_with(rows[i].name, rows[i].value, &ctx), TC_ERROR_ENVIRONMENT);
    CHECK(ctx == NULL);
    CHECK_CONTAINS(tc_last_error(), "tc_init");
    CHECK_CONTAINS(tc_last_error(), rows[i].name);
    CHECK_CONTAINS(tc_last_error(), rows[i].value);
    CHECK_CONTAINS(tc_last_error(), rows[i].allowed);
  }
}

/* Each ISA that this machine lists can be had, with its own kernels, and says so. */
static void isas(void) {
  clear();
  if (!backend_is("cpu")) return; /* elsewhere there are none */
  char names[ISAS_MAX][ISA_NAME_BYTES];
  size_t count = list_isas(names);
  for (size_t i = 0; i < count; i++) {
    note("isa %s", names[i]);
    tc_context *ctx = open_isa(names[i]);
    tc_device_info info = TC_DEVICE_INFO_INIT;
    CHECK_OK(tc_device_info_get(ctx, &info));
    CHECK_STRING(info.isa, names[i]);
    CHECK(strstr(info.kernel, names[i]) != NULL);
    CHECK_CONTAINS(info.isa_reason, "TC_CPU_ISA");
    close_context(ctx);
  }
  tc_context *best = open_context();
  tc_device_info info = TC_DEVICE_INFO_INIT;
  CHECK_OK(tc_device_info_get(best, &info));
  CHECK_STRING(info.isa, names[count - 1]);
  close_context(best);
}

/* Each known ISA is in the list, or refused for this machine or this build. */
static void every_isa(void) {
  static const char *const known[] = {"generic", "amxemu", "avx2", "avx512", "amxbf16", "neon"};
  char names[ISAS_MAX][ISA_NAME_BYTES];
  clear();
  if (!backend_is("cpu")) return;
  size_t count = list_isas(names);
  for (size_t i = 0; i < COUNT(known); i++) {
    bool listed = false;
    for (size_t j = 0; j < count; j++) listed |= strcmp(known[i], names[j]) == 0;
    tc_context *ctx = NULL;
    if (CHECK_STATUS(init_with("TC_CPU_ISA", known[i], &ctx), listed ? TC_OK : TC_ERROR_ENVIRONMENT) && listed) close_context(ctx);
    if (!listed) CHECK_CONTAINS(tc_last_error(), known[i]);
  }
}

static void threads(void) {
  tc_context *ctx = NULL;
  int64_t n = 0;
  if (!CHECK_OK(init_with("TC_NUM_THREADS", "5", &ctx))) return;
  CHECK_OK(tc_context_get_threads(ctx, &n));
  CHECK_INT(n, 5);
  close_context(ctx);
}

static void metal(void) {
  tc_context *ctx = (tc_context *)&variables;
  tc_status_t status = init_with("TC_BACKEND", "metal", &ctx);
  CHECK(status == TC_ERROR_UNSUPPORTED || status == TC_ERROR_NO_DEVICE || status == TC_OK);
  CHECK(status == TC_OK || ctx == NULL);
  CHECK(status == TC_OK || strstr(tc_last_error(), "etal") != NULL);
  if (status == TC_OK) close_context(ctx);
}

/* What three calls on a context print on stderr; text is cut at size. */
static size_t printed(const char *verbose, char *text, size_t size) {
  FILE *file = tmpfile();
  int saved = dup(STDERR_FILENO);
  if (!file || saved < 0) give_up("stderr can't be redirected");
  tc_context *ctx = NULL;
  CHECK_OK(init_with("TC_VERBOSE", verbose, &ctx));
  rng r = {1};
  gemm_case g = gemm_make(3, 4, 2048); /* long enough for every backend to want a workspace */
  gemm_open(&g, ctx, &r);
  fflush(stderr);
  dup2(fileno(file), STDERR_FILENO);
  tc_status_t first = gemm_call(&g, ctx), wrong = tc_gemm(ctx, NULL, NULL, NULL, NULL), second = gemm_call(&g, ctx);
  fflush(stderr);
  dup2(saved, STDERR_FILENO);
  close(saved);
  CHECK_INT(first, TC_OK);
  CHECK_INT(wrong, TC_ERROR_ARGUMENT);
  CHECK_INT(second, TC_OK);
  gemm_close(&g, ctx);
  close_context(ctx);
  rewind(file);
  size_t length = fread(text, 1, size - 1, file);
  text[length] = 0;
  fclose(file);
  return length;
}

static void verbose(void) {
  char text[2048];
  CHECK_INT((int64_t)printed("", text, sizeof(text)), 0);
  CHECK_INT((int64_t)printed("0", text, sizeof(text)), 0);
  printed("1", text, sizeof(text));
  int lines = 0;
  for (char *rest, *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), lines++) {
    CHECK_CONTAINS(line, "tc_gemm");
    CHECK_CONTAINS(line, "M=3");
    CHECK_CONTAINS(line, backend);
    CHECK_CONTAINS(line, "workspace=");
    CHECK(!strstr(line, "workspace=0,"));
  }
  CHECK_INT(lines, 2);
}

int main(int argc, char **argv) {
  static const test tests[] = {{"allowed", allowed}, {"refused", refused}, {"isas", isas},      {"every_isa", every_isa},
                               {"threads", threads}, {"metal", metal},     {"verbose", verbose}};
  const char *given = getenv("TC_BACKEND");
  if (!given || strlen(given) >= sizeof(backend)) give_up("TC_BACKEND must say which backend to test");
  strcpy(backend, given);
  return run_tests("environment", tests, COUNT(tests), argc, argv);
}
