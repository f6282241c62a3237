# SPDX-License-Identifier: MIT
"""Small faults for the kernels' one self-contained text, of the kinds that kernels have.

The text is that of metal/embed.py, laid out by clang-format: an operator of comparison has blanks around it and a
template's bracket hasn't.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

# A place and what stands there instead.
Change = tuple[int, int, str]


@dataclass(frozen=True)
class Mutant:
    """One fault: at one place of the text other words stand."""

    kind: str
    file: str
    line: int
    within: str  # the struct or function around it
    before: str  # the line
    after: str
    start: int  # in the text
    end: int
    words: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def applied(self, text: str) -> str:
        return text[: self.start] + self.words + text[self.end :]


# ---- The text ------------------------------------------------------------------------------------
def without_comments(text: str) -> str:
    """Blanks for every comment, string and line of the preprocessor but macros' bodies; the same length and lines."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    text = re.sub(r'/\*.*?\*/|//[^\n]*|"[^"\n]*"', blank, text, flags=re.DOTALL)
    return re.sub(
        r"^[ \t]*#(?!define)[^\n]*|^[ \t]*#define \w+(\([^)]*\))?|static_assert[^\n]*", blank, text, flags=re.MULTILINE
    )


@dataclass(frozen=True)
class Line:
    """A line of the text: where it begins, where it is from, and what it is in."""

    start: int
    file: str
    number: int
    within: str


LINE_DIRECTIVE = re.compile(r'#line (\d+) "(.+)"')

# The name that a line at the left margin declares.
NAME = re.compile(r"^(?:#define |(?:template <.*> )?(?:\[\[.*\]\] )?(?:[\w:&*<> ]+ )?)(\w+)(?=[\s({:]|$)")


def lines_of(text: str) -> list[Line]:
    lines: list[Line] = []
    start, file, number, within = 0, "", 0, ""
    for content in text.splitlines(keepends=True):
        if directive := LINE_DIRECTIVE.match(content):
            number, file = int(directive[1]) - 1, directive[2]
        elif content[0] not in " \n/*}" and (named := NAME.search(content)):
            within = named[1]
        lines.append(Line(start, file, number, within))
        start, number = start + len(content), number + 1
    return lines


# ---- Kinds of faults -----------------------------------------------------------------------------
def replaced(pattern: str, *words: str) -> Callable[[str], Iterator[Change]]:
    """Each match of the pattern, by each of the words in turn."""
    return partial(replacements, re.compile(pattern), words)


def replacements(pattern: re.Pattern[str], words: tuple[str, ...], code: str) -> Iterator[Change]:
    for match in pattern.finditer(code):
        for word in words:
            yield match.start(), match.end(), match.expand(word)


def closing(code: str, start: int) -> int:
    """Where the bracket that opens at start closes."""
    depth = 0
    for i in range(start, len(code)):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth == 0:
            return i
    raise ValueError(f"no bracket closes the one at {start}")


def split_at_commas(code: str, start: int, end: int) -> list[tuple[int, int]]:
    """The spans between commas that are in no further bracket."""
    spans, depth, last = [], 0, start
    for i in range(start, end):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if code[i] == "," and depth == 0:
            spans.append((last, i))
            last = i + 1
    return [*spans, (last, end)]


def without_clamp(code: str) -> Iterator[Change]:
    """`min` and `max` give way to each of their arguments."""
    for match in re.finditer(r"\b(?:min|max)\(", code):
        end = closing(code, match.end() - 1)
        for first, last in split_at_commas(code, match.end(), end):
            yield match.start(), end + 1, f"({code[first:last].strip()})"


def without_choice(code: str) -> Iterator[Change]:
    """`a ? b : c` gives way to b and to c."""
    for match in re.finditer(r" \? ", code):
        start, end = choice_start(code, match.start()), choice_end(code, match.end())
        colon = choice_colon(code, match.end(), end)
        yield start, end, f"({code[match.end() : colon].strip()})"
        yield start, end, f"({code[colon + 1 : end].strip()})"


def choice_start(code: str, at: int) -> int:
    """Where the condition that ends there begins: behind an open bracket, a comma, an assignment, a return, a colon."""
    depth = 0
    for i in range(at - 1, -1, -1):
        depth += (code[i] in ")]}") - (code[i] in "([{")
        before = code[max(i - 7, 0) : i + 1]
        if depth < 0 or (depth == 0 and (code[i] in ",;" or re.search(r"[^=<>!]= $|return $| [:?] $", before))):
            return i + 1
    raise ValueError(f"nothing begins the choice at {at}")


