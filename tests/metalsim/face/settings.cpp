// SPDX-License-Identifier: MIT
#include "settings.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <mutex>
#include <unistd.h>

namespace face {

namespace {

std::string own_directory;

void remove_own_directory() {
  std::error_code ignored;
  std::filesystem::remove_all(own_directory, ignored);
}

std::string temporary_directory() {
  const char *base = getenv("TMPDIR");
  own_directory = std::string(base && *base ? base : "/tmp") + "/metalsim-XXXXXX";
  if (!mkdtemp(own_directory.data())) perror(own_directory.c_str()), exit(1);
  atexit(remove_own_directory);
  return own_directory;
}

// The position of the variable's value in the list, 0 where it isn't set. A wrong value ends the program: it is a test's mistake.
int choice(const char *variable, std::initializer_list<const char *> values) {
  const char *set = getenv(variable);
  if (!set || !*set) return 0;
  int i = 0;
  for (const char *value : values) {
    if (!strcmp(set, value)) return i;
    i++;
  }
  fprintf(stderr, "%s=%s is not known\n", variable, set);
  exit(1);
}

build kind_of_build() {
  bool check = choice("METALSIM_CHECK", {"0", "1"});
  if (dlsym(RTLD_DEFAULT, "__tsan_init")) return build::checked;
  if (dlsym(RTLD_DEFAULT, "__asan_init")) return build::address;
  return check ? build::checked : build::plain;
}

settings read_settings() {
  const char *cache = getenv("METALSIM_CACHE"), *clang = getenv("METALSIM_CLANG"), *seed = getenv("METALSIM_SEED");
  int flushed = choice("METALSIM_SUBNORMAL", {"half", "none", "all"});
  settings s;
  s.cache = cache && *cache ? cache : temporary_directory();
  std::filesystem::create_directories(s.cache);
  s.clang = clang && *clang ? clang : "clang-19";
  s.kind = kind_of_build();
  s.permuted = choice("METALSIM_LANE_MAP", {"apple", "permuted"});
  s.flush_float = flushed != 2;
  s.flush_half = flushed == 1;
  s.seed = seed ? strtoull(seed, nullptr, 0) : 0;
  return s;
}

} // namespace

// Not an initializer: ThreadSanitizer knows what call_once orders, and nothing of a guard that the compiler makes in a library
// without instrumentation.
const settings &get_settings() {
  static std::once_flag once;
  static settings s;
  std::call_once(once, [] { s = read_settings(); });
  return s;
}

} // namespace face
