// SPDX-License-Identifier: MIT
// A Metal source after the preprocessor, as tokens, and what the steps before the compiler make of it.
#pragma once

#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace face {

inline constexpr const char *source_name = "program_source"; // in messages, as Apple's compiler calls it

struct token {
  enum kinds { word, number, literal, mark } kind;
  std::string_view text;
  size_t at; // in the text
  int line;  // in the file, which #line may have named
  const std::string *file;
  size_t mate; // of a bracket (){}[]: the other one; else itself
};

// What the compiler would say, with its place.
struct source_error : std::runtime_error {
  source_error(const token &at, const std::string &text)
      : std::runtime_error(*at.file + ":" + std::to_string(at.line) + ":1: error: " + text + "\n") {}
};

struct tokens : std::vector<token> {
  bool is(size_t i, std::string_view text) const { return i < size() && (*this)[i].text == text; }
  bool is_word(size_t i) const { return i < size() && (*this)[i].kind == token::word; }
  bool is_any(size_t i, const std::set<std::string_view> &texts) const { return i < size() && texts.count((*this)[i].text); }
  // The first token behind template arguments or parameters that open at i.
  size_t behind_angles(size_t i) const;
  std::string text(size_t begin, size_t end) const; // joined by spaces
};

tokens tokenize(std::string_view text);
std::set<std::string> headers_of(std::string_view text); // that the preprocessor entered

// Throws source_error for what Metal refuses and clang would take (see lint.cpp).
void lint(const tokens &source);

struct attribute {
  std::string name;
  size_t begin, end; // the tokens of its argument; empty without
};

struct parameter {
  std::string name, type;
  std::vector<attribute> attributes;
  const token &at;
};

// A function, class, variable or alias at namespace scope.
struct declaration {
  enum kinds { function, type, variable, other } kind = other;
  size_t begin, end;         // tokens; end is behind the closing ; or }
  size_t open = 0, body = 0; // of a function: ( of its parameters, { of its body. Of a type: body
  std::string name, scope;   // scope: "" or "a::b::"
  bool is_template = false, is_kernel = false;
};

std::vector<declaration> declarations_of(const tokens &source);
std::vector<attribute> attributes_at(const tokens &source, size_t i); // of the [[...]] that opens at i
bool opens_attribute(const tokens &source, size_t i);
std::vector<std::pair<size_t, size_t>> split_at_commas(const tokens &source, size_t begin, size_t end);

struct kernel_argument {
  std::string name, type, condition; // condition: a function constant that switches it on, or ""
  bool threadgroup;
  unsigned index;
};

struct function_constant {
  std::string name, type;
  unsigned index;
  bool asked = false; // by is_function_constant_defined
};

struct kernel {
  std::string name;
  std::vector<kernel_argument> arguments;
  std::set<std::string> constants; // names of those that it or what it calls reads
};

struct translation {
  std::string text; // for clang's OpenCL C++ mode; its lines are those of the preprocessed source, then the entry points
  std::vector<kernel> kernels;
  std::map<std::string, function_constant> constants;
};

translation translate(std::string_view preprocessed);

} // namespace face
