"""examples/train_digits.py, from beginning to end, as a user runs it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, SIMULATED

Python = Callable[..., "CompletedProcess[str]"]
SCRIPT = ROOT / "examples" / "train_digits.py"


def picture(path: Path) -> Any:
    import matplotlib.image

    return matplotlib.image.imread(path)[..., :3]


def test_train_digits(python: Python, tmp_path: Path) -> None:
    done = python("-W", "error", SCRIPT)
    assert (done.returncode, done.stderr) == (0, "")
    last = done.stdout.splitlines()[-1]
    match = re.fullmatch(r"held-out accuracy (\d\d\.\d\d)%", last)
    assert match, last
    assert float(match[1]) >= 97
    seconds = re.search(r"trained in ([\d.]+) s", done.stdout)
    assert seconds
    assert float(seconds[1]) < (240 if SIMULATED else 60)

    image = picture(tmp_path / "train_digits.png")
    height, width, _ = image.shape
    assert height > 800
    assert width > 1000
    quarters = [part for half in np.array_split(image, 2) for part in np.array_split(half, 2, axis=1)]
    for quarter in quarters:
        assert 0.01 < (quarter.min(axis=2) < 0.95).mean() < 0.9  # each holds a drawing, and is no blot
    filters = quarters[2]
    reddish, bluish = filters[..., 0] - filters[..., 2], filters[..., 2] - filters[..., 0]
    assert (reddish > 0.3).mean() > 0.01
    assert (bluish > 0.3).mean() > 0.01


def test_train_digits_options(python: Python, tmp_path: Path) -> None:
    def run(*options: object) -> str:
        done = python(SCRIPT, "--epochs", 1, *options)
        assert (done.returncode, done.stderr) == (0, "")
        return re.sub(r"trained in .*", "", done.stdout)

    first, again = run("--seed", 5, "--out", "a.png"), run("--seed", 5, "--out", "a.png")
    other = run("--seed", 6, "--out", "a.png")
    assert first == again != other
    assert {path.name for path in tmp_path.iterdir()} == {"a.png"}
    assert "epoch  1/1 " in first


@pytest.mark.parametrize(
    "options", [["--epochs", "0"], ["--epochs", "few"], ["--seed", "-1"], ["--out", "no/such/folder.png"], ["more"]]
)
def test_wrong_options(python: Python, options: list[str]) -> None:
    done = python(SCRIPT, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: train_digits.py")


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("train_digits", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_gradients(example: Any) -> None:
    """By finite differences of the same network in float64."""
    from tcpy import _reference as reference

    def loss(w: dict[str, Any], images: Any, labels: Any) -> float:
        same: tuple[Any, ...] = ((1, 1), (1, 1), 1)
        h1 = np.maximum(reference.conv2d_forward(images, w["conv1"], *same) + w["bias1"][:, None, None], 0)
        h2 = np.maximum(reference.conv2d_forward(h1, w["conv2"], *same) + w["bias2"][:, None, None], 0)
        pooled = h2.reshape(-1, 32, 4, 2, 4, 2).max(axis=(3, 5))
        value, _ = example.cross_entropy(pooled.reshape(len(images), -1) @ w["linear"] + w["bias3"], labels)
        return float(value)

    rng = np.random.default_rng(30)
    digits, _ = example.load(0)
    images, labels = digits.images[:64], digits.labels[:64]
    weights = example.half(example.initial_weights(rng))
    weights["bias1"] += np.float16(0.1)  # away from 0, where ReLU has no derivative and empty pixels lie
    scores, hidden = example.forward(weights, images)
    _, dscores = example.cross_entropy(scores, labels)
    gradients = example.backward(weights, hidden, (dscores * 4096).astype(np.float16))
    w64 = {name: weight.astype(float) for name, weight in weights.items()}
    for name, gradient in gradients.items():
        for _ in range(3):
            step = 1e-4 * gradient / np.linalg.norm(gradient) + 3e-6 * rng.standard_normal(gradient.shape)
            ends = [loss({**w64, name: w64[name] + sign * step}, images.astype(float), labels) for sign in (1, -1)]
            assert (ends[0] - ends[1]) / 2 == pytest.approx((gradient / 4096 * step).sum(), rel=0.02), name


def test_loss_scale(example: Any) -> None:
    scale = example.LossScale()
    start = scale.factor
    assert scale.unscale({"w": np.array([1, np.inf], np.float32)}) is None
    assert scale.factor == start / 2
    np.testing.assert_array_equal(scale.unscale({"w": np.array([start], np.float32)})["w"], [2])
    for _ in range(99):
        scale.unscale({"w": np.zeros(1, np.float32)})
    assert scale.factor == start


def test_its_bar_on_a_terminal(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [example.Progress(1, 2.0, 1.0, None), example.Progress(2, 1.0, 1.0, 0.5)]
    assert example.show_bar(iter(steps), 2) == steps
    assert "100%" in capsys.readouterr().out
