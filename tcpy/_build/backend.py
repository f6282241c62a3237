"""The build backend: meson-python, with the wheel tagged py3-none-<platform>.

meson-python takes every file in platlib for an extension module and tags the wheel for one CPython version. tcpy has
none: its library is loaded through ctypes and serves every Python 3.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias

import mesonpy
from mesonpy import build_editable, build_sdist, get_requires_for_build_editable, get_requires_for_build_sdist

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]


Settings: TypeAlias = dict[Any, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return [*mesonpy.get_requires_for_build_wheel(config_settings), "wheel>=0.41"]


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    name = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    command = [sys.executable, "-m", "wheel", "tags", "--remove", "--python-tag=py3", "--abi-tag=none"]
    done = subprocess.run([*command, Path(wheel_directory, name)], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()
