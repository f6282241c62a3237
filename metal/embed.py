# SPDX-License-Identifier: MIT
"""Makes the kernels' one self-contained text, and the C file that holds it.

embed.py expand OUTPUT DEPFILE SOURCE...   joins the sources; each file that they #include "..." stands in it once
embed.py c OUTPUT TEXT [METALLIB]          defines what libtc/metal/embedded.h declares: the text, and its compiled form

In the text, #line names each original file as metal/NAME, so that the compiler's messages are about files that exist.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
CHUNK = 100  # bytes of a metallib in one line of C


# ---- The text ------------------------------------------------------------------------------------
def expanded(path: Path, seen: set[Path]) -> Iterator[str]:
    """The lines of a file, its own includes in their place; nothing if it was seen before."""
    path = path.resolve()
    if path in seen:
        return
    seen.add(path)
    yield line_directive(path, 1)
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
        if include := INCLUDE.match(line):
            yield from expanded(path.parent / include[1], seen)
            yield line_directive(path, number + 1)
        else:
            yield line


def line_directive(path: Path, number: int) -> str:
    return f'#line {number} "metal/{path.name}"'


# ---- The C file ----------------------------------------------------------------------------------
def c_literal(data: bytes) -> str:
    """A C string literal; three digits for each byte that isn't plain, so that no digit after them joins in."""
    plain = range(32, 127)
    return '"' + "".join(chr(b) if b in plain and b not in b'"\\?' else f"\\{b:03o}" for b in data) + '"'


def c_definition(name: str, pieces: list[bytes]) -> str:
    """Defines the tc_embedded of that name."""
    if not pieces:
        return f"const tc_embedded {name} = {{NULL, 0}};\n"
    literals = "\n".join(map(c_literal, pieces))
    return (
        f"static const char {name}_bytes[] =\n{literals};\n"
        f"const tc_embedded {name} = {{{name}_bytes, sizeof {name}_bytes - 1}};\n"
    )


def c_file(text: bytes, library: bytes) -> str:
    chunks = [library[start : start + CHUNK] for start in range(0, len(library), CHUNK)]
    return (
        "/* Made by metal/embed.py. */\n"
        '#include "metal/embedded.h"\n'
        f"{c_definition('tc_metal_source', text.splitlines(keepends=True))}"
        f"{c_definition('tc_metal_library', chunks)}"
    )


# ---- Commands ------------------------------------------------------------------------------------
def expand(output: str, depfile: str, *sources: str) -> None:
    seen: set[Path] = set()
    lines = [line for source in sources for line in expanded(Path(source), seen)]
    Path(output).write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    names = " ".join(str(path).replace(" ", "\\ ") for path in sorted(seen))
    Path(depfile).write_text(f"{output}: {names}\n")


def c(output: str, text: str, library: str | None = None) -> None:
    made = c_file(Path(text).read_bytes(), Path(library).read_bytes() if library else b"")
    Path(output).write_text(made, encoding="ascii")


COMMANDS: dict[str, Callable[..., None]] = {"expand": expand, "c": c}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
