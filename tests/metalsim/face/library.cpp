// SPDX-License-Identifier: MIT
// face.h's libraries and functions.
#include "library.h"
#include "runtime.h"
#include "settings.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <link.h>
#include <mutex>
#include <unistd.h>

namespace face {

namespace {

const std::pair<const char *, size_t> types[] = {{"bool", 1}, {"char", 1}, {"uchar", 1}, {"short", 2}, {"ushort", 2}, {"int", 4},
                                                 {"uint", 4}, {"long", 8}, {"ulong", 8}, {"half", 2},  {"float", 4}};

face_type type_named(const std::string &name) {
  int i = 0;
  while (types[i].first != name) i++;
  return face_type(i);
}

// ---- loading ----

std::mutex loading;
const std::vector<face_value> *values_being_loaded; // of the function constants, while dlopen runs the library's initialisers

void find_addresses(module &m) {
  auto visit = [](dl_phdr_info *info, size_t, void *data) {
    module &m = *static_cast<module *>(data);
    link_map *map = static_cast<link_map *>(m.handle);
    if (info->dlpi_addr != map->l_addr || strcmp(info->dlpi_name, map->l_name)) return 0;
    m.begin = UINTPTR_MAX, m.end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
      const auto &segment = info->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD) continue;
      m.begin = std::min<uintptr_t>(m.begin, info->dlpi_addr + segment.p_vaddr);
      m.end = std::max<uintptr_t>(m.end, info->dlpi_addr + segment.p_vaddr + segment.p_memsz);
    }
    return 1;
  };
  dl_iterate_phdr(visit, &m);
}

// Each set of values needs a file of its own, since dlopen gives one file one copy of its variables.
const module *load(const std::string &object, const std::vector<face_value> &values) {
  static std::map<std::string, module> loaded;
  std::string path = object;
  for (const face_value &v : values) path += "." + std::to_string(v.index) + "_" + std::to_string(v.bits);
  std::lock_guard<std::mutex> hold(loading);
  auto found = loaded.find(path);
  if (found != loaded.end()) return &found->second;
  if (!std::filesystem::exists(path)) {
    std::string copy = object + "." + std::to_string(getpid());
    std::filesystem::copy_file(object, copy, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::rename(copy, path);
  }
  values_being_loaded = &values;
  module m = {dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), 0, 0};
  values_being_loaded = nullptr;
  if (!m.handle) throw std::runtime_error(dlerror());
  find_addresses(m);
  return &(loaded[path] = m);
}

// ---- what a library says about its kernels ----

void describe(face_library &library) {
  const module *m = load(library.object, {});
  for (const kernel &k : library.source.kernels) {
    auto layout = static_cast<const uint64_t *>(dlsym(m->handle, ("face_layout_" + k.name).c_str()));
    std::vector<face_argument> arguments;
    for (const kernel_argument &a : k.arguments) {
      bool reference = a.type.find('&') != a.type.npos, constant = a.type.find("constant") != a.type.npos;
      face_space space = a.threadgroup ? FACE_THREADGROUP : constant ? FACE_CONSTANT : FACE_DEVICE;
      arguments.push_back({a.name.c_str(), space, a.index, space == FACE_DEVICE && !layout[2], reference, layout[0], layout[1]});
      layout += 3;
    }
    std::vector<face_constant> constants;
    for (const std::string &name : k.constants) {
      const function_constant &c = library.source.constants.at(name);
      constants.push_back({c.name.c_str(), c.index, type_named(c.type), !c.asked});
    }
    library.arguments.push_back(arguments);
    library.constants.push_back(constants);
    library.kernels.push_back({k.name.c_str(), nullptr, arguments.size(), nullptr, constants.size(), uint32_t(*layout)});
  }
  for (size_t i = 0; i < library.kernels.size(); i++)
    library.kernels[i].arguments = library.arguments[i].data(), library.kernels[i].constants = library.constants[i].data();
}

// The records that threadgroup_variable leaves, one or more for each declaration.
void add_threadgroup_bytes(face_library &library) {
  void *handle = load(library.object, {})->handle;
  auto end_of = [&](const char *name) {
    return reinterpret_cast<const uint64_t *>(reinterpret_cast<uint64_t (*)()>(dlsym(handle, name))());
  };
  std::map<uint64_t, const uint64_t *> declarations;
  for (const uint64_t *r = end_of("face_records_begin"); r < end_of("face_records_end"); r += 3)
    declarations[r[1]] = r[0] < library.kernels.size() ? r : nullptr;
  library.threadgroup_bytes.resize(library.kernels.size());
  for (auto [declaration, record] : declarations)
    if (record) library.threadgroup_bytes[record[0]] += (record[2] + 15) / 16 * 16;
}

