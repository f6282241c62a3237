"""``python -m tcpy bench``: its options, and the run."""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from .. import __version__
from .._selftest import environment
from ..context import Context
from .measure import keep_freed_memory
from .peers import PEERS, hold_peers, load_peers
from .rows import Bench, Row, Settings
from .suites import RESULT, SUITES, Case, Conv, Suite
from .summary import data
from .yardstick import choose, copy_bandwidth

FULL = Settings(rounds=15, most_rounds=30, budget=1.0, data_sets=3)
QUICK = Settings(rounds=5, most_rounds=7, budget=0.2, data_sets=2)
ABOUT = "measure speed against other libraries on this machine"
QUICK_CASES = 6
STDOUT = Path("-")
# Variables that change what a peer does; named in the result.
WATCHED = ("ONEDNN_", "DNNL_", "MKL_", "ATEN_", "OMP_", "OPENBLAS_", "KMP_", "GOMP_", "TORCH_", "MLX_", "TC_")


def _some_of(allowed: Sequence[str]) -> Any:
    """An argparse type: names separated by commas."""

    def parse(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        if unknown := [name for name in names if name not in allowed]:
            raise ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(allowed)}")
        return names

    return parse


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def _new_file(text: str) -> Path:
    if not Path(text).absolute().parent.is_dir():
        raise ArgumentTypeError(f"the folder of {text!r} doesn't exist")
    return Path(text)


OPTIONS: dict[str, dict[str, Any]] = {
    "--suite": {
        "choices": SUITES,
        "default": "resnet50",
        "help": "; ".join(f"{name}: {suite.about}" for name, suite in SUITES.items()),
    },
    "--op": {
        "dest": "ops",
        "type": _some_of([*RESULT]),
        "metavar": "OP,...",
        "help": f"of {', '.join(RESULT)}; by default all that the suite has",
    },
    "--batch": {"type": _positive, "metavar": "N", "help": "images of each convolution, instead of the suite's number"},
    "--isa": {
        "metavar": "NAME",
        "help": "TC_CPU_ISA of our calls; PyTorch is held to the same instructions (AMX apart), see the header",
    },
    "--threads": {"type": _positive, "metavar": "N", "help": "of our calls and of PyTorch's"},
    "--peers": {
        "type": _some_of([*PEERS]),
        "default": [*PEERS],
        "metavar": "NAME,...",
        "help": f"of {', '.join(PEERS)}; by default all that are installed; '' for none",
    },
    "--repeats": {"type": _positive, "metavar": "N", "help": "rounds in which all entries take turns"},
    "--quick": {"action": "store_true", "help": "a part of the cases, fewer rounds: half a minute on a free machine"},
    "--json": {
        "dest": "json_file",
        "type": _new_file,
        "metavar": "FILE",
        "help": "write all figures; -: to stdout, instead of the tables",
    },
    "--plot": {
        "dest": "plot_file",
        "type": _new_file,
        "metavar": "FILE",
        "help": "draw a PNG: ratios for each case, and a roofline",
    },
}


def _refuse(sentence: str) -> NoReturn:
    print(f"tcpy: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def _spread(cases: Sequence[Case]) -> list[Case]:
    """A few of the cases, from the first to the last."""
    places = np.linspace(0, len(cases) - 1, QUICK_CASES).round().astype(int)
    return [cases[place] for place in dict.fromkeys(places.tolist())]


def _work(suite: Suite, ops: list[str] | None, batch: int | None, quick: bool) -> list[tuple[Case, str]]:
    """The cases and operations to measure, in order."""
    chosen = _spread(suite.cases) if quick else suite.cases
    images = batch or suite.batch
    cases = [replace(case, batch=images) if images and isinstance(case, Conv) else case for case in chosen]
    return [(case, op) for case in cases for op in ops or suite.ops if op in case.ops]


def _needs(module: str) -> Any:
    """A module of this package whose imports are optional."""
    try:
        return importlib.import_module(f".{module}", __package__)
    except ModuleNotFoundError as error:
        _refuse(f"bench needs {(error.name or module).split('.')[0]}: pip install 'tcpy[bench]'")


def _machine(context: Context) -> dict[str, Any]:
    """What a result depends on, apart from what is measured."""
    return {
        "tcpy": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        **context.info(),
        "load": os.getloadavg()[0],
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith(WATCHED)},
    }


@contextmanager
def _isa(isa: str | None) -> Iterator[None]:
    """The kernels of our calls, and the instructions of the peers', which their libraries choose once in a process."""
    with environment("TC_CPU_ISA", isa) if isa else nullcontext(), hold_peers(isa or ""):
        yield


def _measured(rows: Iterable[Row]) -> tuple[list[Row], bool]:
    """All rows, or those before Ctrl-C; and whether it is all."""
    done: list[Row] = []
    try:
        for row in rows:
            done.append(row)
    except KeyboardInterrupt:
        return done, False
    return done, True


def _write_json(file: Path, about: dict[str, Any], rows: Sequence[Row]) -> None:
    text = json.dumps(data(about, rows), indent=1)
    if file == STDOUT:
        print(text)
    else:
        file.write_text(text + "\n")


def run(
    *,
    suite: str,
    ops: list[str] | None,
    batch: int | None,
    isa: str | None,
    threads: int | None,
    peers: list[str],
    repeats: int | None,
    quick: bool,
    json_file: Path | None,
    plot_file: Path | None,
) -> bool:
    """Measure and report; whether all results are right."""
    chosen = SUITES[suite]
    if batch and not chosen.batch:
        _refuse(f"suite {suite} has no batches to set")
    work = _work(chosen, ops, batch, quick)
    if not work:
        _refuse(f"suite {suite} has none of the operations {', '.join(ops or ())}")
    report, plot = _needs("report"), _needs("plot") if plot_file else None
    settings = QUICK if quick else FULL
    if repeats:
        settings = replace(settings, rounds=repeats, most_rounds=2 * repeats)
    about = {"format": 1, "suite": suite, "batch": batch or chosen.batch, **asdict(settings)}
    about["freed_memory_kept"] = keep_freed_memory()
    with _isa(isa), Context(threads=threads) as context:
        if isa and isa not in context.info()["isas"]:
            _refuse(f"--isa {isa} is for the CPU, and this is the {context.info()['backend']} backend")
        about |= _machine(context)
        found, absent = load_peers(peers, context.threads)
        bench = Bench(context, found, choose(context), settings, with_ways=suite == "overhead")
        rows, complete = _measured(report.followed(bench.rows(work), len(work)))
        about |= {
            "load_after": os.getloadavg()[0],
            "peers": {peer.name: peer.about for peer in found},
            "absent": absent,
            "yardstick": bench.yardstick.name,
            "copy_bytes_per_second": copy_bandwidth(context.threads),
            "complete": complete,
        }
    if json_file:
        _write_json(json_file, about, rows)
    if json_file != STDOUT:
        report.show(about, rows)
    if plot and any(row.right for row in rows):
        plot.draw(plot_file, about, rows)
    if not complete:
        raise SystemExit(130)
    return all(row.right for row in rows)
