# SPDX-License-Identifier: MIT
"""report.py, on this machine and on made-up results."""

import json
from pathlib import Path

import pytest
import report
from report import Outcome

JUNIT = """<testsuites><testsuite>
<testcase classname="a" name="good"/>
<testcase classname="a" name="skip"><skipped message="no device"/></testcase>
<testcase classname="a" name="bad"><failure message="assert 1 == 2">line 1
line 2</failure></testcase>
</testsuite></testsuites>"""


def test_is_the_command_of_the_readme() -> None:
    assert "&& python tests/macos/report.py\n" in (report.ROOT / "README.md").read_text()


def test_a_step_that_fails_is_in_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is compiled between these two steps, so the second one has no library."""
    output = tmp_path / "report.md"
    assert report.main(["--output", str(output), "--step", "setup", "--step", "info"]) == 1
    text = output.read_text()
    assert "| setup | ok | " in text
    assert "CPU kernels" in text
    assert "| info | FAILED (1) | " in text
    assert report.LIBRARY in text.split("## info")[1]
    assert "| kernel | " in text
    assert str(Path.home()) not in text
    assert str(output) in capsys.readouterr().out


def test_a_step_that_cannot_start_or_end(tmp_path: Path) -> None:
    absent = report.run("absent", report.Step(["{build}/absent"], {}), tmp_path, tmp_path / "1", "auto")
    assert (absent.status, absent.good) == ("No such file or directory", False)
    endless = report.Step([report.PYTHON, "-c", "print('so far', flush=True); input()"], {}, minutes=0)
    stopped = report.run("endless", endless, tmp_path, tmp_path / "2", "auto")
    assert (stopped.status, stopped.good) == ("stopped after 0 minutes", False)


def test_failed_tests_are_named_with_what_they_said(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text(JUNIT)
    results = list(report.pytest_results(tmp_path / "junit.xml"))
    assert [(name, result) for name, result, _ in results] == [
        ("a::good", "passed"),
        ("a::skip", "skipped"),
        ("a::bad", "failed"),
    ]
    assert "assert 1 == 2\nline 1\nline 2" in results[2][2]

    tests = [{"name": "x", "result": "OK"}, {"name": "y", "result": "TIMEOUT", "stdout": "far", "stderr": ""}]
    (tmp_path / "testlog.json").write_text("\n".join(map(json.dumps, tests)))
    assert list(report.meson_results(tmp_path / "testlog.json", "C tests")) == [
        ("x", "passed", ""),
        ("y", "failed", "far"),
    ]

    outcome = Outcome("C tests", 1, 2.0, "all output", {"passed": 1, "failed": 1}, {"y": "far"})
    text = report.report([], [outcome])
    assert "| C tests | FAILED (1) | 2 | 1 passed, 1 failed |" in text
    assert "### y\n\n```\nfar\n```" in text


def test_speeds_beside_mps() -> None:
    row = {"M": 1000, "N": 100, "K": 10, "transpose_b": 1, "tc_ms": 2.0, "mps_ms": 3.0}
    line = json.dumps({**row, "tc_batch_ms": 0.5, "mps_batch_ms": 1.0, "difference": "nan"})
    assert "| 1000 | 100 | 10 | transposed | 2.000, 3.000 | 0.500, 1.000 | 4 | 2.00 | nan |" in report.mps_table(line)
