"""The command line: ``python -m tcpy info`` and ``python -m tcpy selftest``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence

from . import TcError, __version__, default_context
from ._load import lib, path
from ._selftest import selftest


def _info() -> bool:
    about = {"version": __version__, "api_version": lib.tc_api_version(), "library": path}
    print(json.dumps({**about, **default_context().info()}, indent=2))
    return True


_COMMANDS = {
    "info": (_info, "print what runs here, as JSON"),
    "selftest": (selftest, "check every operation against float64 on this machine"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tcpy", description="fp16 GEMM and convolution on this machine")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, text) in _COMMANDS.items():
        commands.add_parser(name, help=text, description=text)
    command, _ = _COMMANDS[parser.parse_args(arguments).command]
    try:
        return 0 if command() else 1
    except TcError as error:
        print(f"tcpy: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly when what reads our output ends
    sys.exit(main())
