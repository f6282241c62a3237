// SPDX-License-Identifier: MIT
// Tokens, and the declarations at namespace scope.
#include "source.h"

#include <cctype>
#include <cstdlib>
#include <mutex>

namespace face {

namespace {

bool word_start(char c) { return isalpha((unsigned char)c) || c == '_' || c == '$'; }
bool word_part(char c) { return word_start(c) || isdigit((unsigned char)c); }

// The length of the token that starts at text[at], which is no space.
size_t token_length(std::string_view text, size_t at, token::kinds &kind) {
  static const char *const marks[] = {"<<=", ">>=", "...", "->*", "::", "->", "++", "--", "<<", "<=", ">=", "==",
                                      "!=",  "&&",  "||",  "+=",  "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##"};
  size_t end = at + 1;
  char c = text[at];
  if (word_start(c)) {
    kind = token::word;
    while (end < text.size() && word_part(text[end])) end++;
  } else if (isdigit((unsigned char)c) || (c == '.' && end < text.size() && isdigit((unsigned char)text[end]))) {
    kind = token::number;
    auto exponent = [&](char last) { return last == 'e' || last == 'E' || last == 'p' || last == 'P'; };
    while (end < text.size() && (word_part(text[end]) || text[end] == '.' || text[end] == '\'' ||
                                 ((text[end] == '+' || text[end] == '-') && exponent(text[end - 1]))))
      end++;
  } else if (c == '"' || c == '\'') {
    kind = token::literal;
    while (end < text.size() && text[end] != c) end += text[end] == '\\' ? 2 : 1;
    end++;
  } else {
    kind = token::mark;
    for (const char *mark : marks)
      if (text.substr(at).substr(0, std::string_view(mark).size()) == mark) return std::string_view(mark).size();
  }
  return std::min(end, text.size()) - at;
}

// Of a preprocessor's line marker `# 12 "file" ...`: the line that follows it, or 0.
int marked_line(std::string_view line, std::string &file) {
  size_t digits = line.find_first_not_of("# ");
  size_t quote = line.find('"');
  if (digits == line.npos || !isdigit((unsigned char)line[digits]) || quote == line.npos) return 0;
  file = std::string(line.substr(quote + 1, line.find('"', quote + 1) - quote - 1));
  return atoi(std::string(line.substr(digits)).c_str());
}

void match_brackets(tokens &all) {
  std::vector<size_t> open;
  for (size_t i = 0; i < all.size(); i++) {
    all[i].mate = i;
    if (all[i].kind != token::mark) continue;
    static const std::string_view opening = "([{", closing = ")]}";
    char c = all[i].text[0];
    if (opening.find(c) != opening.npos) open.push_back(i);
    if (closing.find(c) == closing.npos) continue;
    if (open.empty() || opening.find(all[open.back()].text[0]) != closing.find(c))
      throw source_error(all[i], std::string("extraneous closing '") + c + "'");
    all[i].mate = open.back();
    all[open.back()].mate = i;
    open.pop_back();
  }
  if (!open.empty()) throw source_error(all[open.back()], "bracket without a closing one");
}

} // namespace

tokens tokenize(std::string_view text) {
  static std::set<std::string> files; // tokens point to these
  static std::mutex lock;
  std::lock_guard<std::mutex> hold(lock);
  tokens all;
  int line = 1;
  const std::string *current = &*files.insert(source_name).first;
  for (size_t at = 0; at < text.size();) {
    bool line_start = at == 0 || text[at - 1] == '\n';
    if (text[at] == '\n') line++;
    if (line_start && text.substr(at, text.find('\n', at) - at).find_first_not_of(" \t") != text.npos) {
      size_t first = at + text.substr(at).find_first_not_of(" \t");
      if (text[first] == '#') {
        size_t end = std::min(text.find('\n', at), text.size() - 1);
        std::string file;
        int marked = marked_line(text.substr(first, end - first), file);
        line = marked ? marked : line + 1;
        if (marked) current = &*files.insert(file).first;
        at = end + 1;
        continue;
      }
    }
    if (isspace((unsigned char)text[at])) {
      at++;
      continue;
    }
    token::kinds kind;
    size_t length = token_length(text, at, kind);
    all.push_back({kind, text.substr(at, length), at, line, current, 0});
    at += length;
  }
  match_brackets(all);
  return all;
}

std::set<std::string> headers_of(std::string_view text) {
  std::set<std::string> names;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string file;
    if (text[at] == '#' && marked_line(text.substr(at, end - at), file)) names.insert(file.substr(file.rfind('/') + 1));
    at = end + 1;
  }
  return names;
}

size_t tokens::behind_angles(size_t i) const {
  int depth = 0;
  for (; i < size(); i++) {
    if (is(i, "<")) depth++;
    if (is(i, ">")) depth--;
    if (is(i, ">>")) depth -= 2;
    if (is_any(i, {"(", "[", "{"})) i = (*this)[i].mate;
    if (depth <= 0) return i + 1;
  }
  return size();
}

std::string tokens::text(size_t begin, size_t end) const {
  std::string all;
  for (size_t i = begin; i < end; i++) all.append(i > begin ? 1 : 0, ' ').append((*this)[i].text);
  return all;
}