// One source is one library, however often it is asked for; it stays for the next one that asks.
face_library *library_new(std::string_view source, int version) {
  static std::mutex lock;
  static std::map<std::pair<int, std::string>, std::unique_ptr<face_library>> libraries;
  if (version != 300 && version != 310) throw std::runtime_error("unknown version of Metal\n");
  std::lock_guard<std::mutex> hold(lock);
  auto found = libraries.find({version, std::string(source)});
  if (found != libraries.end()) return found->second.get();
  auto library = std::make_unique<face_library>();
  library->object = compile(source, version, library->source);
  describe(*library);
  add_threadgroup_bytes(*library);
  return (libraries[{version, std::string(source)}] = std::move(library)).get();
}

// ---- functions ----

std::string quoted(const std::string &name) { return "'" + name + "'"; }

std::vector<face_value> checked_values(const face_library &library, size_t kernel, const face_value *values, size_t count) {
  std::map<uint32_t, face_value> given;
  std::vector<face_value> used;
  for (size_t i = 0; i < count; i++) given[values[i].index] = values[i];
  for (const face_constant &c : library.constants[kernel]) {
    auto value = given.find(c.index);
    if (value == given.end() && c.required)
      throw std::runtime_error("kernel " + quoted(library.kernels[kernel].name) + ": function constant " + quoted(c.name) + " (" +
                               std::to_string(c.index) + ") has no value");
    if (value == given.end()) continue;
    if (value->second.type != c.type)
      throw std::runtime_error("function constant " + quoted(c.name) + " has type " + types[c.type].first +
                               ", its value has type " + types[value->second.type].first);
    used.push_back(value->second);
    if (types[c.type].second < 8) used.back().bits &= (1ull << 8 * types[c.type].second) - 1;
  }
  std::sort(used.begin(), used.end(), [](const face_value &a, const face_value &b) { return a.index < b.index; });
  return used;
}

// Whether the values switch an argument on.
bool is_on(const module &m, const kernel_argument &a) {
  if (a.condition.empty()) return true;
  return reinterpret_cast<bool (*)()>(dlsym(m.handle, ("face_condition_" + a.condition).c_str()))();
}

face_function *function_new(const face_library *library, const char *name, const face_value *values, size_t count) {
  const face_kernel *found = face_library_find(library, name);
  if (!found) throw std::runtime_error("the library has no kernel '" + std::string(name) + "'");
  auto function = std::make_unique<face_function>();
  function->kernel = found - library->kernels.data();
  function->loaded = load(library->object, checked_values(*library, function->kernel, values, count));
  const kernel &k = library->source.kernels[function->kernel];
  for (size_t i = 0; i < k.arguments.size(); i++)
    if (is_on(*function->loaded, k.arguments[i])) function->arguments.push_back(library->arguments[function->kernel][i]);
  function->entry = reinterpret_cast<void (*)()>(dlsym(function->loaded->handle, ("face_entry_" + k.name).c_str()));
  function->library = library;
  return function.release();
}

void set_error(char **error, const char *text) {
  if (error) *error = strdup(text);
}

} // namespace

} // namespace face

extern "C" {

FACE_API bool face_constant_value(int index, int size, void *value) {
  for (const face_value &v : *face::values_being_loaded) {
    if (v.index != uint32_t(index)) continue;
    memcpy(value, &v.bits, size);
    return true;
  }
  return false;
}

face_library *face_library_new(const char *source, size_t length, int version, char **error) {
  try {
    return face::library_new({source, length}, version);
  } catch (const std::exception &e) {
    face::set_error(error, e.what());
    return nullptr;
  }
}

void face_library_free(face_library *) {}

size_t face_library_kernel_count(const face_library *library) { return library->kernels.size(); }

const face_kernel *face_library_kernel(const face_library *library, size_t i) { return &library->kernels[i]; }

const face_kernel *face_library_find(const face_library *library, const char *name) {
  for (const face_kernel &k : library->kernels)
    if (!strcmp(k.name, name)) return &k;
  return nullptr;
}

size_t face_type_size(face_type type) { return face::types[type].second; }

face_function *face_function_new(const face_library *library, const char *name, const face_value *values, size_t count,
                                 char **error) {
  try {
    return face::function_new(library, name, values, count);
  } catch (const std::exception &e) {
    face::set_error(error, e.what());
    return nullptr;
  }
}

void face_function_free(face_function *function) { delete function; }

const char *face_function_name(const face_function *function) { return function->library->kernels[function->kernel].name; }

size_t face_function_argument_count(const face_function *function) { return function->arguments.size(); }

const face_argument *face_function_argument(const face_function *function, size_t i) { return &function->arguments[i]; }

uint32_t face_function_max_total_threads(const face_function *function) {
  return function->library->kernels[function->kernel].max_total_threads;
}

size_t face_function_threadgroup_bytes(const face_function *function) {
  return function->library->threadgroup_bytes[function->kernel];
}

bool face_dispatch(const face_dispatch_desc *desc, face_counters *counters, char **error) {
  try {
    face_counters counted = face::dispatch(*desc);
    if (counters) *counters = counted;
    return true;
  } catch (const std::exception &e) {
    face::set_error(error, e.what());
    return false;
  }
}

} // extern "C"
