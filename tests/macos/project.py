# SPDX-License-Identifier: MIT
"""Runs commands, and a Meson project of nothing but metal/."""

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent


def run(*command: str | Path, cwd: Path | None = None, path: Path | None = None) -> bytes:
    """The command's standard output. Programs in the folder path, then those of the running Python, come first."""
    folders = [*([str(path)] if path else []), sysconfig.get_path("scripts"), os.environ["PATH"]]
    environment = os.environ | {"PATH": os.pathsep.join(folders)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{said(done)}"
    return done.stdout


def said(done: "subprocess.CompletedProcess[bytes]") -> str:
    """What a command that failed said; of its output the end."""
    return done.stdout[-4000:].decode(errors="replace") + done.stderr.decode(errors="replace")


def install_fake_xcrun(folder: Path, kind: str) -> Path:
    """A folder for PATH in which xcrun is that of an installation of this kind."""
    folder.mkdir()
    script = folder / "xcrun"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "fake_xcrun.py"}" {kind} "$@"\n')
    script.chmod(0o755)
    return folder


@dataclass(frozen=True)
class Project:
    """A copy of metal/ in a Meson project that links the embedded kernels into a program, for this machine."""

    source: Path
    build: Path
    path: Path  # a folder with an xcrun or without

    def setup(self) -> str:
        """Returns what Meson printed."""
        shutil.copytree(ROOT / "metal", self.source / "metal")
        (self.source / "meson.build").write_text(
            "project('metal', 'c')\n"
            "metal_runtime = 'apple'\n"
            "subdir('metal')\n"
            f"executable('embedded', '{HERE / 'embedded.c'}', metal_embedded,"
            f" include_directories: '{ROOT / 'libtc'}')\n"
            "summary({'metal': metal_summary})\n"
        )
        return run("meson", "setup", self.build, self.source, path=self.path).decode()

    def compile(self) -> None:
        run("meson", "compile", "-C", self.build, path=self.path)

    def embedded(self, what: str) -> bytes:
        return run(self.build / "embedded", what)
