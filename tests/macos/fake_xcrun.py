# SPDX-License-Identifier: MIT
"""Stands in for Xcode's xcrun: `fake_xcrun.py KIND ARGUMENT...` does what an installation of that kind does.

Its outputs hold its inputs behind a mark, so that a test can follow the bytes. It refuses what Apple's tools refuse: an
unknown argument, an #include of a file that isn't Apple's.
"""

import argparse
import re
import sys
from pathlib import Path

NEW, OLD = "-fmetal-math-mode=safe", "-fno-fast-math"

# The spellings of safe maths that the compiler of each kind of installation knows. One only warns of others.
MATHS = {"good": {NEW, OLD}, "old": {OLD}, "warns": {OLD}, "new": {NEW}, "neither": set(), "no-linker": {NEW, OLD}}

REFUSALS = {
    "no-toolchain": "error: error: cannot execute tool 'metal' due to missing Metal Toolchain; "
    "use: xcodebuild -downloadComponent MetalToolchain",
    "no-xcode": 'xcrun: error: unable to find utility "metal", not a developer tool or in PATH',
    "silent": "",
}


class Refuse(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        sys.exit(f"error: {message}")


def metal(kind: str, arguments: list[str]) -> bytes:
    for flag in {NEW, OLD} & set(arguments) - MATHS[kind]:
        if kind != "warns" or "-Werror" in arguments:
            sys.exit(f"metal: error: unknown argument: '{flag}'\nmetal: error: no output")
    parser = Refuse()
    parser.add_argument("-std", choices=["metal3.0"], required=True)
    parser.add_argument("-mmacosx-version-min", choices=["13.0"], required=True)
    parser.add_argument("-Werror", action="store_true")
    parser.add_argument("-c", type=Path, required=True)
    known, maths = parser.parse_known_args(arguments)
    if len(maths) != 1 or maths[0] not in {NEW, OLD}:
        sys.exit(f"error: {maths} is no choice of maths")
    source: bytes = known.c.read_bytes()
    if re.search(rb'^\s*#\s*include\s*"', source, re.MULTILINE):
        sys.exit(f"{known.c}: error: a file that is included was not found")
    return b"AIR\0" + maths[0].encode() + b"\0" + source


def metallib(kind: str, arguments: list[str]) -> bytes:
    if kind == "no-linker":
        sys.exit("metallib: error: no such tool")
    (air,) = arguments
    return b"MTLB" + bytes(range(256)) + Path(air).read_bytes()


def main(kind: str, *arguments: str) -> None:
    if kind in REFUSALS:
        sys.stderr.write(REFUSALS[kind])
        sys.exit(1)
    parser = Refuse()
    parser.add_argument("-sdk", choices=["macosx"], required=True)
    parser.add_argument("tool", choices=["metal", "metallib"])
    parser.add_argument("-o", type=Path, required=True)
    known, rest = parser.parse_known_args(arguments)
    tool = metal if known.tool == "metal" else metallib
    known.o.write_bytes(tool(kind, rest))


if __name__ == "__main__":
    main(*sys.argv[1:])
