"""Where the library comes from, and the installed package."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from conftest import not_simulated

from tcpy import _load

Python = Callable[..., "CompletedProcess[str]"]
PATH = "import tcpy._load; print(tcpy._load.path)"


def last_error(done: CompletedProcess[str]) -> str:
    assert done.returncode == 1
    return done.stderr[done.stderr.rindex("\nImportError: ") + 1 :]


@not_simulated
def test_the_environment_names_the_library(python: Python, tmp_path: Path) -> None:
    copy = shutil.copy(_load.path, tmp_path / "another name.so")
    assert python("-c", PATH, TC_LIBRARY=str(copy)).stdout == f"{copy}\n"


def test_the_environment_is_an_order(python: Python, tmp_path: Path) -> None:
    missing, text = tmp_path / "missing.so", tmp_path / "text.so"
    text.write_text("no library")
    for path in (missing, text):
        error = last_error(python("-c", PATH, TC_LIBRARY=str(path)))
        assert error.startswith(f"ImportError: tcpy can't load the libtc library. Tried:\n  {path}: ")
        assert len(error.splitlines()) == 2


NOT_INSTALLED = """
import importlib.metadata
def distribution(name):
    raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.distribution = distribution
import tcpy
"""


def test_without_a_library_all_tried_paths_are_named(python: Python, tmp_path: Path) -> None:
    package = tmp_path / "tcpy"
    shutil.copytree(Path(_load.__file__).parent, package, ignore=shutil.ignore_patterns("libtc*"))
    error = last_error(python("-c", NOT_INSTALLED, TC_LIBRARY="", PYTHONPATH=str(tmp_path)))
    tried = [line.strip().split(": ")[0] for line in error.splitlines()[1:]]
    assert tried == [str(package / _load._FILE), _load._SYSTEM]


def build(folder: Path, source: str) -> Path:
    (folder / "fake.c").write_text(source)
    compiler = (os.environ.get("CC") or shutil.which("cc") or "gcc").split()
    subprocess.run([*compiler, "-shared", "-fPIC", folder / "fake.c", "-o", folder / "fake.so"], check=True)
    return folder / "fake.so"


def test_another_api_is_refused(python: Python, tmp_path: Path) -> None:
    library = build(tmp_path, "int tc_api_version(void) { return 99; }")
    error = last_error(python("-c", PATH, TC_LIBRARY=str(library)))
    assert error.endswith(f"{library}: its API number is 99, this tcpy needs 1\n")


def test_a_library_without_our_functions_is_refused(python: Python, tmp_path: Path) -> None:
    for source in ("int other(void) { return 1; }", "int tc_api_version(void) { return 1; }"):
        error = last_error(python("-c", PATH, TC_LIBRARY=str(build(tmp_path, source))))
        assert "undefined symbol: tc_" in error or "symbol not found" in error


# ---- The installed package -------------------------------------------------------------------------------------------


@pytest.fixture
def installed() -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution("tcpy")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("tcpy isn't installed: TC_LIBRARY alone is under test")


def test_wheel(installed: importlib.metadata.Distribution) -> None:
    tags = [line for line in (installed.read_text("WHEEL") or "").splitlines() if line.startswith("Tag: ")]
    assert len(tags) == 1
    assert tags[0].startswith("Tag: py3-none-")
    assert not tags[0].endswith("-any")
    files = {str(file) for file in installed.files or []}
    assert {f"tcpy/{_load._FILE}", "tcpy/tc_ceiling.so", "tcpy/py.typed", "tcpy/__init__.py"} <= files
    assert sum("libtc" in file for file in files) == 1
    modules = {f"tcpy/{path.name}" for path in Path(_load.__file__).parent.glob("*.py")}
    assert modules <= files


def test_a_checkout_uses_the_installed_library(python: Python, installed: importlib.metadata.Distribution) -> None:
    done = python("-c", f"import tcpy; print(tcpy.__file__); {PATH}", TC_LIBRARY="")
    package, library = done.stdout.splitlines()
    assert Path(package).parent == Path(_load.__file__).parent
    assert Path(library) == Path(str(installed.locate_file(f"tcpy/{_load._FILE}")))
