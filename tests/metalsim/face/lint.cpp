// SPDX-License-Identifier: MIT
// What Metal refuses and clang's OpenCL C++ mode would take: pointers without an address space, words of C++ that Metal lacks.
#include "source.h"

namespace face {

namespace {

using words = std::set<std::string_view>;

const words spaces = {"device", "constant", "threadgroup", "thread"};
const words qualifiers = {"const", "volatile"};
const words specifiers = {"static", "inline", "constexpr", "extern",   "typename", "struct",
                          "class",  "union",  "enum",      "unsigned", "signed",   "kernel"};

const words builtin_types = {"void",
                             "bool",
                             "char",
                             "uchar",
                             "short",
                             "ushort",
                             "int",
                             "uint",
                             "long",
                             "ulong",
                             "half",
                             "float",
                             "bfloat",
                             "size_t",
                             "ptrdiff_t",
                             "auto",
                             "int8_t",
                             "int16_t",
                             "int32_t",
                             "int64_t",
                             "uint8_t",
                             "uint16_t",
                             "uint32_t",
                             "uint64_t",
                             "vec",
                             "atomic",
                             "atomic_int",
                             "atomic_uint",
                             "atomic_bool",
                             "atomic_float",
                             "simdgroup_matrix",
                             "simdgroup_half8x8",
                             "simdgroup_float8x8",
                             "unsigned",
                             "signed"};

const std::map<std::string_view, const char *> refused_words = {
    {"double", "'double' is not supported in Metal"},
    {"goto", "'goto' is not supported in Metal"},
    {"new", "'new' is not supported in Metal"},
    {"delete", "'delete' is not supported in Metal"},
    {"try", "exceptions are not supported in Metal"},
    {"catch", "exceptions are not supported in Metal"},
    {"throw", "exceptions are not supported in Metal"},
    {"virtual", "virtual functions are not supported in Metal"},
    {"dynamic_cast", "run-time type information is not supported in Metal"},
    {"typeid", "run-time type information is not supported in Metal"},
    {"thread_local", "'thread_local' is not supported in Metal"},
    {"asm", "inline assembly is not supported in Metal"},
    {"__asm__", "inline assembly is not supported in Metal"},
    {"vertex", "only kernels are known here"},
    {"fragment", "only kernels are known here"},
};

// A base type followed by 2, 3 or 4 names a vector.
bool is_vector(std::string_view word) {
  return word.size() > 1 && word.back() >= '2' && word.back() <= '4' && builtin_types.count(word.substr(0, word.size() - 1));
}

struct linter {
  const tokens &source;
  words types = builtin_types;  // and those that the source declares
  std::set<size_t> declarators; // the * and & that belong to types

  void collect_types() {
    for (size_t i = 0; i + 1 < source.size(); i++) {
      if (source.is_any(i, {"struct", "class", "union", "enum", "typename"})) {
        size_t name = i + 1 + source.is_any(i + 1, {"class", "struct"});
        while (source.is(name, "alignas") || source.is(name, "..."))
          name = source.is(name, "...") ? name + 1 : source[name + 1].mate + 1;
        while (source.is(name + 1, "::")) name += 2;
        if (source.is_word(name)) types.insert(source[name].text);
      } else if (source.is(i, "using") && source.is(i + 2, "=")) {
        types.insert(source[i + 1].text);
      } else if (source.is(i, "typedef")) {
        size_t end = i;
        while (end < source.size() && !source.is(end, ";")) end = source[end].mate < end ? end + 1 : source[end].mate + 1;
        if (source.is_word(end - 1)) types.insert(source[end - 1].text);
      }
    }
  }

  bool is_type(size_t i) const { return source.is_word(i) && (types.count(source[i].text) || is_vector(source[i].text)); }

  // The first token of the template-id whose > is at i, or i.
  size_t before_angles(size_t i) const {
    int depth = 0;
    for (size_t j = i + 1; j-- > 0;) {
      if (source.is_any(j, {")", "]", "}"})) j = source[j].mate;
      if (source.is_any(j, {";", "{", "}"})) return i;
      depth += source.is(j, ">") + 2 * source.is(j, ">>") - source.is(j, "<");
      if (depth == 0) return j > 0 && is_type(j - 1) ? j - 1 : i;
    }
    return i;
  }

