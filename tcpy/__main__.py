"""The command line: ``python -m tcpy info``, ``selftest`` and ``bench``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import TcError, __version__, default_context
from ._load import lib, path
from ._selftest import selftest
from .bench import command as bench


def _info() -> bool:
    about = {"version": __version__, "api_version": lib.tc_api_version(), "library": path}
    print(json.dumps({**about, **default_context().info()}, indent=2))
    return True


class _Command(NamedTuple):
    run: Callable[..., bool]
    about: str
    options: dict[str, dict[str, Any]]  # argparse's; they become arguments of run


_COMMANDS = {
    "info": _Command(_info, "print what runs here, as JSON", {}),
    "selftest": _Command(selftest, "check every operation against float64 on this machine", {}),
    "bench": _Command(bench.run, bench.ABOUT, bench.OPTIONS),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tcpy", description="fp16 GEMM and convolution on this machine")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, about, options) in _COMMANDS.items():
        command = commands.add_parser(name, help=about, description=about)
        for option, how in options.items():
            command.add_argument(option, **how)
    given = vars(parser.parse_args(arguments))
    run = _COMMANDS[given.pop("command")].run
    try:
        return 0 if run(**given) else 1
    except TcError as error:
        print(f"tcpy: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly when what reads our output ends
    sys.exit(main())
