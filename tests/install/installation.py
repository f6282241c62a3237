# SPDX-License-Identifier: MIT
"""What installs the library, and compiles programs against it."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

MACOS = sys.platform == "darwin"
ROOT = Path(__file__).resolve().parents[2]
CONSUMER = Path(__file__).parent / "consumer"
EXAMPLES = ROOT / "examples"


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """The command's standard output. Tools of the running Python's environment come first."""
    path = sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"]
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | {"PATH": path} | environment, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def compiler(language: str) -> list[str]:
    """The command of the C or C++ compiler, as Meson would choose it; skips the test where there is none."""
    variable, default = {"C": ("CC", "cc"), "C++": ("CXX", "c++")}[language]
    command = os.environ.get(variable, default).split()
    if not shutil.which(command[0]):
        pytest.skip(f"no {language} compiler: {command[0]}")
    return command


@dataclass(frozen=True)
class Installation:
    """A prefix that libtc is installed in."""

    prefix: Path

    @property
    def libdir(self) -> Path:
        return self.shared.parent

    @property
    def shared(self) -> Path:
        return next(self.prefix.rglob("libtc.dylib" if MACOS else "libtc.so"))

    @property
    def static(self) -> Path:
        return next(self.prefix.rglob("libtc.a"))

    @property
    def header(self) -> Path:
        return self.prefix / "include/tc/tc.h"

    def pkg_config(self, *options: str) -> list[str]:
        return run("pkgconf", *options, "libtc", PKG_CONFIG_PATH=str(self.libdir / "pkgconfig")).split()

    def run(self, program: Path, *arguments: str) -> str:
        """Runs a program that was linked to the shared library."""
        return run(program, *arguments, LD_LIBRARY_PATH=str(self.libdir))


def install(base: Path) -> Installation:
    """Configures, builds and installs the library as a user would, all below base."""
    run("meson", "setup", base / "build", ROOT, "--prefix", base / "prefix", "-Dtests=false", "-Dexamples=false")
    run("meson", "compile", "-C", base / "build")
    run("meson", "install", "-C", base / "build", "--no-rebuild")
    return Installation(base / "prefix")


def build_program(command: Sequence[str], sources: Sequence[Path], flags: Sequence[str], program: Path) -> Path:
    """Compiles and links the sources without a warning; flags follow them, so that static libraries resolve."""
    run(*command, "-O1", "-Wall", "-Wextra", "-Werror", *map(str, sources), *flags, "-o", str(program))
    return program