  // Whether the tokens that end at i, read backwards, are a type; then whether it names an address space.
  bool ends_type(size_t i, bool &has_space) const {
    has_space = false;
    for (;; i--) {
      if (source.is_any(i, spaces))
        has_space = true;
      else if (!source.is_any(i, qualifiers))
        break;
      if (i == 0) return false;
    }
    if (declarators.count(i)) return true;
    size_t first = i;
    if (source.is(i, ">") || source.is(i, ">>")) first = before_angles(i);
    if (!is_type(first) && !(first > 1 && source.is(first - 1, "::") && dependent_type(first))) return false;
    for (size_t j = first; j-- > 0;) {
      if (source.is_any(j, spaces))
        has_space = true;
      else if (source.is(j, ">") && before_angles(j) != j && source.is(j + 1, "::"))
        j = before_angles(j);
      else if (!source.is_any(j, qualifiers) && !source.is_any(j, specifiers) && !source.is(j, "::") && !source.is(j + 1, "::") &&
               !is_type(j))
        break;
    }
    return true;
  }

  // `typename A::B` ends at i.
  bool dependent_type(size_t i) const {
    while (i > 1 && source.is(i - 1, "::")) {
      i -= 2;
      if (source.is(i, ">")) i = before_angles(i);
    }
    return i > 0 && source.is(i - 1, "typename");
  }

  void check_pointers() {
    for (size_t i = 1; i < source.size(); i++) {
      if (!source.is_any(i, {"*", "&", "&&"})) continue;
      bool has_space;
      if (!ends_type(i - 1, has_space)) continue;
      if (source.is(i - 1, "operator")) continue;
      declarators.insert(i);
      if (!has_space)
        throw source_error(source[i], std::string(source.is(i, "*") ? "pointer" : "reference") +
                                          " type must have explicit address space qualifier: '" + source.text(i - 1, i + 1) + "'");
    }
  }

  bool opens_lambda(size_t i) const {
    if (!source.is(i, "[") || opens_attribute(source, i) || source.is(i - 1, "[") ||
        source.is_any(i - 1, {"operator", "delete", ")", "]"}))
      return false;
    bool value_before = (source.is_word(i - 1) && !source.is_any(i - 1, {"return", "else"})) || source[i - 1].kind != token::mark;
    return !value_before && source.is_any(source[i].mate + 1, {"(", "{"});
  }

  // An address space where a name should be. Behind parameters it qualifies a member function.
  bool names_space(size_t i) const {
    return source.is_any(i, spaces) && !source.is_any(i - 1, {")", "const", "volatile", "["}) &&
           source.is_any(i + 1, {".", "->", ",", ";", ")", "]", "[", "=", "+", "-", "/", "%", "<", ">", "?", ":"});
  }

  void check_words() {
    for (size_t i = 0; i < source.size(); i++) {
      if (source[i].kind == token::word) {
        auto refused = refused_words.find(source[i].text);
        bool deleted = source.is(i, "delete") && i && source.is(i - 1, "=");
        if (refused != refused_words.end() && !deleted) throw source_error(source[i], refused->second);
        if (source.is(i, "long") && (source.is(i + 1, "long")))
          throw source_error(source[i], "'long long' is not supported in Metal");
      }
      if (i && names_space(i))
        throw source_error(source[i], "'" + std::string(source[i].text) + "' is an address space and names nothing else");
      if (i && opens_lambda(i)) throw source_error(source[i], "lambda expressions need Metal 3.2");
      if (i && source.is(i, "[") && source.is(i - 1, "auto")) throw source_error(source[i], "structured bindings need C++17");
    }
  }
};

} // namespace

void lint(const tokens &source) {
  linter l = {source, builtin_types, {}};
  l.check_words();
  l.collect_types();
  l.check_pointers();
}

} // namespace face
