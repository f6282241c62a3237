// SPDX-License-Identifier: MIT
// From Metal's text to clang's OpenCL C++ mode: small edits that keep every line where it is, and entry points behind the last one.
#include "source.h"

#include <algorithm>
#include <cstdlib>

namespace face {

namespace {

using words = std::set<std::string_view>;

const words spaces = {"device", "constant", "threadgroup", "thread"};

// The attributes of kernel parameters that are filled in, with the types that they may have.
const words position_types = {"ushort", "ushort2", "ushort3", "uint", "uint2", "uint3"};
const words index_types = {"ushort", "uint"};
const std::map<std::string, const words *> inputs = {
    {"thread_position_in_grid", &position_types},          {"threads_per_grid", &position_types},
    {"thread_position_in_threadgroup", &position_types},   {"threads_per_threadgroup", &position_types},
    {"threadgroup_position_in_grid", &position_types},     {"threadgroups_per_grid", &position_types},
    {"dispatch_threads_per_threadgroup", &position_types}, {"thread_index_in_threadgroup", &index_types},
    {"thread_index_in_simdgroup", &index_types},           {"simdgroup_index_in_threadgroup", &index_types},
    {"simdgroups_per_threadgroup", &index_types},          {"threads_per_simdgroup", &index_types},
};
// Those that must have one type if a kernel has both.
const std::pair<const char *, const char *> pairs[] = {
    {"thread_position_in_grid", "threads_per_grid"},
    {"thread_position_in_threadgroup", "threads_per_threadgroup"},
    {"threadgroup_position_in_grid", "threadgroups_per_grid"},
};
const words other_attributes = {"buffer", "threadgroup",  "function_constant", "kernel",      "max_total_threads_per_threadgroup",
                                "unroll", "maybe_unused", "nodiscard",         "fallthrough", "clang::unroll"};
const words constant_types = {"bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float"};

// Names that need a header of their own.
const std::map<std::string_view, const char *> header_of = {
    {"simdgroup_matrix", "metal_simdgroup_matrix"},
    {"simdgroup_half8x8", "metal_simdgroup_matrix"},
    {"simdgroup_float8x8", "metal_simdgroup_matrix"},
    {"simdgroup_load", "metal_simdgroup_matrix"},
    {"simdgroup_store", "metal_simdgroup_matrix"},
    {"simdgroup_multiply_accumulate", "metal_simdgroup_matrix"},
    {"metal", "metal_stdlib"},
};

struct translator {
  std::string_view text;
  tokens source;
  std::vector<declaration> declarations;
  std::map<size_t, std::pair<size_t, std::string>> edits; // from, to, what stands there instead
  std::string entries;
  translation result;
  std::set<std::string> conditions; // the constants that switch arguments on
  int threadgroup_variables = 0;

  explicit translator(std::string_view t) : text(t), source(tokenize(t)) {}

  [[noreturn]] void fail(size_t i, const std::string &message) const { throw source_error(source[i], message); }

  size_t end_of(size_t i) const { return source[i].at + source[i].text.size(); }

  // Replaces the tokens [begin, end), keeping the line breaks between them.
  void replace(size_t begin, size_t end, std::string with) {
    size_t from = source[begin].at, to = end_of(end - 1);
    with.append(std::count(text.begin() + from, text.begin() + to, '\n'), '\n');
    edits[from] = {to, with};
  }

  void insert_before(size_t i, const std::string &what) { edits[source[i].at] = {source[i].at, what}; }

  // Unrolled loops are the same loops, and cost twice the time to compile.
  static void drop_unrolling(std::string &all) {
    const std::string pragma = "#pragma clang loop unroll";
    for (size_t at = 0; (at = all.find(pragma, at)) != all.npos;)
      all.replace(at, std::min(all.find('\n', at), all.size()) - at, "");
  }

  std::string edited() const {
    std::string all;
    size_t at = 0;
    for (const auto &[from, edit] : edits) {
      all += text.substr(at, from - at);
      all += edit.second;
      at = edit.first;
    }
    all += text.substr(at);
    drop_unrolling(all);
    return all;
  }

