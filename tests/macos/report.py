# SPDX-License-Identifier: MIT
"""Builds, tests and measures libtc on this Mac, and writes all of it into one file that you can send to us.

    python tests/macos/report.py

The report says what machine and tools this is, how each step went, which tests failed with the end of their output, and
speeds beside Apple's own MPSMatrixMultiplication. It holds no names of people, folders or networks. It runs elsewhere
too, with the backend that is there.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "libtc/libtc.1.dylib" if sys.platform == "darwin" else "libtc/libtc.so.1"
OUTPUT_SHOWN = 60  # lines of a failure


# ---- The machine ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Question:
    """A command that tells of the machine, and which of its lines."""

    command: Sequence[str]
    lines: str = ""


QUESTIONS = {
    "system": Question(["sw_vers"], "Version"),
    "kernel": Question(["uname", "-srm"]),
    "model, processor, cores, bytes": Question(
        ["sysctl", "-n", "hw.model", "machdep.cpu.brand_string", "hw.ncpu", "hw.memsize"], "."
    ),
    "GPU": Question(["system_profiler", "SPDisplaysDataType"], "Chipset|Cores|Metal"),
    "Xcode": Question(["xcodebuild", "-version"], "."),
    "Metal compiler": Question(["xcrun", "-sdk", "macosx", "metal", "--version"]),
    "C compiler": Question(["cc", "--version"]),
    "Meson": Question(["meson", "--version"]),
    "commit": Question(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--tags"]),
}


def answer(question: Question) -> str:
    """The lines that were asked for, or the first one where none were or the command failed."""
    try:
        done = subprocess.run(
            question.command, capture_output=True, text=True, timeout=60, check=False, env=environment({})
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return type(error).__name__
    text = done.stderr if done.returncode else done.stdout
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    asked = [line for line in lines if question.lines and not done.returncode and re.search(question.lines, line)]
    return anonymous("; ".join(asked or lines[:1]))


def machine() -> Iterator[tuple[str, str]]:
    yield "Python", platform.python_version()
    for name, question in QUESTIONS.items():
        yield name, answer(question)


def anonymous(text: str) -> str:
    """The text without the names of this user's folders."""
    for folder, name in {str(ROOT): "libtc", str(Path.home()): "~", tempfile.gettempdir(): "tmp"}.items():
        text = text.replace(folder, name)
    return text


# ---- Steps ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Step:
    """A command, in which {build} and {out} are folders, and the variables it runs with."""

    command: Sequence[str]
    variables: Mapping[str, str]
    minutes: int = 30
    only_on_macos: bool = False


PYTHON = sys.executable
TCPY = [PYTHON, "-m", "tcpy"]
PYTEST = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml={out}/junit.xml"]
METAL, CPU = {"TC_BACKEND": "metal"}, {"TC_BACKEND": "cpu"}
STEPS = {
    "setup": Step(["meson", "setup", "{build}", str(ROOT), "-Dmetal_runtime={runtime}"], {}),
    "compile": Step(["meson", "compile", "-C", "{build}"], {}),
    "info": Step([*TCPY, "info"], {}, 2),
    "selftest": Step([*TCPY, "selftest"], {}, 5),
    "C tests": Step(["meson", "test", "-C", "{build}", "--no-rebuild", "--print-errorlogs"], {}, 120),
    "Python tests": Step([*PYTEST, "tests/python", "tcpy"], {}, 60),
    "Python tests on the CPU": Step([*PYTEST, "tests/python", "tcpy"], CPU, 60, only_on_macos=True),
    "installation tests": Step([*PYTEST, "tests/install"], {}, 30),
    "speed beside MPS": Step(["{build}/tests/macos/bench_mps"], {}, 30, only_on_macos=True),
    "speed of gemm": Step([*TCPY, "bench", "--suite=gemm", "--quick"], {}),
    "speed of convolution": Step([*TCPY, "bench", "--suite=resnet50", "--quick"], {}),
    "speed of convolution on the CPU": Step([*TCPY, "bench", "--suite=resnet50", "--quick"], CPU, only_on_macos=True),
}


