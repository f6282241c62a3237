# SPDX-License-Identifier: MIT
from pathlib import Path

import pytest
from download import unpacked_wheel
from target import Target


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="session")
def target(downloads: Path) -> Target:
    """The compiler for macOS."""
    zig = unpacked_wheel("ziglang", downloads) / "ziglang/zig"
    zig.chmod(0o755)
    return Target(zig)
