"""python -m tcpy bench: its tables, its arithmetic and its reports. No test depends on a time."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from conftest import ISAS, ROOT, cpu_only, not_simulated

import tcpy
from tcpy import __main__ as main
from tcpy import _reference as reference
from tcpy import ops
from tcpy.bench import command, measure, overhead, peers, rows, summary, yardstick
from tcpy.bench.measure import Entry, Ratio, Sample
from tcpy.bench.peers import Peer, Variant
from tcpy.bench.problems import operands, our_call, sample
from tcpy.bench.rows import Row
from tcpy.bench.suites import RESULT, SUITES, Case, Conv, Gemm, Suite

Python = Callable[..., "CompletedProcess[str]"]

# ---- Suites ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suite", "distinct", "layers", "products"),
    [("resnet50", 23, 53, 4.087e9), ("mobilenet", 19, 27, 0.5677e9), ("vgg", 9, 13, 15.347e9)],
)
def test_networks_have_their_published_size(suite: str, distinct: int, layers: int, products: float) -> None:
    cases = SUITES[suite].cases
    assert len(set(cases)) == len(cases) == distinct
    assert sum(case.count for case in cases) == layers
    assert sum(case.count * case.flops for case in cases) / 2 == pytest.approx(products, rel=2e-4)


def test_every_case_has_its_own_name() -> None:
    for suite in SUITES.values():
        assert len({str(case) for case in suite.cases}) == len(suite.cases)


def test_names() -> None:
    assert str(Conv(8, 8, 14, 3, 2, 1, 4)) == "8>8 14 k3 s2 p1 g4"
    assert str(Conv(8, 16, 7, 1, batch=3)) == "8>16 7 k1"
    assert str(Gemm(2, 3, 4, transpose_a=True, batch=5)) == "2x3x4 TN x5"


# ---- Sampled results -------------------------------------------------------------------------------------------------

CASES: list[Case] = [
    Conv(4, 6, 9, 3, 2, 1, 2, batch=2),
    Conv(6, 6, 7, 3, 1, 2, 6, batch=2),
    Conv(3, 4, 10, 2, 3, batch=3),  # pixels that no kernel meets
    Conv(3, 4, 5, 7, 3, 4, batch=3),  # taps that meet only padding
    Gemm(5, 6, 7),
    Gemm(5, 6, 7, True, False, 3),
    Gemm(5, 6, 7, False, True),
    Gemm(5, 6, 7, True, True, 2),
]
PROBLEMS = [(case, op) for case in CASES for op in case.ops]


def full(case: Case, op: str, data: dict[str, Any]) -> Any:
    """All results, in float64."""
    data = {name: array.astype(np.float64) for name, array in data.items()}
    if isinstance(case, Gemm):
        a, b = data["a"], data["b"]
        return (a.swapaxes(-1, -2) if case.transpose_a else a) @ (b.swapaxes(-1, -2) if case.transpose_b else b)
    how = (case.stride,) * 2, (case.padding,) * 2, case.groups
    x, weight, dy = data["x"], data["weight"], data["y"]
    if op == "forward":
        return reference.conv2d_forward(x, weight, *how)
    if op == "dx":
        return reference.conv2d_backward_input(dy, weight, (case.size,) * 2, *how)
    return reference.conv2d_backward_weight(x, dy, (case.kernel,) * 2, *how)


@pytest.mark.parametrize(("case", "op"), PROBLEMS, ids=str)
def test_sampled_results(case: Case, op: str) -> None:
    rng = np.random.default_rng(1)
    data = operands(case, rng)
    exact = full(case, op, data)
    assert exact.shape == case.tensors[RESULT[op]]
    sampled = sample(case, op, data, rng)
    np.testing.assert_allclose(sampled.exact, exact[sampled.index], rtol=1e-12, atol=1e-12)
    magnitude = full(case, op, {name: abs(array) for name, array in data.items()})
    np.testing.assert_allclose(sampled.magnitude, magnitude[sampled.index], rtol=1e-12)


@pytest.mark.parametrize(("case", "op"), PROBLEMS, ids=str)
def test_our_calls(case: Case, op: str) -> None:
    rng = np.random.default_rng(2)
    data = operands(case, rng)
    result = our_call(tcpy.default_context(), case, op, data)()
    assert result.shape == case.tensors[RESULT[op]]
    sampled = sample(case, op, data, rng)
    assert sampled.excess(result) <= 1
    assert sampled.coarse(result)
    place = tuple(axis[0] for axis in sampled.index)
    result[place] += np.float16(2 * abs(result[place]) + 1)
    assert sampled.excess(result) > 1
    assert not sampled.coarse(result)


# ---- Measuring -------------------------------------------------------------------------------------------------------


def entry(*samples: tuple[float, bool]) -> Entry:
    """Samples of so many seconds, clean or not."""
    made = {number: Sample(seconds, 0 if clean else 10**6) for number, (seconds, clean) in enumerate(samples)}
    return Entry("tcpy", [], samples=made)


def test_samples_with_context_switches_are_dropped() -> None:
    some = entry((1, True), (2, True), (3, True), (100, False), (200, False))
    assert (some.median, some.dropped, some.noisy) == (2, 2, False)


def test_they_count_where_no_others_are_left() -> None:
    every = entry((100, False), (200, False))
    assert (every.median, every.dropped, every.noisy) == (150, 0, True)


def test_ratios_are_taken_round_by_round() -> None:
    ours = entry((1, True), (2, True), (4, True), (8, True), (16, True))
    assert measure.ratio(ours, entry((3, True), (6, True), (12, True), (24, True), (48, True))) == (3, 3, 3, 5, False)
    theirs = entry((9, False), (2, True), (8, True), (24, True), (64, True))
    assert measure.ratio(ours, theirs) == Ratio(1.75, 2.5, 3.25, 4, False)


def test_a_ratio_of_unclean_samples_says_so() -> None:
    assert measure.ratio(entry((1, True), (1, False)), entry((2, False), (4, True))) == (2.5, 3, 3.5, 2, True)


def scripted(monkeypatch: pytest.MonkeyPatch, clean: Callable[[int], bool]) -> list[str | None]:
    """Sample without a clock; the log tells who was called for each sample, which is clean or not by its number."""
    log: list[str | None] = []

    def time_calls(call: Any, count: int) -> Sample:
        log.append(call())
        return Sample(1.0, 0 if clean(len(log) - 1) else 10**6)

    monkeypatch.setattr(measure, "WAKE_SECONDS", 0)
    monkeypatch.setattr(measure, "time_calls", time_calls)
    monkeypatch.setattr(measure, "_settle", lambda: log.append("settle"))
    return log


def calls(name: str, sets: int) -> list[Callable[[], str]]:
    return [lambda number=number: f"{name}{number}" for number in range(sets)]  # type: ignore[misc]


def test_entries_take_turns_on_changing_data(monkeypatch: pytest.MonkeyPatch) -> None:
    log = scripted(monkeypatch, lambda number: True)
    ours, a, b = Entry("tcpy", calls("ours", 2)), Entry("torch", calls("a", 2)), Entry("torch", calls("b", 2))
    measure.take_turns(ours, [a, b], 3, 6)
    rounds = [["settle", f"ours{n}", "settle", f"a{n}", f"b{n}"] for n in (0, 1, 0)]
    assert log == [name for one in rounds for name in one]
    assert list(a.samples) == [0, 1, 2]


def test_more_rounds_where_ours_are_not_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, lambda number: number > 4)
    ours = Entry("tcpy", calls("ours", 1))
    measure.take_turns(ours, [], 3, 10)
    assert len(ours.samples) == 7
    scripted(monkeypatch, lambda number: False)
    ours = Entry("tcpy", calls("ours", 1))
    measure.take_turns(ours, [], 3, 10)
    assert len(ours.samples) == 10


def test_an_entry_over_its_budget_sits_out(monkeypatch: pytest.MonkeyPatch) -> None:
    log = scripted(monkeypatch, lambda number: True)
    ours, slow = Entry("tcpy", calls("ours", 1)), Entry("torch", calls("slow", 1), budget=1.0)
    assert measure.warm_up(slow) == "slow0"
    measure.take_turns(ours, [slow], 3, 6)
    assert log == [None, "settle", "ours0", "ours0", "ours0"]  # None: the first call, which warms up
    assert slow.samples == {0: Sample(1.0, 0)}
    assert len(ours.samples) == 3


def test_a_sample_of_a_short_call_has_many() -> None:
    short = Entry("tcpy", [lambda: None])
    measure.warm_up(short)
    assert short.repeats > 1000
    assert short.sleepy


def test_the_fastest_sample_says_how_many_switches_are_harmless() -> None:
    short = Entry("tcpy", [], samples={0: Sample(0.019, 0), 1: Sample(0.019, 1), 2: Sample(1.0, 1)})
    assert list(short.clean) == [0]
    long = Entry("tcpy", [], samples={0: Sample(0.1, 5), 1: Sample(0.1, 6), 2: Sample(1.0, 6)})
    assert list(long.clean) == [0]
    many = Entry("tcpy", [], repeats=10, samples={0: Sample(0.002, 1), 1: Sample(0.002, 2)})
    assert list(many.clean) == [0]


def test_a_sample_has_its_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([10, 13])
    monkeypatch.setattr(measure, "_switches", lambda: next(counts))
    assert measure.time_calls(lambda: None, 1).switches == 3


def test_switches_are_counted() -> None:
    assert measure._switches() >= 0


# ---- Means -----------------------------------------------------------------------------------------------------------


def row(count: int, ours: float, **theirs: dict[str, float]) -> Row:
    case = Conv(1, 1, count, 1, count=count)
    made = Row(case, "forward", 0.5, entry((ours, True)), entry((1.0, True)), yardstick_flops=case.flops)
    made.peers = {
        peer: {layout: entry((seconds, True)) for layout, seconds in both.items()} for peer, both in theirs.items()
    }
    return made


def test_means() -> None:
    table = [
        row(1, 1.0, a={"nchw": 2.0, "channels_last": 3.0}, b={"nchw": 1.0}),
        row(3, 2.0, a={"nchw": 20.0, "channels_last": 16.0}),
    ]
    a, b, fastest, against_yardstick = summary.means(table)
    assert (a.op, a.against, a.rows, a.plain, a.lowest, a.lowest_case) == ("forward", "a", 2, 4, 2, str(table[0].case))
    assert a.weighted == pytest.approx((2 * 8**3) ** (1 / 4))
    assert (b.rows, b.plain) == (1, 1)
    assert (fastest.against, fastest.rows, fastest.lowest) == ("fastest peer", 2, 1)
    assert fastest.plain == pytest.approx(math.sqrt(1 * 8))
    assert (against_yardstick.lowest, against_yardstick.plain) == (0.5, pytest.approx(math.sqrt(1 / 2)))


def test_noisy_rows_are_left_out_of_means() -> None:
    noisy = row(1, 1.0, a={"nchw": 2.0})
    noisy.ours.samples[0] = Sample(1.0, 10**6)
    found = summary.means([noisy, row(2, 1.0, a={"nchw": 5.0})])
    assert [(mean.against, mean.rows, mean.left_out) for mean in found] == [
        (against, 1, 1) for against in ("a", "fastest peer", "yardstick")
    ]
    assert found[0].plain == pytest.approx(5)
    assert summary.means([noisy]) == []


def test_wrong_rows_have_no_part_in_means() -> None:
    assert summary.means([replace(row(1, 1.0, a={"nchw": 2.0}), excess=1.01)]) == []


# ---- The command, on a small suite and made-up peers -----------------------------------------------------------------


def exact_call(case: Case, op: str, data: Any) -> Callable[[], Any]:
    return lambda: full(case, op, data).astype(np.float32)


def fake_peer(prepare: Callable[..., Callable[[], Any]], name: str, threads: int) -> Peer:
    both, rows = [
        [Variant(name, layout, "fake", prepare, lambda case, result: result) for layout in layouts]
        for layouts in (("nchw", "other"), ("",))
    ]
    return Peer(name, f"made up, {threads} threads", both, rows)


def wrong_call(case: Case, op: str, data: Any) -> Callable[[], Any]:
    return lambda: 2 * full(case, op, data) + 1


def refusing_call(case: Case, op: str, data: Any) -> Callable[[], Any]:
    raise RuntimeError("can't do this\nsecond line")


def absent(name: str, threads: int) -> Peer:
    raise ModuleNotFoundError("No module named 'that'")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run the command in this process; its status and stdout."""
    monkeypatch.setattr(yardstick, "CEILING_SECONDS", 1e-6)
    monkeypatch.setattr(yardstick, "COPY_BYTES", 2**16)
    monkeypatch.setattr(yardstick, "SQUARES", (16,))
    monkeypatch.setattr(measure, "SAMPLE_SECONDS", 1e-6)
    monkeypatch.setattr(measure, "WAKE_SECONDS", 0)
    monkeypatch.setattr(measure, "_switches", lambda: 0)  # whatever else this machine does
    monkeypatch.setattr(command, "keep_freed_memory", lambda: True)  # for a process of its own
    tiny = [Conv(3, 4, 5, 3, 1, 1, count=2), Conv(4, 4, 4, 1)]
    monkeypatch.setitem(SUITES, "tiny", Suite("two small layers", tiny, 2))
    monkeypatch.setitem(SUITES, "tiny-gemm", Suite("a small product", [Gemm(4, 5, 6, True)], None))
    makers = {
        "torch-fp16": lambda *which: fake_peer(exact_call, *which),
        "torch-bf16": lambda *which: fake_peer(wrong_call, *which),
        "torch-fp32": lambda *which: fake_peer(refusing_call, *which),
        "mlx-fp16": absent,
    }
    for name, make in makers.items():
        monkeypatch.setitem(peers.PEERS, name, ("that", make))

    def run(*arguments: object) -> tuple[int, str]:
        status = main.main(["bench", "--repeats", "2", *map(str, arguments)])
        output = capsys.readouterr()
        assert output.err == ""
        return status, output.out

    return run