@dataclass(frozen=True)
class Outcome:
    """What became of a step: its status is that of the command, or a word."""

    step: str
    status: int | str
    seconds: float
    output: str
    tests: dict[str, int]  # how many came out how
    failures: dict[str, str]  # of tests, to the end of their output

    @property
    def good(self) -> bool:
        return self.status == 0


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Ours, with the tools beside the running Python first, and none of the variables that libtc reads."""
    path = sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TC_")}
    return {**ours, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **variables}


def run(name: str, step: Step, build: Path, out: Path, runtime: str) -> Outcome:
    out.mkdir()
    command = [part.format(build=build, out=out, runtime=runtime) for part in step.command]
    variables = {"TC_LIBRARY": str(build / LIBRARY), **step.variables}
    start = time.monotonic()
    status: int | str
    with (out / "output").open("w+") as output:
        try:
            status = subprocess.run(
                command, cwd=ROOT, env=environment(variables), stdout=output, stderr=subprocess.STDOUT,
                timeout=60 * step.minutes, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            status = f"stopped after {step.minutes} minutes"
        except OSError as error:
            status = error.strerror or "can't be started"
        output.seek(0)
        text = output.read()
    seconds = time.monotonic() - start
    results = list(pytest_results(out / "junit.xml")) + list(meson_results(build / "meson-logs/testlog.json", name))
    counts = {result: [r for _, r, _ in results].count(result) for result in ("passed", "failed", "skipped")}
    failures = {test: shown(said) for test, result, said in results if result == "failed"}
    return Outcome(name, status, seconds, text, counts if results else {}, failures)


def shown(text: str) -> str:
    return anonymous("\n".join(text.strip().splitlines()[-OUTPUT_SHOWN:]))


# ---- Results of tests: name, result, what it said ------------------------------------------------
def pytest_results(log: Path) -> Iterator[tuple[str, str, str]]:
    if not log.exists():
        return
    for case in ElementTree.parse(log).iter("testcase"):
        marks = {child.tag: child.get("message", "") + "\n" + (child.text or "") for child in case}
        bad = marks.get("failure") or marks.get("error")
        result = "failed" if bad else "skipped" if "skipped" in marks else "passed"
        yield f"{case.get('classname')}::{case.get('name')}", result, bad or ""


def meson_results(log: Path, step: str) -> Iterator[tuple[str, str, str]]:
    if step != "C tests" or not log.exists():
        return
    names = {"OK": "passed", "SKIP": "skipped"}
    for line in log.read_text().splitlines():
        test = json.loads(line)
        yield test["name"], names.get(test["result"], "failed"), test.get("stdout", "") + test.get("stderr", "")


# ---- The report ----------------------------------------------------------------------------------
def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines) + "\n"


def step_row(outcome: Outcome) -> list[str]:
    tests = ", ".join(f"{count} {result}" for result, count in outcome.tests.items())
    return [outcome.step, "ok" if outcome.good else f"FAILED ({outcome.status})", f"{outcome.seconds:.0f}", tests]


def mps_table(output: str) -> str:
    """The lines of bench_mps: milliseconds, and speeds of batches."""
    head = [
        "M",
        "N",
        "K",
        "B",
        "one call: tc, MPS (ms)",
        "in a batch: tc, MPS (ms)",
        "tc GFLOP/s",
        "MPS / tc",
        "difference",
    ]
    rows = []
    for r in (json.loads(line) for line in output.splitlines() if line.startswith("{")):
        sizes = [str(r[name]) for name in "MNK"] + [["", "transposed"][r["transpose_b"]]]
        calls = [f"{r['tc_ms']:.3f}, {r['mps_ms']:.3f}", f"{r['tc_batch_ms']:.3f}, {r['mps_batch_ms']:.3f}"]
        speed = 2e-6 * r["M"] * r["N"] * r["K"] / r["tc_batch_ms"]
        rows.append([*sizes, *calls, f"{speed:.0f}", f"{r['mps_batch_ms'] / r['tc_batch_ms']:.2f}", r["difference"]])
    return table(head, rows)


def details(outcome: Outcome) -> str:
    """What a reader wants of a step besides its row."""
    parts = [f"## {outcome.step}\n"]
    if outcome.step == "speed beside MPS":
        parts.append(mps_table(outcome.output))
    if outcome.step == "setup":
        summary = re.search(r"^libtc .*?(?=^Found|\Z)", outcome.output, re.MULTILINE | re.DOTALL)
        parts.append(fenced(summary[0] if summary and outcome.good else outcome.output))
    elif not outcome.good or outcome.step == "info" or outcome.step.startswith("speed of"):
        parts.append(fenced(outcome.output))
    parts += [f"### {test}\n\n{fenced(said)}" for test, said in outcome.failures.items()]
    return "\n".join(parts) if len(parts) > 1 else ""


def fenced(text: str) -> str:
    return f"```\n{shown(text)}\n```\n"


def report(facts: Sequence[tuple[str, str]], outcomes: Sequence[Outcome]) -> str:
    parts = [
        "# A report on libtc\n",
        table(["", ""], [list(fact) for fact in facts]),
        table(["step", "outcome", "seconds", "tests"], [step_row(outcome) for outcome in outcomes]),
        *filter(None, map(details, outcomes)),
    ]
    return "\n".join(parts)


def chosen_steps(names: Sequence[str] | None) -> dict[str, Step]:
    here = {name: step for name, step in STEPS.items() if sys.platform == "darwin" or not step.only_on_macos}
    return {name: step for name, step in here.items() if names is None or name in names}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("libtc-report.md"), help="the file to write")
    parser.add_argument(
        "--step", action="append", dest="steps", choices=STEPS, help="only this one, and others so named"
    )
    parser.add_argument("--metal-runtime", default="auto", metavar="KIND", help="Meson's option of that name")
    given = parser.parse_args(arguments)
    outcomes: list[Outcome] = []
    facts = list(machine())
    with tempfile.TemporaryDirectory(prefix="libtc-report-") as folder:
        steps = chosen_steps(given.steps)
        for number, (name, step) in enumerate(steps.items(), 1):
            print(f"{number}/{len(steps)} {name} ...", flush=True)
            outcomes.append(run(name, step, Path(folder, "build"), Path(folder, str(number)), given.metal_runtime))
            given.output.write_text(report(facts, outcomes))  # so that there is something to send if this is stopped
    print(f"{given.output} has the report; please send it.")
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
