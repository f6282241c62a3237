/* SPDX-License-Identifier: MIT */
#include "context.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>

/* The machine's own list decides, not the sentence: a library that refuses an ISA which it lists has failed. */
static bool machine_can(const char *isa) {
  char names[ISAS_MAX][ISA_NAME_BYTES];
  size_t count = list_isas(names);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(names[i], isa) == 0) return true;
  }
  return false;
}

tc_context *open_context(void) {
  tc_context *ctx = NULL;
  tc_status_t status = tc_init(&ctx);
  if (status == TC_OK) return ctx;
  char reason[512];
  strncpy(reason, tc_last_error(), sizeof(reason) - 1);
  reason[sizeof(reason) - 1] = 0;
  const char *isa = getenv("TC_CPU_ISA");
  if (status == TC_ERROR_ENVIRONMENT && isa && strstr(reason, "this machine") && !machine_can(isa)) skip("%s", reason);
  if (status == TC_ERROR_NO_DEVICE) skip("%s", reason);
  give_up("tc_init gives %s: %s", tc_status_string(status), reason);
}

/* A CPU context while TC_CPU_ISA is isa (NULL: unset). */
static tc_context *open_cpu(const char *isa) {
  const char *now = getenv("TC_CPU_ISA");
  char *saved = now ? strdup(now) : NULL;
  if (isa) {
    setenv("TC_CPU_ISA", isa, 1);
  } else {
    unsetenv("TC_CPU_ISA");
  }
  tc_context *ctx = NULL;
  tc_status_t status = tc_init_backend(TC_BACKEND_CPU, &ctx);
  if (status != TC_OK) give_up("tc_init_backend with TC_CPU_ISA=%s: %s", isa ? isa : "", tc_last_error());
  if (saved) {
    setenv("TC_CPU_ISA", saved, 1);
  } else {
    unsetenv("TC_CPU_ISA");
  }
  free(saved);
  return ctx;
}

tc_context *open_isa(const char *isa) { return open_cpu(isa); }

size_t list_isas(char names[ISAS_MAX][ISA_NAME_BYTES]) {
  tc_context *ctx = open_cpu(NULL);
  tc_device_info info = TC_DEVICE_INFO_INIT;
  if (tc_device_info_get(ctx, &info) != TC_OK) give_up("tc_device_info_get: %s", tc_last_error());
  close_context(ctx);
  size_t count = 0;
  for (char *rest, *name = strtok_r(info.isas, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest)) {
    if (count == ISAS_MAX || strlen(name) >= ISA_NAME_BYTES) give_up("isas lists too much at \"%s\"", name);
    strcpy(names[count++], name);
  }
  if (count == 0) give_up("isas is empty");
  return count;
}

void close_context(tc_context *ctx) { CHECK_OK(tc_shutdown(ctx)); }

bool on_metal(tc_context *ctx) {
  tc_device_info info = TC_DEVICE_INFO_INIT;
  if (tc_device_info_get(ctx, &info) != TC_OK) give_up("tc_device_info_get: %s", tc_last_error());
  return info.backend == TC_BACKEND_METAL;
}

size_t wrap_unit(tc_context *ctx) { return on_metal(ctx) ? 16384 : 1; }