def test_tables(bench: Any) -> None:
    status, text = bench("--suite", "tiny", "--threads", 2)
    assert status == 0
    lines = text.splitlines()
    for start in (
        "tiny, batch 2: 2 rounds",
        "torch-fp16: made up, 2 threads",
        "mlx-fp16: absent, not installed (pip install that)",
        "torch-bf16 other: 4>4 4 k1 dw: its result is wrong",
        "torch-fp32 nchw: 3>4 5 k3 p1 forward: RuntimeError: can't do this",
        "dx       torch-fp16       2 ",
        "dw       fastest peer     2 ",
        "forward  yardstick        2 ",
    ):
        assert sum(line.startswith(start) for line in lines) == 1, start
    for op in ("forward", "dx", "dw"):
        assert sum(line.startswith(f"3>4 5 k3 p1  {op} ") for line in lines) == 1
    assert "second line" not in text


def test_json(bench: Any, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    status, text = bench("--suite", "tiny", "--op", "dw,forward", "--batch", 3, "--json", file)
    found = json.loads(file.read_text())
    assert (status, found["format"], found["suite"], found["batch"], found["complete"]) == (0, 1, "tiny", 3, True)
    assert "3>4 5 k3 p1" in text
    assert [(line["case"], line["op"]) for line in found["rows"]] == [
        (case, op) for case in ("3>4 5 k3 p1", "4>4 4 k1") for op in ("dw", "forward")
    ]
    first = found["rows"][0]
    assert (first["right"], first["count"], first["flop"]) == (True, 2, 2 * 3 * 4 * 25 * 27)
    assert first["bytes"] == 2 * (3 * 3 * 25 + 4 * 27 + 3 * 4 * 25)
    assert set(first["peers"]) == {"torch-fp16"}
    assert set(first["peers"]["torch-fp16"]["layouts"]) == {"nchw", "other"}
    assert 2 <= first["peers"]["torch-fp16"]["ratio"]["rounds"] <= 4
    assert set(first["missing"]) == {
        f"torch-{kind} {layout}" for kind in ("bf16", "fp32") for layout in ("nchw", "other")
    }
    assert {(mean["op"], mean["against"], mean["rows"]) for mean in found["means"]} == {
        (op, against, 2) for op in ("dw", "forward") for against in ("torch-fp16", "fastest peer", "yardstick")
    }


def test_json_on_stdout_is_nothing_else(bench: Any) -> None:
    status, text = bench("--suite", "tiny-gemm", "--peers", "torch-fp16", "--json", "-")
    found = json.loads(text)
    assert (status, found["batch"], found["rows"][0]["case"]) == (0, None, "4x5x6 TN")
    assert set(found["rows"][0]["peers"]["torch-fp16"]["layouts"]) == {"rows"}


@pytest.mark.parametrize("arguments", [("--suite", "tiny"), ("--suite", "tiny-gemm", "--peers", "")])
def test_plot(bench: Any, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    file = tmp_path / "plot.png"
    assert bench(*arguments, "--plot", file)[0] == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    assert file.stat().st_size > 10000


def test_a_wrong_result_is_named_and_not_timed(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    right, file = ops.conv2d_backward_input, tmp_path / "result.json"

    def wrong(dy: Any, weight: Any, **how: Any) -> Any:
        return right(dy, weight, **how) + np.float16(0.5)

    monkeypatch.setattr(ops, "conv2d_backward_input", wrong)
    status, text = bench("--suite", "tiny", "--json", file, "--plot", tmp_path / "plot.png")
    assert status == 1
    assert [line.split()[-1] for line in text.splitlines() if " dx  " in line] == ["WRONG", "WRONG"]
    assert text.count("WRONG: 4>4 4 k1 dx: the error is ") == 1
    by_op = {line["op"]: line for line in json.loads(file.read_text())["rows"]}
    assert (by_op["dx"]["right"], "tcpy" in by_op["dx"]) == (False, False)
    assert (by_op["dw"]["right"], "tcpy" in by_op["dw"]) == (True, True)
    assert bench("--suite", "tiny", "--op", "dx", "--plot", tmp_path / "none.png")[0] == 1
    assert not (tmp_path / "none.png").exists()


def test_interrupted(bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    done = iter(range(2))
    take_turns = rows.take_turns

    def interrupted(*arguments: Any) -> None:
        if next(done, None) is None:
            raise KeyboardInterrupt
        take_turns(*arguments)

    monkeypatch.setattr(rows, "take_turns", interrupted)
    with pytest.raises(SystemExit) as caught:
        bench("--suite", "tiny", "--peers", "torch-fp16", "--json", "-")
    found = json.loads(capsys.readouterr().out)
    assert (caught.value.code, found["complete"], len(found["rows"])) == (130, False, 2)


def test_what_takes_too_long_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    case, rng = Conv(3, 4, 5, 3), np.random.default_rng(3)
    maker = fake_peer(exact_call, "slow", 1)
    standard = rows.Yardstick("nothing", "tcpy", 1, lambda: None)
    context = tcpy.default_context()
    one = rows.Bench(context, [maker], standard, rows.Settings(1, 2, 0.5, 1), with_ways=False, rng=rng)
    one.rates = {("slow", "nchw", "dx"): case.flops / 6.0, ("slow", "other", "dx"): case.flops / 4.0}
    (measured,) = one.rows([(case, "dx")])
    assert measured.missing == {"slow nchw": "not begun: a call takes 6 s at its best rate so far"}
    assert set(measured.peers["slow"]) == {"other"}
    assert one.rates["slow", "nchw", "dx"] == case.flops / 6.0
    assert one.rates["slow", "other", "dx"] > case.flops / 4.0


@cpu_only
def test_isa_and_threads(bench: Any) -> None:
    before = os.environ.get("TC_CPU_ISA")
    for isa in ISAS:
        found = json.loads(bench("--suite", "tiny-gemm", "--peers=", "--isa", isa, "--threads", 1, "--json", "-")[1])
        assert (found["isa"], found["threads"], found["environment"].get("TC_CPU_ISA")) == (isa, 1, isa)
    assert os.environ.get("TC_CPU_ISA") == before


@cpu_only
def test_peers_are_held_to_the_isa(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}

    def look(name: str, threads: int) -> Peer:
        seen.update(os.environ)
        return fake_peer(exact_call, name, threads)

    monkeypatch.setitem(peers.PEERS, "torch-fp16", ("that", look))
    for variables in peers.HELD.values():
        for name in variables:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MKL_ENABLE_INSTRUCTIONS", "AVX")  # the user's own order
    wanted = {**peers.HELD["generic"], "MKL_ENABLE_INSTRUCTIONS": "AVX"}
    found = json.loads(bench("--suite", "tiny-gemm", "--peers", "torch-fp16", "--isa", "generic", "--json", "-")[1])
    assert wanted.items() <= seen.items()
    assert wanted.items() <= found["environment"].items()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


# ---- The yardstick ---------------------------------------------------------------------------------------------------


@cpu_only
def test_the_ceiling_is_the_kernel_in_use(context: tcpy.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yardstick, "CEILING_SECONDS", 1e-6)
    found = yardstick.ceiling(context)
    assert found is not None
    assert found.name == f"the ceiling: {context.info()['kernel']} alone, out of first-level caches"
    assert found.flops > 0
    assert found.flops % context.threads == 0
    assert found.call() is None
    assert yardstick.choose(context) == replace(found, flops=ANY, call=ANY)


def test_a_product_stands_in_where_nothing_measures_the_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yardstick._load, "path", "/nowhere/libtc.so")
    monkeypatch.setattr(yardstick, "SQUARES", (32,))
    assert yardstick.ceiling(tcpy.default_context()) is None
    assert yardstick.choose(tcpy.default_context()).name.endswith(", the fastest of a few products")


def test_quick_spreads_over_the_suite(bench: Any) -> None:
    for suite in SUITES.values():
        chosen = command._spread(suite.cases)
        assert len(chosen) == min(len(suite.cases), command.QUICK_CASES)
        assert (chosen[0], chosen[-1]) == (suite.cases[0], suite.cases[-1])
        assert chosen == [case for case in suite.cases if case in chosen]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--suite", "lenet"], "lenet"),
        (["--op", "forward,grad"], "grad"),
        (["--op", "gemm"], "resnet50 has none of the operations gemm"),
        (["--suite", "gemm", "--op", "forward"], "gemm has none of the operations forward"),
        (["--suite", "gemm", "--batch", "2"], "gemm has no batches"),
        (["--batch", "0"], "'0'"),
        (["--threads", "-1"], "'-1'"),
        (["--threads", "5000"], "5000"),
        (["--isa", "sse9"], "sse9"),
        (["--peers", "caffe"], "caffe"),
        (["--json", "/nowhere/x.json"], "/nowhere/x.json"),
        (["--plot", "/nowhere/x.png"], "/nowhere/x.png"),
    ],
)
def test_refused(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main.main(["bench", *arguments])
    except SystemExit as error:
        status = error.code
    output = capsys.readouterr()
    assert (status, output.out) == (2, "")
    assert complaint in output.err


@pytest.mark.parametrize(("package", "arguments"), [("rich", []), ("matplotlib", ["--plot", "x.png"])])
def test_missing_packages(package: str, arguments: list[str], python: Python) -> None:
    script = (
        f"import sys; sys.modules[{package!r}] = None; from tcpy.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    done = python("-c", script, "bench", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tcpy: bench needs {package}: pip install 'tcpy[bench]'\n"


def test_absent_peers_by_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    found, reasons = peers.load_peers(peers.PEERS, 1)
    assert found == []
    assert reasons == {
        **dict.fromkeys(["torch-fp16", "torch-bf16", "torch-fp32"], "not installed (pip install torch)"),
        "mlx-fp16": "not installed (pip install mlx)",
    }


# ---- Overhead, and the command in a process of its own ---------------------------------------------------------------


@pytest.mark.parametrize(("case", "op"), [(case, op) for case in SUITES["overhead"].cases for op in case.ops], ids=str)
def test_ways_of_calling_compute_the_same(case: Case, op: str) -> None:
    rng, context = np.random.default_rng(4), tcpy.default_context()
    data = operands(case, rng)
    sampled = sample(case, op, data, rng)
    made = {name: way(case, op, data) for name, way in overhead.ways(context)}
    assert sampled.excess(made["prepared"]()) <= 1
    results = {}  # where C writes
    for name in ("C function", "ctypes alone"):
        buffer = made[name].args[1]._obj.buffers[RESULT[op]]
        results[name] = buffer.numpy(np.float16, data[RESULT[op]].shape)
        results[name][...] = np.nan
    assert made["C function"]() == 0
    assert sampled.excess(results["C function"]) <= 1
    made["ctypes alone"]()
    assert np.isnan(results["ctypes alone"]).all()


@not_simulated
def test_overhead_in_a_process_of_its_own(python: Python) -> None:
    done = python(
        "-W",
        "error",
        "-m",
        "tcpy",
        "bench",
        "--suite",
        "overhead",
        "--op",
        "gemm,dw",
        "--quick",
        "--peers=",
        "--json",
        "-",
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert [(line["case"], line["op"], line["right"]) for line in found["rows"]] == [
        ("1x1x1 NN", "gemm", True),
        ("1>1 1 k1", "dw", True),
    ]
    for line in found["rows"]:
        assert set(line["ways"]) == {"prepared", "C function", "ctypes alone"}
        assert line["peers"] == line["missing"] == {}
    assert found["freed_memory_kept"] == (platform.libc_ver()[0] == "glibc")


@not_simulated
def test_progress_on_a_terminal(tmp_path: Path) -> None:
    master, terminal = os.openpty()
    command_line = [sys.executable, "-m", "tcpy", "bench", "--suite", "overhead", "--op", "gemm", "--quick", "--peers="]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    done = subprocess.run(
        command_line, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=terminal, timeout=60
    )
    os.close(terminal)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert done.returncode == 0
    assert "0/1" in shown
    assert "0/1" not in done.stdout.decode()
    assert "1x1x1 NN" in done.stdout.decode()
