// SPDX-License-Identifier: MIT
// Source text -> preprocessor -> translate -> clang -> shared object, kept in the cache by a hash of all that shapes it.
#include "library.h"
#include "settings.h"

#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <spawn.h>
#include <sstream>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace face {

namespace {

using arguments = std::vector<std::string>;

struct temporary {
  std::string path;
  ~temporary() { std::filesystem::remove(path); }
};

std::string read_file(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

void write_file(const std::string &path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out.write(text.data(), text.size());
  if (!out.flush()) throw std::runtime_error("cannot write " + path + "\n");
}

// Writes under another name first, so that other processes see all of a file or none.
void publish(const std::string &from, const std::string &to) { std::filesystem::rename(from, to); }

struct lock {
  int fd;
  explicit lock(const std::string &path) : fd(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) { flock(fd, LOCK_EX); }
  ~lock() { close(fd); }
};

// Runs the compiler in an empty directory, input on its standard input. False: `messages` is what it said.
bool run(const arguments &command, const std::string &input, const std::string &output, const std::string &directory,
         std::string &messages) {
  std::vector<char *> argv, environment;
  for (const std::string &argument : command) argv.push_back(const_cast<char *>(argument.c_str()));
  argv.push_back(nullptr);
  for (char **e = environ; *e; e++)
    if (strncmp(*e, "LD_PRELOAD=", 11)) environment.push_back(*e); // a sanitizer's, say
  environment.push_back(nullptr);

  std::string log = output + ".log";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, input.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
  pid_t pid;
  int failed = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed) throw std::runtime_error("cannot run " + command[0] + ": " + strerror(failed) + "\n");
  int status;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  messages = read_file(log);
  unlink(log.c_str());
  return status == 0;
}

std::string this_library() {
  Dl_info info;
  dladdr(reinterpret_cast<void *>(&this_library), &info);
  return std::filesystem::absolute(info.dli_fname);
}

// Calls of the compiler's instrumentation that check.cpp answers in place of ThreadSanitizer's runtime.
const char *const reports[] = {"init", "func_entry", "func_exit", "memcpy", "memmove", "memset", "vptr_update", "vptr_read"};
const char *const accesses[] = {"read", "write", "unaligned_read", "unaligned_write", "read_write", "unaligned_read_write"};
const char *const atomics[] = {"load",      "store",    "exchange",  "fetch_add",           "fetch_sub",
                               "fetch_and", "fetch_or", "fetch_xor", "compare_exchange_val"};

void add_wraps(arguments &command) {
  auto wrap = [&](const std::string &name) { command.push_back("-Wl,--wrap=__tsan_" + name); };
  for (const char *name : reports) wrap(name);
  for (const char *name : accesses)
    for (const char *size : {"1", "2", "4", "8", "16"}) wrap(std::string(name) + size);
  for (const char *name : atomics)
    for (const char *size : {"8", "32"}) wrap(std::string("atomic") + size + "_" + name);
}

arguments compiler_options() {
  arguments all = {"-cl-std=clc++2021",
                   "-cl-no-stdinc",
                   "-nostdinc",
                   "-cl-single-precision-constant",
                   "-Xclang",
                   "-cl-ext=-all,+__opencl_c_generic_address_space",
                   "-ffp-contract=off",
                   "-Xclang",
                   "-ffloat16-excess-precision=none",
                   "-fno-strict-aliasing",
                   "-fno-math-errno",
                   "-w",
                   "-fPIC",
                   "-shared",
                   "-Wl,-Bsymbolic",
                   "-I",
                   FACE_DIRECTORY};
  const settings &s = get_settings();
  auto add = [&](std::initializer_list<const char *> more) { all.insert(all.end(), more.begin(), more.end()); };
  // Without F16C every conversion of half is a call, which the runtime answers (half.cpp).
  if (s.flush_half)
    add({"-march=x86-64-v2", "-Wl,--wrap=__extendhfsf2,--wrap=__truncsfhf2"});
  else
    add({"-march=x86-64-v3"});
  if (s.kind == build::plain) add({"-O1"});
  if (s.kind == build::address)
    add({"-O1", "-gline-tables-only", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
         "-fsanitize-address-use-after-return=never", "-fno-sanitize=function,vptr"});
  if (s.kind == build::checked) {
    add({"-O1", "-gline-tables-only", "-fno-vectorize", "-fno-slp-vectorize", "-fsanitize=thread", "-mllvm",
         "-tsan-instrument-read-before-write=1"});
    add_wraps(all);
  }
  return all;
}

uint64_t hash(std::string_view text, uint64_t h) {
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3;
  return h;
}

const char *const headers[] = {"abi.h",      "msl/types.h",     "msl/traits.h", "msl/math.h",
                               "msl/face.h", "msl/simdgroup.h", "msl/atomic.h", "msl/simdgroup_matrix.h"};

// Of everything but the source.
uint64_t hash_of_face() {
  uint64_t h = 0xcbf29ce484222325;
  for (const char *header : headers) h = hash(read_file(std::string(FACE_DIRECTORY "/") + header), h);
  for (const std::string &option : compiler_options()) h = hash(option, h);
  std::error_code none;
  h = hash(std::to_string(std::filesystem::last_write_time(this_library(), none).time_since_epoch().count()), h);
  return hash(get_settings().clang, h);
}

std::string preprocess(std::string_view source, int version, const std::string &base) {
  std::string in = base + ".metal", out = base + ".i", empty = base + ".empty", messages;
  temporary remove_in = {in}, remove_empty = {empty};
  std::filesystem::create_directories(empty);
  write_file(in, "#line 1 \"" + std::string(source_name) + "\"\n" + std::string(source));
  arguments command = {get_settings().clang,
                       "-E",
                       "-x",
                       "c++",
                       "-std=c++14",
                       "-nostdinc",
                       "-nostdinc++",
                       "-w",
                       "-U__cplusplus",
                       "-D__cplusplus=201402L",
                       "-D__METAL__=1",
                       "-D__METAL_MACOS__=1",
                       "-D__METAL_VERSION__=" + std::to_string(version),
                       "-isystem",
                       FACE_DIRECTORY "/include",
                       "-"};
  if (!run(command, in, out, empty, messages)) throw std::runtime_error(messages);
  return out;
}

void build_object(const translation &t, int version, const std::string &base, const std::string &object) {
  std::string in = base + ".clcpp", out = base + ".o", log = base + ".out", messages, text;
  temporary remove_in = {in}, remove_log = {log};
  for (const char *header : headers) text += "#include \"" + std::string(header) + "\"\n";
  write_file(in, text + t.text);
  arguments command = {get_settings().clang, "-x", "clcpp", in, "-D__METAL_VERSION__=" + std::to_string(version), "-o", out};
  for (const std::string &option : compiler_options()) command.push_back(option);
  command.insert(command.end(), {"-x", "none", this_library(), "-lm"});
  if (!run(command, "/dev/null", log, get_settings().cache, messages)) throw std::runtime_error(messages);
  publish(out, object);
}

} // namespace

std::string compile(std::string_view source, int version, translation &out) {
  static const uint64_t start = hash_of_face();
  static std::atomic<int> serial;
  char key[40];
  uint64_t h = hash(source, hash(std::to_string(version), start));
  snprintf(key, sizeof key, "/%016llx%08x", (unsigned long long)h, (unsigned)source.size());
  std::string path = get_settings().cache + key, object = path + ".so", preprocessed = path + ".i";
  lock hold(path + ".lock"); // others that want the same object wait for this one
  bool have = std::filesystem::exists(object);
  if (!have) {
    std::string base = path + "-" + std::to_string(getpid()) + "-" + std::to_string(serial++);
    publish(preprocess(source, version, base), preprocessed);
  }
  std::string text = read_file(preprocessed);
  out = translate(text);
  if (!have) build_object(out, version, path, object);
  return object;
}

} // namespace face
