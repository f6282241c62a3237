# SPDX-License-Identifier: MIT
"""Makes the kernels wrong in every way that mutants.py knows, and tells which faults the tests don't find.

    python tests/metalsim/mutate.py BUILD [--sample N --seed TEXT]

BUILD is a build folder with -Dmetal_runtime=sim. Each mutant goes through the kernels' tests, those that find most of
its kind first, until one fails. One that none finds needs a proof in equivalent.md that it is no fault: a mutant
without one fails this program, and so do more than 3 in 100 that survive, and a proof that no mutant has a use for.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mutants import KINDS, Mutant, mutants

PROOFS = Path(__file__).with_name("equivalent.md")
ALLOWED_SURVIVORS = 0.03
REFUSED, KILLED, SURVIVED = "refused", "killed", "survived"


# ---- Tests ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Killer:
    """A run of a test program: which tests, how many random problems, with checks of memory and races or without.

    The kernels that it has no use for are left out of the text, since compiling takes longer than running.
    """

    tests: str = ""
    program: str = "kernels"
    scale: float = 0.1
    check: bool = False
    left_out: str = ""

    def variables(self) -> dict[str, str]:
        return {"TC_BACKEND": "cpu", "TC_TEST_SCALE": str(self.scale), "METALSIM_CHECK": str(int(self.check))}

    def text(self, text: str) -> str:
        return re.sub(self.left_out, "", text, flags=re.MULTILINE) if self.left_out else text

    def __str__(self) -> str:
        return " ".join([self.program, self.tests or "all", f"x{self.scale:g}", *(["checked"] if self.check else [])])


NO_GEMM, NO_CONVOLUTION = r"^TC_GEMM_TILES\(.*\)$", r"^TC_TILES\(TC_(?:FORWARD|BACKWARD)\w+\)$"
NO_TILES = f"{NO_GEMM}|{NO_CONVOLUTION}"
GEMM, CONVOLUTION = Killer("gemm", left_out=NO_CONVOLUTION), Killer("conv", left_out=NO_GEMM)
SINGLE = [Killer(name, left_out=NO_TILES) for name in ("probe", "rounding")]
CHECKED_GEMM, CHECKED = Killer("gemm", check=True, left_out=NO_CONVOLUTION), Killer(check=True)
FAR_GEMM = Killer("gemm", "far", left_out=NO_CONVOLUTION)
FAR_CONVOLUTION = Killer("conv", "far", left_out=NO_GEMM)
LAST = [Killer(scale=1), CHECKED, Killer(scale=1, check=True)]


def killers(mutant: Mutant) -> list[Killer]:
    """All tests, in the order that is likely to be quick."""
    near, far = [GEMM, CONVOLUTION, *SINGLE], [FAR_GEMM, FAR_CONVOLUTION]
    if "barrier" in mutant.kind:
        near.insert(0, CHECKED_GEMM)
    if "narrowed" in mutant.kind:
        near, far = far, near
    not_first = NO_GEMM if "conv2d" in mutant.file else NO_CONVOLUTION
    return [*sorted(near, key=lambda killer: killer.left_out != not_first), *far, *LAST]


class BrokenError(Exception):
    """The tests fail without a mutant."""


@dataclass(frozen=True)
class Laboratory:
    """Where mutants are tried."""

    build: Path
    text: str

    def check(self, test: Killer) -> float:
        """The seconds that the test takes for the unchanged text, which passes it."""
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            if said := self.fails(test, self.text, Path(folder), None):
                raise BrokenError(f"{test} fails without a fault: {said}")
        return time.monotonic() - start

    def fails(self, test: Killer, text: str, folder: Path, limit: float | None) -> str:
        """What the test says against the text; nothing if it passes."""
        source = folder / "source.metal"
        source.write_text(test.text(text))
        variables = {"TC_TEST_METAL_SOURCE": str(source), "METALSIM_CACHE": str(folder), **test.variables()}
        command = [str(self.build / f"tests/metalsim/kernels/test_metal_{test.program}"), test.tests]
        process = subprocess.Popen(
            command,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        return first_failure(process, limit)

    def outcome(self, mutant: Mutant) -> tuple[str, str]:
        """What became of the mutant, and by what."""
        text = mutant.applied(self.text)
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            for test in killers(mutant):
                said = self.fails(test, text, Path(folder), 30 + 10 * usual_seconds(self, test))
                if re.search(r"\berror: ", said):
                    return REFUSED, said
                if said:
                    return KILLED, str(test)
        return SURVIVED, ""


usual_seconds = cache(Laboratory.check)


def first_failure(process: "subprocess.Popen[str]", limit: float | None) -> str:
    """What the program says when it first fails; then it is ended. A program that takes longer has failed as well."""
    timer = threading.Timer(limit or threading.TIMEOUT_MAX, process.kill)
    timer.start()
    assert process.stdout
    with process.stdout:
        failure = next((line for line in process.stdout if line.startswith("FAIL")), "")
    if failure:
        process.kill()
    timer.cancel()
    status = process.wait()
    if status == -signal.SIGTERM:
        raise BrokenError("someone else ended a test")
    return failure or (f"status {status}" if status else "")


# ---- Proofs --------------------------------------------------------------------------------------
# A proof's head says which mutants it is about: kind, file and name, line and changed line.
HEAD = re.compile(r"^- ([\w<>=, ]+), (metal/[\w.]+), `(.+)`:\n  `(.+)`\n  `(.+)`$", re.MULTILINE)


def key(mutant: Mutant) -> tuple[str, ...]:
    return mutant.kind, mutant.file, mutant.within, mutant.before, mutant.after


def proofs(text: str) -> set[tuple[str, ...]]:
    return {match.groups() for match in HEAD.finditer(text)}


def head(mutant: Mutant) -> str:
    kind, file, within, before, after = key(mutant)
    return f"- {kind}, {file}, `{within}`:\n  `{before}`\n  `{after}`"


# ---- The table -----------------------------------------------------------------------------------
def table(outcomes: Sequence[tuple[Mutant, str]]) -> Iterator[str]:
    counts = Counter((mutant.kind, outcome) for mutant, outcome in outcomes)
    yield "| fault | mutants | not MSL | found | survived |"
    yield "|---|---|---|---|---|"
    for kind in [*KINDS, "all"]:
        mine = [
            sum(n for (k, o), n in counts.items() if kind in (k, "all") and o == outcome)
            for outcome in (REFUSED, KILLED, SURVIVED)
        ]
        if sum(mine):
            yield f"| {kind} | {sum(mine)} | {mine[0]} | {mine[1]} | {mine[2]} |"


def verdict(outcomes: Sequence[tuple[Mutant, str]], proved: set[tuple[str, ...]], whole: bool) -> Iterator[str]:
    """What is wrong with the outcomes."""
    survivors = [mutant for mutant, outcome in outcomes if outcome == SURVIVED]
    for mutant in survivors:
        if key(mutant) not in proved:
            yield f"{mutant.place}: no test finds this, and {PROOFS.name} has no proof:\n{head(mutant)}"
    tried = sum(outcome != REFUSED for _, outcome in outcomes)
    if whole and len(survivors) > ALLOWED_SURVIVORS * tried:
        yield f"{len(survivors)} of {tried} survive, more than {ALLOWED_SURVIVORS:.0%}"
    if whole:
        yield from (
            f"a proof is about no mutant that survives: {', '.join(k)}"
            for k in sorted(proved - set(map(key, survivors)))
        )


# ---- The command ---------------------------------------------------------------------------------
def chosen(all_: Sequence[Mutant], given: argparse.Namespace) -> list[Mutant]:
    asked = [mutant for mutant in all_ if re.search(given.only, " ".join(key(mutant)))]
    return random.Random(given.seed).sample(asked, min(given.sample, len(asked))) if given.sample else asked


def tried(lab: Laboratory, some: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, str]]:
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(lab.outcome, mutant): mutant for mutant in some}
        for number, future in enumerate(as_completed(futures), 1):
            mutant, (outcome, how) = futures[future], future.result()
            line = f"{number}/{len(some)} {outcome} {mutant.place} {mutant.kind}: {how}".rstrip(" :\n")
            print(line, file=sys.stderr, flush=True)
            yield mutant, outcome


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("build", type=Path, help="a build folder with -Dmetal_runtime=sim, compiled")
    parser.add_argument("--sample", type=int, metavar="N", help="so many of them, chosen by the seed")
    parser.add_argument("--seed", default="", metavar="TEXT", help="for CI the commit's hash")
    parser.add_argument("--only", default="", metavar="REGEX", help="those of which kind, file, name or line match")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="at once")
    given = parser.parse_args(arguments)
    build = given.build.resolve()
    lab = Laboratory(build, (build / "metal/tc.metal").read_text())
    whole = not given.sample and not given.only
    outcomes = list(tried(lab, chosen(mutants(lab.text), given), given.jobs))
    lab.check(GEMM)  # nobody changed the build meanwhile
    print("\n".join(table(outcomes)))
    wrong = list(verdict(outcomes, proofs(PROOFS.read_text()), whole))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
