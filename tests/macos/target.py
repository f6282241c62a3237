# SPDX-License-Identifier: MIT
"""The compiler for macOS on arm64: clang with Apple's headers of C, of the Objective-C runtime and of dispatch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from project import HERE, ROOT, run

OBJECTIVE_C = ["-fno-objc-arc", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]


@dataclass(frozen=True)
class Target:
    zig: Path

    def clang(self, *arguments: str | Path) -> bytes:
        headers = self.zig.parent / "lib"
        system: list[str | Path] = [
            "-isystem",
            headers / "include",
            "-isystem",
            headers / "libc/include/any-darwin-any",
        ]
        return run(self.zig, "clang", "-target", "arm64-apple-macos13", "-nostdlibinc", *system, *arguments)

    def syntax_tree(self, source: Path, includes: Sequence[Path]) -> dict[str, Any]:
        """Of a file in Objective-C."""
        folders = [f"-I{folder}" for folder in includes]
        tree = json.loads(self.clang(*OBJECTIVE_C, *folders, "-fsyntax-only", "-Xclang", "-ast-dump=json", source))
        assert isinstance(tree, dict)
        return tree


def metal_headers(folder: Path, framework: Path = ROOT / "tests/metalsim/framework/include") -> list[Path]:
    """The include folders for Metal's header of the simulator with Foundation's of ours; folder is for a link."""
    folder.mkdir()
    (folder / "Metal").symlink_to(framework / "Metal")
    return [folder, HERE / "include"]
