/* SPDX-License-Identifier: MIT */
/* Every source of kernels/refused.txt is refused for its reason; kernels/accepted.metal, which Metal takes, is taken. */
#include "testing.h"

static const char includes[] = "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n";

/* The text between two separators, without spaces around it. */
static void copy(char *to, size_t size, const char *begin, const char *end) {
  while (*begin == ' ') begin++;
  while (end > begin && end[-1] == ' ') end--;
  snprintf(to, size, "%.*s", (int)(end - begin), begin);
}

/* Tests the source whose head begins at entry; returns the next entry, or NULL. */
static const char *test_refused(const char *entry) {
  char rule[40], what[200], message[200];
  static char source[1 << 14];
  const char *first = strchr(entry, '|'), *second = strchr(first + 1, '|'), *line = strchr(second, '\n');
  copy(rule, sizeof rule, entry + 4, first), copy(what, sizeof what, first + 1, second),
      copy(message, sizeof message, second + 1, line);
  const char *next = strstr(line, "\n==== ");
  size_t length = next ? (size_t)(next - line) : strlen(line);
  snprintf(source, sizeof source, "%s%.*s\n", strncmp(what, "alone", 5) ? includes : "", (int)length, line);
  char *error = NULL;
  face_library *library = face_library_new(source, strlen(source), 300, &error);
  CHECK(!library, "%s, %s: accepted", rule, what);
  if (!library) CHECK(error_has(error, message), "%s, %s: not for its reason, which is: %s", rule, what, message);
  face_library_free(library);
  return next ? next + 1 : NULL;
}

static void test_accepted(void) {
  size_t length;
  char *text = read_file("accepted.metal", &length), *error = NULL;
  face_library *library = face_library_new(text, length, 300, &error);
  CHECK(library && face_library_kernel_count(library) == 5, "%s", error);
  free(error), free(text);
  face_library_free(library);
}

/* The bytes end where the caller says, not at a NUL; line numbers are those of the source, and of its own #line. */
static void test_places(void) {
  char *error = NULL;
  static const char cut[] = "#include <metal_stdlib>\nkernel void k(device float *p [[buffer(0)]]) { p[0] = 1; }\n!!!";
  face_library *library = face_library_new(cut, sizeof cut - 4, 300, &error);
  CHECK(library, "%s", error);
  face_library_free(library);
  CHECK(!face_library_new(cut, sizeof cut - 1, 300, &error) && error_has(error, "program_source:3:1: error"), "the third line");
  static const char named[] = "#include <metal_stdlib>\n#line 70 \"mine.metal\"\n\ninline float f(float x) { return y; }\n";
  CHECK(!face_library_new(named, sizeof named - 1, 300, &error) && error_has(error, "mine.metal:71:34: error"),
        "a line of mine.metal");
  CHECK(!face_library_new(cut, sizeof cut - 4, 240, &error) && error_has(error, "unknown version"), "version 240");
}

int main(void) {
  size_t length;
  char *text = read_file("refused.txt", &length);
  int count = 0;
  for (const char *entry = strstr(text, "\n==== ") + 1; entry; count++) entry = test_refused(entry);
  free(text);
  test_accepted();
  test_places();
  printf("%d sources refused, %d failures\n", count, failures);
  return failures != 0 || count < 100;
}
