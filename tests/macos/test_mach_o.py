# SPDX-License-Identifier: MIT
"""libtc for macOS on arm64, cross-compiled: all compiles without a warning, and it needs and exports what it should.

Meson builds libtc, its tests and examples as on a Mac, with the frameworks that stub_frameworks makes and an xcrun of
test_metal_build.py.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from download import unpacked_wheel
from project import ROOT, install_fake_xcrun, run
from target import Target, metal_headers

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="this is a Mac: the build itself is the test")

# All that libtc needs of macOS besides its C library: functions, and classes of Objective-C.
NEEDED = {
    "CoreGraphics": [],
    "Foundation": ["_OBJC_CLASS_$_NSAutoreleasePool", "_OBJC_CLASS_$_NSString"],
    "Metal": [
        "_MTLCopyAllDevices",
        "_MTLCreateSystemDefaultDevice",
        "_OBJC_CLASS_$_MTLCompileOptions",
        "_OBJC_CLASS_$_MTLFunctionConstantValues",
    ],
}
NEEDED_BY_BENCH = {
    "MetalPerformanceShaders": [
        f"_OBJC_CLASS_$_{name}" for name in ("MPSMatrix", "MPSMatrixDescriptor", "MPSMatrixMultiplication")
    ]
}
RUNTIME = ["_objc_alloc", "_objc_alloc_init", "_objc_autorelease", "_objc_msgSend", "_objc_release", "_objc_retain"]


# ---- A Mac, as far as the build sees it ----------------------------------------------------------
def stub_frameworks(folder: Path) -> Path:
    """Frameworks with these symbols and no others. Foundation's also has the Objective-C runtime's, as Apple's does."""
    for name, symbols in {**NEEDED, **NEEDED_BY_BENCH}.items():
        framework = folder / f"{name}.framework"
        framework.mkdir(parents=True)
        exported = ", ".join(f"'{symbol}'" for symbol in symbols + (RUNTIME if name == "Foundation" else []))
        (framework / f"{name}.tbd").write_text(
            "--- !tapi-tbd\n"
            "tbd-version: 4\n"
            "targets: [ arm64-macos ]\n"
            f"install-name: '/System/Library/Frameworks/{name}.framework/Versions/A/{name}'\n"
            f"exports:\n  - targets: [ arm64-macos ]\n    symbols: [ {exported} ]\n...\n"
        )
    return folder


def cross_file(target: Target, folder: Path) -> Path:
    compiler, cpp = (f"['{target.zig}', '{name}', '-target', 'aarch64-macos.13.0']" for name in ("cc", "c++"))
    includes = [f"-I{include}" for include in metal_headers(folder / "include")]
    links = [f"-F{stub_frameworks(folder / 'frameworks')}"]
    link_args = "\n".join(f"{language}_link_args = {links}" for language in ("c", "cpp", "objc"))
    path = folder / "macos.ini"
    path.write_text(
        f"[binaries]\nc = {compiler}\nobjc = {compiler}\ncpp = {cpp}\nar = ['{target.zig}', 'ar']\n"
        f"[built-in options]\nobjc_args = {includes}\n{link_args}\n"
        "[host_machine]\nsystem = 'darwin'\ncpu_family = 'aarch64'\ncpu = 'arm64'\nendian = 'little'\n"
    )
    return path


@pytest.fixture(scope="module")
def build(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("macos")
    path = install_fake_xcrun(folder / "bin", "good")
    run("meson", "setup", folder / "build", ROOT, "--werror", "--cross-file", cross_file(target, folder), path=path)
    run("meson", "compile", "-C", folder / "build", path=path)
    return folder / "build"


# ---- The library ---------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def lief(downloads: Path) -> Iterator[ModuleType]:
    """A reader of Mach-O."""
    folder = str(unpacked_wheel("lief", downloads))
    sys.path.insert(0, folder)
    yield __import__("lief")
    sys.path.remove(folder)


@pytest.fixture(scope="module")
def library(lief: ModuleType, build: Path):  # type: ignore[no-untyped-def]
    return lief.MachO.parse(str(build / "libtc/libtc.1.dylib")).at(0)


def test_exports_exactly_the_header(library) -> None:  # type: ignore[no-untyped-def]
    functions = re.findall(r"^TC_API [^;]*?\b(tc_\w+)\(", (ROOT / "include/tc/tc.h").read_text(), re.MULTILINE)
    by_the_linker = {"__mh_dylib_header", "___dso_handle"}
    assert {symbol.name for symbol in library.exported_symbols} - by_the_linker == {f"_{name}" for name in functions}


def test_needs_exactly_what_is_listed(library) -> None:  # type: ignore[no-untyped-def]
    listed = {symbol for symbols in [*NEEDED.values(), RUNTIME] for symbol in symbols}
    c_library = {symbol for symbol in imported(library) if not re.match(r"_(objc_|OBJC_|MTL|NS|CG)", symbol)}
    assert set(imported(library)) - c_library == listed
    assert {"_malloc", "_dispatch_data_create"} <= c_library
    assert {re.sub(r".*/", "", needed.name) for needed in library.libraries} == {
        "libSystem.B.dylib",
        "libtc.1.dylib",
        *NEEDED,
    }


def imported(library) -> list[str]:  # type: ignore[no-untyped-def]
    return [symbol.name for symbol in library.imported_symbols]


def test_is_for_macos_13_on_arm64(lief: ModuleType, library) -> None:  # type: ignore[no-untyped-def]
    assert library.header.cpu_type == lief.MachO.Header.CPU_TYPE.ARM64
    assert library.build_version.platform == lief.MachO.BuildVersion.PLATFORMS.MACOS
    assert library.build_version.minos == [13, 0, 0]


def test_holds_the_kernels_in_both_forms(build: Path) -> None:
    content = (build / "libtc/libtc.1.dylib").read_bytes()
    assert (build / "metal/tc.metal").read_bytes() in content
    assert (build / "metal/tc.metallib").read_bytes() in content
