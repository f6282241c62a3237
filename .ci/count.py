# SPDX-License-Identifier: MIT
"""Adds up what the parts of .ci/run did: `count.py FOLDER` prints what failed or was skipped and, last, the totals.

FOLDER has one folder for each part, with the exit status of the part in `status`, and anywhere below the logs of Meson
(testlog*.json) and pytest (junit*.xml). A part that ran no tests counts as one. A test that was skipped though this
machine could run it counts as failed.
"""

import json
import platform
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MESON_OUTCOMES = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}  # all others: failed

PYTEST_OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}  # no such element: passed


def cpu_flags() -> set[str]:
    text = Path("/proc/cpuinfo").read_text()
    return {flag for line in re.findall(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE) for flag in line.split()}


# What a skip's reason may say, and whether that holds on this machine.
ALLOWED_SKIPS = (
    (r"\bavx2\b", not {"avx2", "fma", "f16c"} <= cpu_flags()),
    (r"\bavx512\b", not {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= cpu_flags()),
    (r"\bamxbf16\b", not {"amx_tile", "amx_bf16", "avx512f", "avx512bw", "avx512dq", "avx512vl"} <= cpu_flags()),
    (r"\bneon\b", platform.machine() != "aarch64"),
    (r"\bno C\+\+ compiler\b", not shutil.which("c++")),
    (r"\b[Mm]etal\b", sys.platform != "darwin"),
    (r"\bTC_TEST_DOWNLOAD isn't set\b", True),  # the part macos sets it
    (r"\bsays nothing about a GPU's memory\b|\bthis is the simulator\b", True),  # on the CPU these tests run
    (r"\bTC_LIBRARY alone is under test\b", True),  # the part readme-test installs tcpy
    # The plain parts run these tests; what they need isn't there under a sanitizer, and under qemu.
    (r"\ba sanitizer holds the address space\b", True),
    (r"\ba forked child can't start threads here, even without libtc\b", True),
)


@dataclass(frozen=True)
class Outcome:
    """What became of one test: result is passed, failed or skipped, and why may have several lines."""

    test: str
    result: str
    why: str = ""


def last_lines(text: str, count: int) -> str:
    return "\n".join(text.strip().splitlines()[-count:])


def meson_outcomes(log: Path) -> Iterator[Outcome]:
    for line in log.read_text().splitlines():
        test = json.loads(line)
        result = MESON_OUTCOMES.get(test["result"], "failed")
        output = test.get("stdout", "") + test.get("stderr", "")
        reason = re.search(r"^SKIP: .*", output, re.MULTILINE)
        why = f"{test['result']}\n{last_lines(output, 40)}" if result == "failed" else reason[0] if reason else ""
        yield Outcome(test["name"], result, why)


def pytest_outcomes(log: Path) -> Iterator[Outcome]:
    for case in ElementTree.parse(log).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        mark = next((child for child in case if child.tag in PYTEST_OUTCOMES), None)
        if mark is None:
            yield Outcome(name, "passed")
        else:
            yield Outcome(name, PYTEST_OUTCOMES[mark.tag], last_lines(mark.get("message", ""), 1))


def judged(outcome: Outcome) -> Outcome:
    """The outcome, where a skip without an allowed reason has become a failure."""
    if outcome.result != "skipped" or any(holds and re.search(text, outcome.why) for text, holds in ALLOWED_SKIPS):
        return outcome
    return Outcome(outcome.test, "failed", f"skipped, but this machine could run it: {outcome.why}")


def part_outcomes(part: Path) -> list[Outcome]:
    outcomes = [judged(o) for log in sorted(part.rglob("testlog*.json")) for o in meson_outcomes(log)]
    outcomes += [judged(o) for log in sorted(part.rglob("junit*.xml")) for o in pytest_outcomes(log)]
    ok = (part / "status").read_text().strip() == "0"
    if not outcomes or (not ok and all(o.result != "failed" for o in outcomes)):
        outcomes.append(Outcome("the part itself", "passed" if ok else "failed"))
    return outcomes


def main(folder: Path) -> int:
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for part in sorted(folder.iterdir(), key=lambda part: (part / "status").stat().st_mtime_ns):
        for outcome in part_outcomes(part):
            totals[outcome.result] += 1
            if outcome.result != "passed":
                print(f"{outcome.result}: {part.name}: {outcome.test}:", outcome.why.replace("\n", "\n    "))
    print(", ".join(f"{count} {result}" for result, count in totals.items()))
    return 1 if totals["failed"] or not totals["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
