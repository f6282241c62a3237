/* SPDX-License-Identifier: MIT
 *
 * What becomes of amxbf16 when Linux is asked for tiles: granted, refused, granted without effect, refused because of a small signal
 * stack or by a sandbox. A process asks once, so each case runs in a child of its own. The CPU is one that has everything (no tile
 * is touched); the answers are made up, but for the last two.
 */
#include "common/check.h"
#include "common/context.h"
#include "cpu/kernels.h"
#include "cpu/x86/features.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GET = 0x1022, REQUEST = 0x1023, TILE_DATA = 18 };

/* ---- A machine that answers as told ---- */

static struct {
  bool granted, grants; /* before the request, and by it */
  int error;            /* of the request; 0: it succeeds */
  int gets, requests;
} kernel;

static tc_x86_registers every_register(void) { return (tc_x86_registers){~0u, ~0u, ~0u, ~(uint64_t)0}; }

static long answer(int code, uintptr_t argument) {
  if (code == GET) {
    kernel.gets++;
    *(uint64_t *)argument = kernel.granted ? (uint64_t)1 << TILE_DATA : 0;
    return 0;
  }
  CHECK_INT(code, REQUEST);
  CHECK_INT((int64_t)argument, TILE_DATA);
  kernel.requests++;
  errno = kernel.error;
  kernel.granted |= kernel.grants;
  return kernel.error ? -1 : 0;
}

/* Runs a case in a child, whose failed checks are a failure here. */
static void in_child(void (*run)(void)) {
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    tc_x86_this_machine.cpuid = every_register;
    unsetenv("TC_CPU_ISA");
    unsetenv("TC_VERBOSE");
    run();
    int status = finish("a child", 1);
    fflush(NULL);
    _exit(status);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  CHECK_INT(status, 0);
}

static tc_device_info best_info(void) {
  tc_device_info info = TC_DEVICE_INFO_INIT;
  tc_context *ctx = NULL;
  if (CHECK_OK(tc_init_backend(TC_BACKEND_CPU, &ctx))) {
    CHECK_OK(tc_device_info_get(ctx, &info));
    close_context(ctx);
  }
  return info;
}

static bool listed(const tc_device_info *info, const char *isa) { return strstr(info->isas, isa) != NULL; }

/* ---- Cases ---- */

static void granted_before(void) {
  tc_x86_this_machine.arch_prctl = answer;
  kernel.granted = true;
  CHECK_STRING(best_info().isa, "amxbf16");
  CHECK_INT(kernel.requests, 0);
}

/* One request, when amxbf16 is first chosen, whatever is opened afterwards. */
static void granted_once(void) {
  tc_x86_this_machine.arch_prctl = answer;
  kernel.grants = true;
  setenv("TC_CPU_ISA", "generic", 1);
  tc_device_info info = best_info();
  CHECK(listed(&info, "amxbf16"));
  CHECK_INT(kernel.gets + kernel.requests, 0);
  unsetenv("TC_CPU_ISA");
  for (int i = 0; i < 3; i++) {
    info = best_info();
    CHECK_STRING(info.isa, "amxbf16");
    CHECK(strstr(info.kernel, "amxbf16") != NULL);
  }
  CHECK_INT(kernel.requests, 1);
  CHECK_INT(kernel.gets, 2);
}

/* The automatic choice is the next best, and the list leaves amxbf16 out from then on. */
static void check_refused(const char *reason) {
  tc_context *ctx = NULL;
  CHECK_STRING(best_info().isa, "avx512");
  const tc_device_info info = best_info();
  CHECK(!listed(&info, "amxbf16"));
  CHECK(tc_x86_amx_refused());
  CHECK(strstr(tc_x86_amx_refusal(), reason) != NULL);
  setenv("TC_CPU_ISA", "amxbf16", 1);
  CHECK_STATUS(tc_init(&ctx), TC_ERROR_ENVIRONMENT);
  CHECK(ctx == NULL);
}

