# SPDX-License-Identifier: MIT
"""What the tests against Apple's headers and for Apple's machines need, from PyPI: pinned, and only where asked for."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ASKED = "TC_TEST_DOWNLOAD"

# Project: version, and pip's options for another system than this one.
WHEELS = {
    "mlx-metal": ("0.32.4", ["--platform=macosx_14_0_arm64"]),  # 45 MB; it has Apple's metal-cpp
    "pyobjc-framework-Metal": ("12.2.2", ["--platform=macosx_10_13_universal2", "--python-version=3.12"]),
    "pyobjc-framework-Cocoa": ("12.2.2", ["--platform=macosx_10_13_universal2", "--python-version=3.12"]),
    "pyobjc-framework-MetalPerformanceShaders": (
        "12.2.2",
        ["--platform=macosx_10_13_universal2", "--python-version=3.12"],
    ),
    "lief": ("1.0.0", []),
    "ziglang": ("0.17.1", []),  # 90 MB; clang, a linker, and macOS's C headers and symbols
}


def unpacked_wheel(project: str, folder: Path) -> Path:
    """The folder with the content of the project's wheel. Skips the test where it isn't wanted, or can't be had."""
    if ASKED not in os.environ:
        pytest.skip(f"{ASKED} isn't set; set it to 1 and {project} (of 140 MB in all) is downloaded")
    version, options = WHEELS[project]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", *options, f"--dest={folder}", f"{project}=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip can't download {project}: {done.stderr.strip().splitlines()[-1]}")
    (wheel,) = folder.glob(project.lower().replace("-", "?") + "-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / project)
    wheel.unlink()
    return folder / project