def choice_end(code: str, at: int) -> int:
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth < 0 or (depth == 0 and code[i] in ",;"):
            return i
    raise ValueError(f"nothing ends the choice at {at}")


def choice_colon(code: str, at: int, end: int) -> int:
    """The colon of the choice whose mark is before at; those of choices inside are passed over."""
    depth = inner = 0
    for i in range(at, end):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth == 0 and code[i - 1 : i + 2] == " ? ":
            inner += 1
        if depth == 0 and code[i - 1 : i + 2] == " : ":
            if not inner:
                return i
            inner -= 1
    raise ValueError(f"no colon belongs to the choice at {at}")


FACTOR = re.compile(r" \* (?:(?=u?long\()|[\w.:]+)")


def narrowed(code: str) -> Iterator[Change]:
    """A declaration of 64 bits gets 32, and a product of 64 bits is made of 32."""
    yield from replacements(re.compile(r"\bulong(2?)\b(?!\()"), (r"uint\1",), code)
    for match in re.finditer(r"\b(u?)long(?=\()", code):
        end = closing(code, match.end()) + 1
        if factor := FACTOR.match(code, end):
            stop = closing(code, code.index("(", factor.end())) + 1 if factor[0] == " * " else factor.end()
            narrow = match[1] + "int"
            yield match.start(), stop, f"{narrow}{code[match.end() : end]} * {narrow}({code[end + 3 : stop]})"


# What is easily taken one for the other.
SIBLINGS = (
    ("lda", "ldb"),
    ("ldb", "ldc"),
    ("ldc", "lda"),
    ("stride_a", "stride_b"),
    ("stride_b", "stride_c"),
    ("stride_c", "stride_a"),
    ("x_image", "x_channel"),
    ("x_channel", "x_image"),
    ("x_group", "x_channel"),
    ("y_image", "y_channel"),
    ("y_channel", "y_image"),
    ("y_group", "y_channel"),
    ("w_channel", "w_group"),
    ("w_group", "w_channel"),
    ("image", "channel"),
    ("channel", "image"),
    ("stride_h", "stride_w"),
    ("stride_w", "stride_h"),
    ("pad_h", "pad_w"),
    ("pad_w", "pad_h"),
    ("kH", "kW"),
    ("kW", "kH"),
    ("H", "W"),
    ("W", "H"),
    ("out_H", "out_W"),
    ("out_W", "out_H"),
    ("step_x", "step_y"),
    ("step_y", "step_x"),
    ("SIMD_M", "SIMD_N"),
    ("SIMD_N", "SIMD_M"),
    ("LD", "ROWS"),
)


def swapped_stride(code: str) -> Iterator[Change]:
    """A member (or a constant of a shape) by the one beside it."""
    for mine, other in SIBLINGS:
        yield from replacements(re.compile(rf"(?<=[.:]){mine}\b"), (other,), code)


KINDS: dict[str, Callable[[str], Iterator[Change]]] = {
    "barrier deleted": replaced(r"\b(?:threadgroup|simdgroup)_barrier\([^;]*\);", ";"),
    "barrier without memory": replaced(r"\bmem_flags::mem_threadgroup\b", "mem_flags::mem_none"),
    "bound < shifted": replaced(r" < ", " <= ", " + 1 < "),
    "bound <= shifted": replaced(r" <= ", " < ", " <= 1 + "),
    "bound > shifted": replaced(r" > ", " >= ", " > 1 + "),
    "bound >= shifted": replaced(r" >= ", " > ", " + 1 >= "),
    "early end dropped": replaced(r"\bif \([^;{}]*\) (?:return|continue);", ";"),
    "clamp dropped": without_clamp,
    "choice dropped": without_choice,
    "stride swapped": swapped_stride,
    "index narrowed": narrowed,
}


def mutants(text: str) -> list[Mutant]:
    """All of them, in the order of the text. params.h has no code of a kernel."""
    code, lines = without_comments(text), lines_of(text)
    made = (made_of(text, lines, kind, change) for kind, find in KINDS.items() for change in find(code))
    return sorted((m for m in made if m.file != "metal/params.h"), key=lambda m: (m.start, m.end, m.words))


def made_of(text: str, lines: list[Line], kind: str, change: Change) -> Mutant:
    start, end, words = change
    line = max((line for line in lines if line.start <= start), key=lambda line: line.start)
    stop = text.index("\n", end)
    before = " ".join(text[line.start : stop].split())
    after = " ".join((text[line.start : start] + words + text[end:stop]).split())
    return Mutant(kind, line.file, line.number, line.within, before, after, start, end, words)