  void check_headers() const {
    std::set<std::string> entered = headers_of(text);
    for (size_t i = 0; i < source.size(); i++) {
      auto need = source[i].kind == token::word ? header_of.find(source[i].text) : header_of.end();
      bool own = i && source.is(i - 1, "namespace") && source.is(i + 1, "{"); // the headers themselves
      if (need != header_of.end() && !own && !entered.count(need->second))
        fail(i, "'" + std::string(source[i].text) + "' needs #include <" + need->second + ">");
    }
  }

  // ---- function constants ----

  void find_constants() {
    for (const declaration &d : declarations) {
      if (d.kind != declaration::variable) continue;
      size_t attribute_at = d.begin;
      while (attribute_at < d.end && !opens_attribute(source, attribute_at)) attribute_at++;
      if (attribute_at == d.end) continue;
      for (const attribute &a : attributes_at(source, attribute_at))
        if (a.name == "function_constant") add_constant(d, attribute_at, a);
    }
    for (size_t i = 0; i + 2 < source.size(); i++)
      if (source.is(i, "is_function_constant_defined") && source.is(i + 1, "(")) ask_constant(i);
  }

  void add_constant(const declaration &d, size_t attribute_at, const attribute &a) {
    if (!source.is(d.begin, "constant") || attribute_at != d.begin + 3)
      fail(d.begin, "a function constant is declared as `constant type name [[function_constant(index)]];`");
    std::string type(source[d.begin + 1].text), name(source[d.begin + 2].text), index = source.text(a.begin, a.end);
    if (!constant_types.count(type)) fail(d.begin, "function constant '" + name + "' has type '" + type + "', which is no scalar");
    for (const auto &[other, constant] : result.constants)
      if (other == name || std::to_string(constant.index) == index)
        fail(d.begin, "function constant '" + name + "' is declared twice");
    result.constants[name] = {name, type, unsigned(atoi(index.c_str()))};
    replace(attribute_at, source[attribute_at].mate + 1,
            "= face::function_constant<" + type + ">(" + index + "), face_defined_" + name + " = " + type +
                "(face::constant_defined(" + index + "))");
  }

  void ask_constant(size_t i) {
    auto constant = result.constants.find(std::string(source[i + 2].text));
    if (constant == result.constants.end()) fail(i, "'" + std::string(source[i + 2].text) + "' is no function constant");
    constant->second.asked = true;
    replace(i, source[i + 1].mate + 1, "bool(face_defined_" + constant->first + ")");
  }

  // ---- variables at program scope ----

  bool depends_on_constants(const declaration &d, const std::set<std::string> &dynamic) const {
    for (size_t i = d.begin; i < d.end; i++)
      if (source[i].kind == token::word && dynamic.count(std::string(source[i].text))) return true;
    return false;
  }

  // All but those made of function constants must have values that the compiler knows.
  void check_variables() {
    std::set<std::string> dynamic;
    for (const auto &[name, constant] : result.constants) dynamic.insert(name);
    for (const declaration &d : declarations) {
      if (d.kind != declaration::variable || source.is(d.begin, "template")) continue;
      if (depends_on_constants(d, dynamic))
        dynamic.insert(d.name);
      else if (source.is_any(d.begin, spaces) || source.is_any(d.begin, {"static", "constexpr", "const"}))
        insert_before(d.begin, "[[clang::require_constant_initialization]] ");
    }
  }

  // ---- attributes, literals ----

  void check_attributes() const {
    for (size_t i = 0; i < source.size(); i++) {
      if (!opens_attribute(source, i)) continue;
      for (const attribute &a : attributes_at(source, i)) {
        if (!inputs.count(a.name) && !other_attributes.count(a.name)) fail(i, "unknown attribute '" + a.name + "'");
        if ((a.name == "buffer" || a.name == "threadgroup" || a.name == "function_constant") && a.begin == a.end)
          fail(i, "'" + a.name + "' attribute takes one argument");
      }
    }
  }

