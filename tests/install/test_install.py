# SPDX-License-Identifier: MIT
"""Programs outside of the tree compile against the installed library, and the library is what a package should be."""

import re
import shutil
from pathlib import Path

import pytest
from installation import CONSUMER, EXAMPLES, MACOS, ROOT, Installation, build_program, compiler, run

VERSION = ".".join(re.findall(r"^#define TC_VERSION_\w+ (\d+)$", (ROOT / "include/tc/tc.h").read_text(), re.MULTILINE))
MAJOR = int(VERSION.split(".")[0])

SONAME = "libtc.1.dylib" if MACOS else "libtc.so.1"

elf_only = pytest.mark.skipif(MACOS, reason="macOS has no ELF")

SYSTEM_LIBRARIES = r"lib(c|m|pthread|dl)\.so\.\d+|ld-linux.*\.so\.\d+"

# Language: source of the program, flags besides pkg-config's, what it prints.
PROGRAMS = {
    "C": (EXAMPLES / "01_gemm.c", ["-std=c11", "-lm"], "worst error"),
    "C++": (CONSUMER / "main.cpp", ["-std=c++11"], VERSION),
}


# ---- Programs ------------------------------------------------------------------------------------
def configure_cmake(source: Path, prefix: Path, build: Path, *options: str) -> Path:
    """Returns the build folder."""
    run("cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", *options)
    return build


@pytest.mark.parametrize("language", PROGRAMS)
def test_pkg_config_shared(installed: Installation, tmp_path: Path, language: str) -> None:
    source, flags, expected = PROGRAMS[language]
    flags = [*installed.pkg_config("--cflags", "--libs"), *flags]
    program = build_program(compiler(language), [source], flags, tmp_path / "program")
    assert SONAME in needed(program)
    assert expected in installed.run(program)


@pytest.mark.skipif(MACOS, reason="macOS has no static programs")
@pytest.mark.parametrize("language", PROGRAMS)
def test_pkg_config_static(installed: Installation, tmp_path: Path, language: str) -> None:
    source, flags, expected = PROGRAMS[language]
    flags = ["-static", *installed.pkg_config("--static", "--cflags", "--libs"), *flags]
    program = build_program(compiler(language), [source], flags, tmp_path / "program")
    assert needed(program) == set()
    assert expected in run(program)


def test_cmake_in_a_moved_prefix(installed: Installation, tmp_path: Path) -> None:
    """CMake's files find the library beside themselves, wherever the prefix was copied to."""
    compiler("C++")
    prefix = tmp_path / "moved prefix"
    shutil.copytree(installed.prefix, prefix, symlinks=True)
    build = configure_cmake(CONSUMER, prefix, tmp_path / "build", f"-DEXAMPLES={EXAMPLES}")
    run("cmake", "--build", build)
    assert str(installed.prefix) not in "".join(path.read_text() for path in prefix.rglob("*.cmake"))
    for kind, links_shared in {"tc": True, "tc_static": False}.items():
        for program, expected in {"gemm": "worst error", "cpp": VERSION}.items():
            path = build / f"{program}_{kind}"
            assert (SONAME in needed(path)) == links_shared
            assert expected in run(path)


@pytest.mark.parametrize(
    ("version", "found"),
    [("", True), (f"{MAJOR}", True), (VERSION, True), (f"{VERSION}.1", False), (f"{MAJOR + 1}", False)],
)
def test_cmake_version(installed: Installation, tmp_path: Path, version: str, found: bool) -> None:
    compiler("C")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.15)\n"
        "project(version C)\n"
        f"find_package(libtc {version} QUIET)\n"
        'file(WRITE "${CMAKE_BINARY_DIR}/found" "${libtc_FOUND} ${libtc_VERSION}")\n'
    )
    configure_cmake(tmp_path, installed.prefix, tmp_path / "build")
    assert (tmp_path / "build/found").read_text() == (f"1 {VERSION}" if found else "0 ")


# ---- The libraries -------------------------------------------------------------------------------
def needed(binary: Path) -> set[str]:
    """The names of the libraries that a program or library is linked with."""
    if MACOS:
        return set(re.findall(r"^\t(?:.*/)?(\S+) \(", run("otool", "-L", binary), re.MULTILINE))
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", binary)))


def exported(library: Path) -> set[tuple[str, str]]:
    """Kind and name of every symbol that programs can link with."""
    options, mark = (["-gU"], "_") if MACOS else (["-D", "--defined-only"], "")
    symbols = [line.split() for line in run("nm", *options, library).splitlines()]
    return {(kind, name.removeprefix(mark)) for _, kind, name in symbols}


def header_functions(header: Path) -> set[str]:
    return set(re.findall(r"^TC_API [^;]*?\b(tc_\w+)\(", header.read_text(), re.MULTILINE))


@elf_only
def test_soname(installed: Installation) -> None:
    assert "Library soname: [libtc.so.1]" in run("readelf", "-d", installed.shared)
    assert (installed.libdir / "libtc.so.1").resolve() == installed.shared.resolve()


def test_exports_exactly_the_header(installed: Installation) -> None:
    functions = header_functions(installed.header)
    assert "tc_gemm" in functions
    assert len(functions) == installed.header.read_text().count("\nTC_API ")
    assert exported(installed.shared) == {("T", name) for name in functions}


@elf_only
def test_static_library_defines_only_tc_names(installed: Installation) -> None:
    names = re.findall(r"^[0-9a-f]+ [A-Z] (\S+)$", run("nm", "-g", "--defined-only", installed.static), re.MULTILINE)
    assert header_functions(installed.header) <= set(names)
    assert [name for name in names if not name.startswith("tc_")] == []


@elf_only
def test_needs_only_the_c_library(installed: Installation) -> None:
    assert [name for name in needed(installed.shared) if not re.fullmatch(SYSTEM_LIBRARIES, name)] == []
    undefined = re.findall(r" U (\S+)", run("nm", "-D", installed.shared))
    assert undefined
    assert [name for name in undefined if "@GLIBC_" not in name] == []


@elf_only
def test_hardening(installed: Installation) -> None:
    stack = re.search(r"GNU_STACK.*\n?.*", run("readelf", "-lW", installed.shared))
    assert stack, "no GNU_STACK header, which means an executable stack"
    assert "RWE" not in stack[0]
    assert "TEXTREL" not in run("readelf", "-d", installed.shared)


@elf_only
def test_is_never_unloaded(installed: Installation) -> None:
    """Worker threads would go on in code that is gone, if dlclose unmapped it."""
    assert re.search(r"FLAGS_1.*NODELETE", run("readelf", "-d", installed.shared))
