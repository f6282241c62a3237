# SPDX-License-Identifier: MIT
"""mutants.py and mutate.py on small texts; the kernels themselves are mutate.py's business."""

import argparse
import subprocess
import sys

import mutate
import pytest
from mutants import KINDS, Mutant, mutants
from mutate import KILLED, REFUSED, SURVIVED, head, key, proofs, table, verdict

TEXT = """#line 1 "metal/params.h"
int ignored = a < b ? 1 : 2;
#line 10 "metal/tile.h"
/* a < b, threadgroup_barrier(mem_flags::mem_threadgroup); */
template <int M> struct tile {
  ulong at(ulong row) const { return ulong(row) * x.image; } // a > b
};
#define KERNEL(NAME, M) \\
  kernel void NAME() { threadgroup_barrier(mem_flags::mem_threadgroup); }
"""

# Code, and what each kind makes of it.
EXAMPLES = {
    "barrier deleted": ("simdgroup_barrier(mem_flags::mem_none); x();", ["; x();"]),
    "barrier without memory": ("f(mem_flags::mem_threadgroup);", ["f(mem_flags::mem_none);"]),
    "bound < shifted": ("i < n && vec<int>(j) != 1", ["i <= n && vec<int>(j) != 1", "i + 1 < n && vec<int>(j) != 1"]),
    "bound <= shifted": ("i <= n", ["i < n", "i <= 1 + n"]),
    "bound > shifted": ("i > n >> 2", ["i >= n >> 2", "i > 1 + n >> 2"]),
    "bound >= shifted": ("i >= n", ["i > n", "i + 1 >= n"]),
    "early end dropped": (
        "if (i >= n(1)) return; if (j) continue;",
        ["; if (j) continue;", "if (i >= n(1)) return; ;"],
    ),
    "clamp dropped": (
        "x = min(f(a, b), max(c, 1));",
        ["x = (f(a, b));", "x = (max(c, 1));", "x = min(f(a, b), (c));", "x = min(f(a, b), (1));"],
    ),
    "choice dropped": (
        "x = f(a ? b : c ? d : e, g);",
        ["x = f((b), g);", "x = f((c ? d : e), g);", "x = f(a ? b : (d), g);", "x = f(a ? b : (e), g);"],
    ),
    "stride swapped": ("p.lda + ldb + S::LD + image", ["p.ldb + ldb + S::LD + image", "p.lda + ldb + S::ROWS + image"]),
    "index narrowed": (
        "ulong2 a = ulong(b) * ulong(c(d)) + ulong(e) * f.g * h + long(i) * j + ulong(k);",
        [
            "uint2 a = ulong(b) * ulong(c(d)) + ulong(e) * f.g * h + long(i) * j + ulong(k);",
            "ulong2 a = uint(b) * uint(ulong(c(d))) + ulong(e) * f.g * h + long(i) * j + ulong(k);",
            "ulong2 a = ulong(b) * ulong(c(d)) + uint(e) * uint(f.g) * h + long(i) * j + ulong(k);",
            "ulong2 a = ulong(b) * ulong(c(d)) + ulong(e) * f.g * h + int(i) * int(j) + ulong(k);",
        ],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kind(kind: str) -> None:
    code, expected = EXAMPLES[kind]
    assert [code[:start] + words + code[end:] for start, end, words in KINDS[kind](code)] == expected


def test_places() -> None:
    found = mutants(TEXT)
    assert [(m.kind, m.place, m.within) for m in found] == [
        ("index narrowed", "metal/tile.h:12", "tile"),
        ("index narrowed", "metal/tile.h:12", "tile"),
        ("index narrowed", "metal/tile.h:12", "tile"),
        ("stride swapped", "metal/tile.h:12", "tile"),
        ("barrier deleted", "metal/tile.h:15", "KERNEL"),
        ("barrier without memory", "metal/tile.h:15", "KERNEL"),
    ]
    assert all(mutant.after in " ".join(mutant.applied(TEXT).split()) for mutant in found)
    assert len({mutant.applied(TEXT) for mutant in found}) == len(found)


# ---- Verdicts ------------------------------------------------------------------------------------
MUTANTS = mutants(TEXT)


def complaints(outcomes: list[tuple[Mutant, str]], text: str, whole: bool = True) -> str:
    return "\n".join(verdict(outcomes, proofs(text), whole))


def test_a_survivor_needs_a_proof() -> None:
    outcomes = [(MUTANTS[0], SURVIVED), *[(MUTANTS[4], KILLED)] * 50, (MUTANTS[5], REFUSED)]
    proof = f"# Proofs\n\n{head(MUTANTS[0])}\n  A row has 32 bits, whoever calls it.\n"
    assert "no test finds this" in complaints(outcomes, "")
    assert head(MUTANTS[0]) in complaints(outcomes, "")
    assert complaints(outcomes, proof) == ""
    assert "1 of 11 survive" in complaints(outcomes[:11], proof)
    assert complaints(outcomes[:11], proof, whole=False) == ""
    assert "a proof is about no mutant that survives" in complaints(outcomes[1:], proof)
    assert complaints(outcomes[1:], proof, whole=False) == ""
    assert list(table(outcomes))[2:] == [
        "| barrier deleted | 50 | 0 | 50 | 0 |",
        "| barrier without memory | 1 | 1 | 0 | 0 |",
        "| index narrowed | 1 | 0 | 0 | 1 |",
        "| all | 52 | 1 | 50 | 1 |",
    ]


def test_every_proof_has_a_text() -> None:
    text = mutate.PROOFS.read_text()
    entries = text.split("\n- ")[1:]
    assert len(proofs(text)) == len(entries)
    assert all(len("\n".join(entry.splitlines()[3:]).split()) > 5 for entry in entries)


# ---- Running -------------------------------------------------------------------------------------
def said(code: str, limit: float | None = None) -> str:
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return mutate.first_failure(process, limit)


def test_first_failure() -> None:
    assert said("print('fine')") == ""
    assert said("print('FAIL here', flush=True); import time; time.sleep(99)") == "FAIL here\n"
    assert said("raise SystemExit(3)") == "status 3"
    assert said("import time; time.sleep(99)", 0.1) == "status -9"
    with pytest.raises(mutate.BrokenError):
        said("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")


def test_sample_is_the_seeds() -> None:
    def places(seed: str) -> list[tuple[str, ...]]:
        given = argparse.Namespace(only="", sample=3, seed=seed)
        return [key(mutant) for mutant in mutate.chosen(MUTANTS, given)]

    assert places("a") == places("a")
    assert len({tuple(places(str(seed))) for seed in range(9)}) > 1