  void strip_attributes() {
    for (size_t i = 0; i < source.size(); i++)
      if (opens_attribute(source, i) && !edits.count(source[i].at)) replace(i, source[i].mate + 1, " ");
  }

  void translate_literals() {
    for (size_t i = 0; i < source.size(); i++) {
      if (source[i].kind != token::number) continue;
      std::string_view number = source[i].text;
      bool hexadecimal = number.substr(0, 2) == "0x" || number.substr(0, 2) == "0X";
      bool is_half = (number.back() == 'h' || number.back() == 'H') && (!hexadecimal || number.find_first_of("pP") != number.npos);
      bool is_bfloat = number.size() > 2 &&
                       (number.substr(number.size() - 2) == "bf" || number.substr(number.size() - 2) == "BF") && !hexadecimal;
      std::string digits(number.substr(0, number.size() - (is_bfloat ? 2 : 1)));
      if (digits.find_first_of(".pP") == digits.npos && !hexadecimal) digits += ".0";
      if (is_half) replace(i, i + 1, digits + "f16");
      if (is_bfloat) replace(i, i + 1, "bfloat(" + digits + "f)");
    }
  }

  // ---- vectors ----

  // float4(...) and vec<T, n>(...) become face::make<...>(...), since clang's vectors are built from one value only.
  void translate_vectors() {
    for (size_t i = 0; i + 1 < source.size(); i++) {
      if (!source.is_word(i) || (i && source.is(i - 1, "operator"))) continue;
      size_t behind = source.is(i, "vec") && source.is(i + 1, "<") ? source.behind_angles(i + 1)
                      : is_vector(source[i].text)                  ? i + 1
                                                                   : 0;
      if (behind && source.is_word(behind) && source.is(behind + 1, "(")) initialize_vector(i, behind);
      if (!behind || !source.is(behind, "(")) continue;
      size_t begin = i;
      if (i > 1 && source.is(i - 1, "::")) begin = i - 2; // metal::
      insert_before(begin, "face::make<");
      edits[end_of(behind - 1)] = {end_of(behind - 1), ">"};
    }
  }

  // int2 v(a, b); becomes int2 v = face::make<int2>(a, b);. A function's declaration is another thing: its parameters have types.
  void initialize_vector(size_t type, size_t name) {
    size_t open = name + 1, close = source[open].mate;
    auto values = split_at_commas(source, open + 1, close);
    if (values.size() < 2 || !source.is_any(close + 1, {";", ","})) return;
    for (auto [begin, end] : values)
      for (size_t i = begin; i + 1 < end; i++)
        if (source.is_word(i) && source.is_word(i + 1)) return;
    insert_before(open, " = face::make<" + source.text(type, name) + ">");
  }

  // Clang puts temporaries into no address space, so they don't bind to `thread const int &`. For a scalar the word says nothing.
  void loosen_scalar_references() {
    for (size_t i = 0; i + 3 < source.size(); i++) {
      bool first = source.is(i, "thread") && source.is(i + 1, "const"),
           second = source.is(i, "const") && source.is(i + 1, "thread");
      if ((first || second) && constant_types.count(source[i + 2].text) && source.is(i + 3, "&"))
        replace(i + second, i + second + 1, "      ");
    }
  }

  static bool is_vector(std::string_view word) {
    static const words elements = {"char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float"};
    return word.size() > 1 && word.back() >= '2' && word.back() <= '4' && elements.count(word.substr(0, word.size() - 1));
  }

  // ---- classes: members run on thread objects unless they say otherwise ----

  struct member {
    std::string name;
    size_t begin, end; // tokens
    size_t close = 0;  // the ) of its parameters; 0: no member function, or one that has no object
    bool constructor = false;
  };