static void refused(void) {
  tc_x86_this_machine.arch_prctl = answer;
  kernel.error = ENOSPC;
  check_refused(strerror(ENOSPC));
  CHECK_INT(kernel.requests, 1);
}

static void granted_without_effect(void) {
  tc_x86_this_machine.arch_prctl = answer;
  check_refused("without effect");
  CHECK_INT(kernel.requests, 1);
}

static void refused_by_name(void) {
  tc_context *ctx = NULL;
  tc_x86_this_machine.arch_prctl = answer;
  kernel.error = EPERM;
  setenv("TC_CPU_ISA", "amxbf16", 1);
  CHECK_STATUS(tc_init(&ctx), TC_ERROR_ENVIRONMENT);
  CHECK(ctx == NULL);
  CHECK_CONTAINS(tc_last_error(), "tc_init");
  CHECK_CONTAINS(tc_last_error(), "TC_CPU_ISA=amxbf16");
  CHECK_CONTAINS(tc_last_error(), strerror(EPERM));
}

/* What tc_init prints. */
static void capture(char *text, size_t size) {
  FILE *file = tmpfile();
  if (!file) give_up("no temporary file");
  int saved = dup(2);
  dup2(fileno(file), 2);
  best_info();
  dup2(saved, 2);
  close(saved);
  rewind(file);
  text[fread(text, 1, size - 1, file)] = 0;
  fclose(file);
}

static void note_if_verbose(void) {
  char text[256];
  tc_x86_this_machine.arch_prctl = answer;
  kernel.error = ENOSPC;
  setenv("TC_VERBOSE", "1", 1);
  capture(text, sizeof(text));
  CHECK(strncmp(text, "tc: amxbf16 ", 12) == 0);
  CHECK_CONTAINS(text, strerror(ENOSPC));
  CHECK(text[0] && strchr(text, '\n') == text + strlen(text) - 1); /* one line */
}

static void silent_otherwise(void) {
  char text[256];
  tc_x86_this_machine.arch_prctl = answer;
  kernel.error = ENOSPC;
  capture(text, sizeof(text));
  CHECK_STRING(text, "");
}

/* ---- The real Linux ---- */

static bool real_tiles;

/* A signal stack that tiles don't fit on. A machine without tiles refuses anyway. */
static void small_signal_stack(void) {
  static char memory[8192];
  const stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};
  CHECK_INT(sigaltstack(&stack, NULL), 0);
  check_refused(real_tiles ? strerror(ENOSPC) : "arch_prctl");
}

/* A sandbox that lets everything through but the request. */
static void sandbox(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, REQUEST, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {COUNT(code), code};
  CHECK_INT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  CHECK_INT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
  check_refused(strerror(EACCES));
}

static bool built(void) {
  for (int i = 0; i < tc_cpu_isa_count; i++) {
    if (strcmp(tc_cpu_isas[i].name, "amxbf16") == 0) return true;
  }
  return false;
}

#define CHILD(name) \
  static void test_##name(void) { in_child(name); }
CHILD(granted_before)
CHILD(granted_once)
CHILD(refused)
CHILD(granted_without_effect)
CHILD(refused_by_name)
CHILD(note_if_verbose)
CHILD(silent_otherwise)
CHILD(small_signal_stack)
CHILD(sandbox)

int main(int argc, char **argv) {
  static const test tests[] = {{"granted_before", test_granted_before},
                               {"granted_once", test_granted_once},
                               {"refused", test_refused},
                               {"granted_without_effect", test_granted_without_effect},
                               {"refused_by_name", test_refused_by_name},
                               {"note_if_verbose", test_note_if_verbose},
                               {"silent_otherwise", test_silent_otherwise},
                               {"small_signal_stack", test_small_signal_stack},
                               {"sandbox", test_sandbox}};
  if (!built()) skip("the compiler of this build can't do amxbf16");
  real_tiles = tc_x86_has_amxbf16(tc_x86_cpuid());
  return run_tests("tile_permission", tests, COUNT(tests), argc, argv);
}