bool opens_attribute(const tokens &source, size_t i) {
  return source.is(i, "[") && source.is(i + 1, "[") && source[i + 1].mate + 1 == source[i].mate;
}

std::vector<std::pair<size_t, size_t>> split_at_commas(const tokens &source, size_t begin, size_t end) {
  std::vector<std::pair<size_t, size_t>> parts;
  size_t start = begin;
  int angles = 0;
  for (size_t i = begin; i < end; i++) {
    if (source.is_any(i, {"(", "[", "{"})) i = source[i].mate;
    angles += source.is(i, "<") - source.is(i, ">") - 2 * source.is(i, ">>");
    if (!source.is(i, ",") || angles) continue;
    parts.push_back({start, i});
    start = i + 1;
  }
  if (start < end) parts.push_back({start, end});
  return parts;
}

std::vector<attribute> attributes_at(const tokens &source, size_t i) {
  std::vector<attribute> all;
  for (auto [begin, end] : split_at_commas(source, i + 2, source[i + 1].mate)) {
    attribute a = {std::string(source[begin].text), end, end};
    size_t open = begin + 1;
    while (source.is(open, "::")) a.name += "::" + std::string(source[open + 1].text), open += 2;
    if (open < end && source.is(open, "(")) a.begin = open + 1, a.end = source[open].mate;
    all.push_back(a);
  }
  return all;
}

namespace {

struct declaration_parser {
  const tokens &source;
  std::vector<declaration> all;

  // A namespace or extern "C" block: its declarations, then the token behind it. Else i.
  size_t parse_block(size_t i, const std::string &scope) {
    size_t open = i + source.is(i, "inline") + 1;
    std::string inner = scope;
    if (source.is(open - 1, "namespace")) {
      for (; source.is_word(open) || source.is(open, "::"); open++)
        if (source.is_word(open)) inner += std::string(source[open].text) + "::";
    } else if (source.is(i, "extern") && source[open].kind == token::literal) {
      open++;
    } else {
      return i;
    }
    if (!source.is(open, "{")) return i;
    parse(open + 1, source[open].mate, inner);
    return source[open].mate + 1;
  }

  static bool is_type_key(std::string_view text) {
    return text == "struct" || text == "class" || text == "union" || text == "enum";
  }

  declaration parse_one(size_t begin, size_t limit, const std::string &scope) {
    declaration d;
    d.begin = begin, d.scope = scope;
    size_t i = begin;
    while (source.is(i, "template")) d.is_template = true, i = source.behind_angles(i + 1);
    bool type = false, assigned = false;
    for (; i < limit && !source.is(i, ";"); i++) {
      if (opens_attribute(source, i)) {
        for (const attribute &a : attributes_at(source, i)) d.is_kernel |= a.name == "kernel";
        i = source[i].mate;
      } else if (source.is(i, "kernel")) {
        d.is_kernel = true;
      } else if (is_type_key(source[i].text) && !d.open && !assigned && !type) {
        type = true;
        size_t name = i + 1 + source.is_any(i + 1, {"class", "struct"});
        while (source.is(name, "alignas") || opens_attribute(source, name))
          name = source[name + source.is(name, "alignas")].mate + 1;
        if (source.is_word(name)) d.name = source[name].text;
      } else if (source.is(i, "=")) {
        assigned = true;
      } else if (source.is_any(i, {"alignas", "decltype", "__attribute__", "static_assert", "noexcept"}) && source.is(i + 1, "(")) {
        i = source[i + 1].mate;
      } else if (source.is(i, "(")) {
        if (!assigned && !type && !d.open && source.is_word(i - 1)) d.open = i, d.name = source[i - 1].text;
        i = source[i].mate;
      } else if (source.is(i, "[")) {
        if (!d.open && !assigned && d.name.empty() && source.is_word(i - 1)) d.name = source[i - 1].text;
        i = source[i].mate;
      } else if (source.is(i, "{")) {
        bool body = !assigned && (d.open || source.is(i - 1, ")"));
        if (body || type) d.body = i;
        i = source[i].mate;
        if (body) break;
      } else if (source.is_word(i) && !type && !d.open && !assigned) {
        d.name = source[i].text;
      }
    }
    d.end = std::min(i + 1, limit);
    d.kind = type && !d.open ? declaration::type : d.open || d.body ? declaration::function : declaration::variable;
    if (source.is_any(begin, {"using", "typedef", "static_assert", ";"})) d.kind = declaration::other;
    if (source.is(begin, "using") && source.is(begin + 2, "=")) d.name = source[begin + 1].text;
    return d;
  }

  void parse(size_t begin, size_t end, const std::string &scope) {
    for (size_t i = begin; i < end;) {
      size_t behind = parse_block(i, scope);
      if (behind == i) {
        all.push_back(parse_one(i, end, scope));
        behind = all.back().end;
      }
      i = behind;
    }
  }
};

} // namespace

std::vector<declaration> declarations_of(const tokens &source) {
  declaration_parser parser = {source, {}};
  parser.parse(0, source.size(), "");
  return parser.all;
}

} // namespace face