  void qualify_classes() {
    for (size_t i = 0; i + 1 < source.size(); i++) {
      if (!source.is_any(i, {"struct", "class", "union"}) || source.is(i - 1, "enum")) continue;
      size_t name = i + 1, open;
      while (source.is(name, "alignas")) name = source[name + 1].mate + 1;
      if (!source.is_word(name) && !source.is(name, "{")) continue;
      for (open = name; open < source.size() && !source.is_any(open, {"{", ";", "(", ")", "=", ">"}); open++)
        if (source.is(open, "<")) open = source.behind_angles(open) - 1;
      if (source.is(open, "{")) qualify_members(source[name].text, open);
    }
  }

  // Clang's constructors run in the generic space, so what they call has to run there, too.
  void qualify_members(std::string_view name, size_t open) {
    std::vector<member> members;
    for (size_t i = open + 1; i < source[open].mate; i = members.back().end)
      members.push_back(read_member(name, i, source[open].mate));
    std::set<std::string_view> called;
    for (const member &m : members)
      if (m.constructor) add_words(m, called);
    for (bool more = true; more;) {
      size_t before = called.size();
      for (const member &m : members)
        if (m.close && called.count(m.name)) add_words(m, called);
      more = called.size() > before;
    }
    for (const member &m : members)
      if (m.close) qualify(m, m.constructor || called.count(m.name));
  }

  void add_words(const member &m, std::set<std::string_view> &words) const {
    for (size_t i = m.close; i < m.end; i++)
      if (source.is_word(i)) words.insert(source[i].text);
  }

  member read_member(std::string_view name, size_t i, size_t end) const {
    member m = {"", i, end};
    bool no_object = false, seen = false;
    while (source.is(i, "template")) i = source.behind_angles(i + 1);
    for (; i < end && !source.is(i, ";"); i++) {
      if (opens_attribute(source, i)) {
        i = source[i].mate;
      } else if (source.is_any(i, {"static", "friend", "using", "typedef", "static_assert", "enum", "="})) {
        no_object = true;
      } else if (source.is_any(i, {"alignas", "decltype", "__attribute__", "noexcept"}) && source.is(i + 1, "(")) {
        i = source[i + 1].mate;
      } else if (source.is(i, "(")) {
        if (source.is(i - 1, "operator")) i = source[i].mate + 1; // operator()
        if (!seen && !no_object) m.name = source[i - 1].text, m.close = source[i].mate, m.constructor = source.is(i - 1, name);
        seen = true;
        i = source[i].mate;
      } else if (source.is(i, "{")) {
        i = source[i].mate;
        if (seen && !source.is_any(i + 1, {",", "{"})) break;
      }
    }
    m.end = std::min(i + 1 + source.is(i + 1, ";"), end);
    return m;
  }

  void qualify(const member &m, bool generic) {
    size_t i = m.close + 1;
    while (source.is_any(i, {"const", "volatile"})) i++;
    if (generic && source.is(i, "thread")) replace(i, i + 1, "      ");
    if (!generic && source.is_any(i, {"{", ";", "noexcept", "->"})) edits[end_of(i - 1)] = {end_of(i - 1), " thread"};
  }

  // ---- kernels ----

  void translate_kernels() {
    std::set<std::string> names;
    for (const declaration &d : declarations) {
      if (!d.is_kernel) continue;
      size_t head = d.begin;
      for (; head < d.open; head++)
        if (opens_attribute(source, head))
          head = source[head].mate;
        else if (source.is(head, "kernel"))
          replace(head, head + 1, " ");
      if (d.kind != declaration::function) fail(d.begin, "'kernel' belongs to functions");
      if (!d.body) continue;
      bool entry = !d.is_template;
      if (entry && !source.is(d.open - 2, "void")) fail(d.begin, "kernel '" + d.name + "' must return void");
      if (entry && !names.insert(d.name).second)
        fail(d.begin, "kernel '" + d.name + "' is defined twice; kernels cannot be overloaded");
      translate_threadgroup_variables(d, entry ? int(result.kernels.size()) : -1);
      if (entry) add_kernel(d);
    }
  }

