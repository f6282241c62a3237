# SPDX-License-Identifier: MIT
"""metal/meson.build and metal/embed.py, with xcruns of every kind: what is compiled, what is embedded, what is said."""

import re
import sys
from pathlib import Path

import pytest
from fake_xcrun import NEW, OLD, REFUSALS
from project import ROOT, Project, install_fake_xcrun, run

EMBED = ROOT / "metal/embed.py"


def make(folder: Path, kind: str) -> tuple[Project, str]:
    """A project that was set up where xcrun is of that kind, and Meson's words about metal."""
    folder.mkdir(exist_ok=True)
    path = install_fake_xcrun(folder / "bin", kind) if kind != "absent" else folder
    project = Project(folder / "source", folder / "build", path)
    (summary,) = re.findall(r"^ +metal: (.*)$", project.setup(), re.MULTILINE)
    return project, summary


# ---- Meson's choice ------------------------------------------------------------------------------
@pytest.mark.parametrize(("kind", "maths"), [("good", NEW), ("new", NEW), ("old", OLD), ("warns", OLD)])
def test_compiles_and_embeds_both(tmp_path: Path, kind: str, maths: str) -> None:
    project, summary = make(tmp_path / kind, kind)
    assert summary == f"built, with compiled kernels ({maths})"
    project.compile()
    source = project.embedded("source")
    assert b"kernel void" in source
    assert not re.search(rb'^\s*#\s*include\s*"', source, re.MULTILINE)
    assert project.embedded("library") == b"MTLB" + bytes(range(256)) + b"AIR\0" + maths.encode() + b"\0" + source


WHY_NOT = {
    "absent": "xcrun was not found",
    "no-toolchain": REFUSALS["no-toolchain"],
    "no-xcode": REFUSALS["no-xcode"],
    "silent": "xcrun ended with status 1 and said nothing",
    "neither": f"metal: error: unknown argument: '{NEW}'; metal: error: unknown argument: '{OLD}'",
    "no-linker": "metallib: error: no such tool",
}


@pytest.mark.skipif(sys.platform == "darwin", reason="where there is a real xcrun, Metal's compiler can't be hidden")
@pytest.mark.parametrize("kind", WHY_NOT)
def test_embeds_source_only_and_says_why(tmp_path: Path, kind: str) -> None:
    project, summary = make(tmp_path / kind, kind)
    assert summary == f"built, its kernels as source only: {WHY_NOT[kind]}"
    project.compile()
    assert b"kernel void" in project.embedded("source")
    assert project.embedded("library") == b""


def test_a_changed_header_is_compiled_and_embedded_again(tmp_path: Path) -> None:
    project, _ = make(tmp_path / "again", "good")
    project.compile()
    header = next((project.source / "metal").glob("*.h"))
    header.write_text(header.read_text() + "// changed\n")
    project.compile()
    assert b"// changed\n" in project.embedded("source")
    assert b"// changed\n" in project.embedded("library")


# ---- The one text --------------------------------------------------------------------------------
def expand(folder: Path, files: dict[str, str], *sources: str) -> str:
    for name, text in files.items():
        (folder / name).write_text(text)
    run(sys.executable, EMBED, "expand", "out", "out.d", *sources, cwd=folder)
    return (folder / "out").read_text()


def test_each_include_stands_once_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    files = {
        "a.metal": '#include <metal_stdlib>\n#include "x.h"\n#include "y.h"\nkernel void a();\n',
        "b.metal": '# include "y.h" // twice\nkernel void b();',
        "x.h": '#include "y.h"\nint x;\n',
        "y.h": "int y;\n",
    }
    assert expand(tmp_path, files, "a.metal", "b.metal") == (
        '#line 1 "metal/a.metal"\n#include <metal_stdlib>\n'
        '#line 1 "metal/x.h"\n#line 1 "metal/y.h"\nint y;\n#line 2 "metal/x.h"\nint x;\n'
        '#line 3 "metal/a.metal"\n#line 4 "metal/a.metal"\nkernel void a();\n'
        '#line 1 "metal/b.metal"\n#line 2 "metal/b.metal"\nkernel void b();\n'
    )
    assert (tmp_path / "out.d").read_text().split() == [
        "out:",
        *(str(tmp_path / name) for name in ("a.metal", "b.metal", "x.h", "y.h")),
    ]


def test_an_absent_include_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"No such file.*absent\.h"):
        expand(tmp_path, {"a.metal": '#include "absent.h"\n'}, "a.metal")
    assert not (tmp_path / "out").exists()