  void translate_threadgroup_variables(const declaration &d, int kernel) {
    for (size_t i = d.body; i < source[d.body].mate; i++) {
      if (!source.is(i, "threadgroup") || !source.is_any(i - 1, {";", "{", "}"})) continue;
      size_t end = i;
      while (!source.is_any(end, {";", "*", "&", "=", "("})) end = source[end].mate + 1; // over [dimensions]
      if (source.is(end, "(") && source.is(end - 1, "alignas"))
        fail(i, "threadgroup variables are aligned to 16 bytes; drop alignas");
      if (source.is(end, ";")) translate_threadgroup_variable(i, end, kernel);
    }
  }

  void translate_threadgroup_variable(size_t begin, size_t end, int kernel) {
    auto parts = split_at_commas(source, begin, end);
    std::string type, all;
    for (size_t part = 0; part < parts.size(); part++) {
      auto [from, to] = parts[part];
      size_t dimensions = to;
      while (source.is(dimensions - 1, "]")) dimensions = source[dimensions - 1].mate;
      if (!part) type = source.text(from + 1, dimensions - 1);
      std::string array = source.text(dimensions, to), name(source[dimensions - 1].text);
      all += "threadgroup " + type + " (&" + name + ")" + array + " = face::threadgroup_variable<" + std::to_string(kernel) + ", " +
             std::to_string(threadgroup_variables++) + ", " + type + " " + array + ">();";
    }
    replace(begin, end + 1, all);
  }

  parameter read_parameter(size_t begin, size_t end) const {
    parameter p = {"", "", {}, source[begin]};
    std::vector<size_t> rest;
    for (size_t i = begin; i < end; i++) {
      if (opens_attribute(source, i)) {
        for (attribute &a : attributes_at(source, i)) p.attributes.push_back(a);
        i = source[i].mate;
      } else {
        rest.push_back(i);
      }
    }
    if (rest.size() < 2 || !source.is_word(rest.back())) fail(begin, "a kernel's parameter needs a type and a name");
    p.name = source[rest.back()].text;
    p.type = source.text(rest.front(), rest.back());
    return p;
  }

  void add_kernel(const declaration &d) {
    kernel k = {d.name, {}, {}};
    std::string call, layout;
    std::map<std::string, std::string> types; // of inputs
    std::set<std::pair<bool, unsigned>> taken;
    for (auto [begin, end] : split_at_commas(source, d.open + 1, source[d.open].mate)) {
      parameter p = read_parameter(begin, end);
      call += call.empty() ? "" : ", ";
      if (std::string input = input_of(p); !input.empty()) {
        types[input] = p.type;
        call += "face::" + input + "<" + p.type + ">()";
        continue;
      }
      k.arguments.push_back(argument_of(p));
      const kernel_argument &a = k.arguments.back();
      if (!taken.insert({a.threadgroup, a.index}).second)
        throw source_error(p.at, "two parameters of kernel '" + k.name + "' have one index");
      call += "face::argument<" + a.type + ">::make(face::group()." + (a.threadgroup ? "threadgroups[" : "buffers[") +
              std::to_string(a.index) + "])";
      std::string value = "face::argument<" + a.type + ">::value";
      layout += "sizeof(" + value + "), alignof(" + value + "), __is_const(" + value + "), ";
    }
    for (const kernel_argument &a : k.arguments)
      if (!a.condition.empty() && conditions.insert(a.condition).second)
        entries += "extern \"C\" bool face_condition_" + a.condition + "() { return bool(" + a.condition + "); }\n";
    for (auto [a, b] : pairs)
      if (types.count(a) && types.count(b) && types[a] != types[b])
        fail(d.begin, std::string("'") + a + "' and '" + b + "' must have one type");
    entries +=
        "extern \"C\" void face_entry_" + k.name + "() { using namespace metal; ::" + d.scope + k.name + "(" + call + "); }\n";
    entries += "extern \"C\" { extern constant ulong face_layout_" + k.name + "[] = {" + layout + max_threads_of(d) + "}; }\n";
    result.kernels.push_back(k);
  }

  std::string max_threads_of(const declaration &d) const {
    for (size_t i = d.begin; i < d.open; i++) {
      if (!opens_attribute(source, i)) continue;
      for (const attribute &a : attributes_at(source, i))
        if (a.name == "max_total_threads_per_threadgroup") return source.text(a.begin, a.end);
    }
    return "0";
  }

  std::string input_of(const parameter &p) const {
    for (const attribute &a : p.attributes) {
      auto input = inputs.find(a.name);
      if (input == inputs.end()) continue;
      if (!input->second->count(p.type)) throw source_error(p.at, "'" + a.name + "' cannot have type '" + p.type + "'");
      return a.name;
    }
    return "";
  }

  kernel_argument argument_of(const parameter &p) const {
    kernel_argument argument = {p.name, p.type, "", false, 0};
    bool bound = false;
    for (const attribute &a : p.attributes) {
      std::string value = source.text(a.begin, a.end);
      if (a.name == "function_constant") {
        argument.condition = value;
        continue;
      }
      if (a.name != "buffer" && a.name != "threadgroup")
        throw source_error(p.at, "'" + a.name + "' is no attribute of a parameter");
      bound = true;
      argument.threadgroup = a.name == "threadgroup";
      argument.index = atoi(value.c_str());
      if (value.find_first_not_of("0123456789") != value.npos || argument.index > 30)
        throw source_error(p.at, "'" + a.name + "' attribute parameter is out of bounds: must be between 0 and 30");
    }
    if (!bound) throw source_error(p.at, "parameter '" + p.name + "' has no attribute that says what it is");
    check_argument_type(p, argument.threadgroup);
    return argument;
  }

  // Device and constant pointers or references are buffers, threadgroup pointers are threadgroup arguments.
  void check_argument_type(const parameter &p, bool threadgroup) const {
    words parts;
    tokens type = tokenize(p.type);
    for (const token &t : type) parts.insert(t.text);
    bool pointer = parts.count("*") || parts.count("&");
    bool space = threadgroup ? parts.count("threadgroup") : parts.count("device") || parts.count("constant");
    if (!pointer || !space)
      throw source_error(p.at, std::string("parameter '") + p.name + "' must be a pointer or reference in " +
                                   (threadgroup ? "threadgroup" : "device or constant") + " address space");
  }

  // ---- which constants a kernel reads ----

  // By names alone, so it may find a constant too many, never one too few. A function counts where its name looks like a call.
  void find_reads() {
    using names = std::set<std::pair<std::string, bool>>; // and whether it looks like a call
    std::map<std::string, names> words_of[2];             // of functions; of all else
    for (const declaration &d : declarations)
      for (size_t i = d.begin; i < d.end; i++)
        if (source[i].kind == token::word)
          words_of[d.kind != declaration::function][d.name].insert({std::string(source[i].text), source.is_any(i + 1, {"(", "<"})});
    for (kernel &k : result.kernels) {
      names seen;
      std::vector<std::pair<std::string, bool>> next = {{k.name, true}};
      while (!next.empty()) {
        auto [name, call] = next.back();
        next.pop_back();
        if (!seen.insert({name, call}).second) continue;
        if (result.constants.count(name)) k.constants.insert(name);
        for (int other = !call; other < 2; other++)
          if (auto found = words_of[other].find(name); found != words_of[other].end())
            next.insert(next.end(), found->second.begin(), found->second.end());
      }
    }
  }

  translation run() {
    lint(source);
    check_headers();
    check_attributes();
    declarations = declarations_of(source);
    find_constants();
    translate_kernels();
    check_variables();
    qualify_classes();
    translate_literals();
    translate_vectors();
    loosen_scalar_references();
    strip_attributes();
    find_reads();
    result.text = edited() + "\n# 1 \"entry points\"\n" + entries;
    return std::move(result);
  }
};

} // namespace

translation translate(std::string_view preprocessed) { return translator(preprocessed).run(); }

} // namespace face
