"""Train a small convolutional network on handwritten digits, in half precision, with tcpy and NumPy alone.

    python examples/train_digits.py [--epochs 15] [--seed 0] [--out train_digits.png]

The 1797 digits (8x8 pixels, written by 43 people) ship inside scikit-learn. The network is

    image -> convolution 3x3 -> ReLU -> convolution 3x3 -> ReLU -> max-pooling 2x2 -> linear layer -> 10 scores

and every convolution and matrix product, forward and backward, is a call of tcpy. What half precision asks for:

1. *Master weights.* A float16 has 11 bits, so adding a small update to a weight would often change nothing. The
   weights live in float32; each step works on a float16 copy, and their gradients come out of tcpy as float32.
2. *Loss scaling.* Gradients under 6e-8 vanish in float16. The loss is multiplied by a large factor first, and the
   gradients of the weights are divided by it at the end. If one overflows, that step is skipped and the factor halved.

It leaves a picture with the learning curves, the filters that the first layer learned, and the digits misread.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")  # draws into a file: no window, no display
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tcpy

Array = NDArray[Any]
Arrays = dict[str, Array]

BATCH = 64


# ---- Data ------------------------------------------------------------------------------------------------------------


class Digits(NamedTuple):
    images: Array  # float16 [n, 1, 8, 8], from 0 to 1
    labels: Array  # int [n]


def load(seed: int) -> tuple[Digits, Digits]:
    """Split the real handwritten digits: four fifths to train on, one fifth held out."""
    digits = load_digits()
    images, labels = (digits.images[:, None] / 16).astype(np.float16), digits.target
    split = train_test_split(images, labels, test_size=0.2, stratify=labels, random_state=seed)
    return Digits(split[0], split[2]), Digits(split[1], split[3])


# ---- The network -----------------------------------------------------------------------------------------------------


def initial_weights(rng: np.random.Generator) -> Arrays:
    """The float32 master weights: random, scaled so that signals keep their size from layer to layer; biases 0."""

    def random(*shape: int, inputs: int) -> Array:
        return rng.normal(0, np.sqrt(2 / inputs), shape).astype(np.float32)

    return {
        "conv1": random(16, 1, 3, 3, inputs=1 * 3 * 3),
        "bias1": np.zeros(16, np.float32),
        "conv2": random(32, 16, 3, 3, inputs=16 * 3 * 3),
        "bias2": np.zeros(32, np.float32),
        "linear": random(32 * 4 * 4, 10, inputs=32 * 4 * 4),
        "bias3": np.zeros(10, np.float32),
    }


def half(weights: Arrays) -> Arrays:
    """Copy the master weights to float16, for one step."""
    return {name: weight.astype(np.float16) for name, weight in weights.items()}


class Hidden(NamedTuple):
    """What `backward` needs of the way forward."""

    images: Array  # [n, 1, 8, 8]
    h1: Array  # [n, 16, 8, 8], after the first ReLU
    passed: Array  # bool [n, 32, 4, 2, 4, 2]: the pixels of the second layer that ReLU and pooling let through
    flat: Array  # [n, 512], after pooling


def forward(w: Arrays, images: Array) -> tuple[Array, Hidden]:
    """Scores [n, 10] in float32."""
    n = len(images)
    h1 = np.maximum(tcpy.conv2d_forward(images, w["conv1"], w["bias1"], padding=1), 0)
    h2 = np.maximum(tcpy.conv2d_forward(h1, w["conv2"], w["bias2"], padding=1), 0)
    squares = h2.reshape(n, 32, 4, 2, 4, 2)
    pooled = squares.max(axis=(3, 5), keepdims=True)
    flat = pooled.reshape(n, 512)
    scores = tcpy.gemm(flat, w["linear"], dtype=np.float32) + w["bias3"]
    return scores, Hidden(images, h1, (squares == pooled) & (squares > 0), flat)


def backward(w: Arrays, hidden: Hidden, dscores: Array) -> Arrays:
    """Gradients of all weights in float32, from the gradient of the scores: the layers in reverse order."""
    n = len(dscores)
    dpooled = tcpy.gemm(dscores, w["linear"], transpose_b=True)
    dh2 = np.where(hidden.passed, dpooled.reshape(n, 32, 4, 1, 4, 1), np.float16(0)).reshape(n, 32, 8, 8)
    dh1 = tcpy.conv2d_backward_input(dh2, w["conv2"], input_size=8, padding=1)
    dh1[hidden.h1 <= 0] = 0
    return {
        "conv1": tcpy.conv2d_backward_weight(hidden.images, dh1, kernel_size=3, padding=1, dtype=np.float32),
        "bias1": dh1.sum(axis=(0, 2, 3), dtype=np.float32),
        "conv2": tcpy.conv2d_backward_weight(hidden.h1, dh2, kernel_size=3, padding=1, dtype=np.float32),
        "bias2": dh2.sum(axis=(0, 2, 3), dtype=np.float32),
        "linear": tcpy.gemm(hidden.flat, dscores, transpose_a=True, dtype=np.float32),
        "bias3": dscores.sum(axis=0, dtype=np.float32),
    }


def cross_entropy(scores: Array, labels: Array) -> tuple[float, Array]:
    """Mean loss of a batch, and its gradient by the scores."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_probability = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))
    gradient = np.exp(log_probability)
    gradient[rows, labels] -= 1
    return float(-log_probability[rows, labels].mean()), gradient / len(labels)


# ---- Training --------------------------------------------------------------------------------------------------------


class LossScale:
    """A factor for the loss: as large as the gradients bear."""

    def __init__(self) -> None:
        self.factor = 2.0**16
        self.good_steps = 0

    def unscale(self, gradients: Arrays) -> Arrays | None:
        """Divide the factor out again; None if a gradient overflowed, and then the step must be skipped."""
        if not all(np.isfinite(gradient).all() for gradient in gradients.values()):
            self.factor /= 2
            self.good_steps = 0
            return None
        unscaled = {name: gradient / self.factor for name, gradient in gradients.items()}
        self.good_steps += 1
        if self.good_steps % 100 == 0:
            self.factor *= 2
        return unscaled


class Adam:
    """The usual optimizer, on float32 weights in place."""

    def __init__(self, weights: Arrays) -> None:
        self.mean = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self.square = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self.steps = 0

    def step(self, weights: Arrays, gradients: Arrays, rate: float) -> None:
        self.steps += 1
        for name, gradient in gradients.items():
            self.mean[name] += 0.1 * (gradient - self.mean[name])
            self.square[name] += 0.001 * (gradient**2 - self.square[name])
            mean = self.mean[name] / (1 - 0.9**self.steps)
            square = self.square[name] / (1 - 0.999**self.steps)
            weights[name] -= rate * mean / (np.sqrt(square) + 1e-8)


class Progress(NamedTuple):
    """Where training stands after a step; `accuracy` is that on held-out digits, measured at the end of each epoch."""

    step: int
    loss: float
    scale: float
    accuracy: float | None


def accuracy(weights: Arrays, digits: Digits) -> float:
    scores, _ = forward(half(weights), digits.images)
    return float((scores.argmax(axis=1) == digits.labels).mean())


def train(weights: Arrays, train_set: Digits, held_out: Digits, epochs: int, seed: int) -> Iterator[Progress]:
    """Train the weights in place, reporting after every step."""
    rng = np.random.default_rng(seed)
    scale, optimizer = LossScale(), Adam(weights)
    steps = steps_per_epoch(train_set)
    for step in range(epochs * steps):
        if step % steps == 0:
            order = rng.permutation(len(train_set.labels))
        batch = order[step % steps * BATCH :][:BATCH]
        w = half(weights)
        scores, hidden = forward(w, train_set.images[batch])
        loss, dscores = cross_entropy(scores, train_set.labels[batch])
        with np.errstate(over="ignore", invalid="ignore"):  # a factor that is too large shows in the gradients
            gradients = scale.unscale(backward(w, hidden, (dscores * scale.factor).astype(np.float16)))
        if gradients is not None:
            optimizer.step(weights, gradients, rate=0.006 * (1 - step / (epochs * steps)))

        last = (step + 1) % steps == 0
        yield Progress(step + 1, loss, scale.factor, accuracy(weights, held_out) if last else None)


def steps_per_epoch(digits: Digits) -> int:
    return -(-len(digits.labels) // BATCH)


# ---- What a person sees ----------------------------------------------------------------------------------------------


def show(progress: Iterator[Progress], steps: int, epochs: int) -> list[Progress]:
    """Follow the training: a bar on a terminal, otherwise a line for each epoch."""
    if sys.stdout.isatty():
        return show_bar(progress, steps * epochs)
    history = []
    for now in progress:
        history.append(now)
        if now.accuracy is not None:
            mean = np.mean([past.loss for past in history[-steps:]])
            print(f"epoch {now.step // steps:2}/{epochs}  loss {mean:.4f}  held-out {now.accuracy:7.2%}", flush=True)
    return history


def show_bar(progress: Iterator[Progress], total: int) -> list[Progress]:
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    history = []
    columns = [TextColumn("training"), BarColumn(), TextColumn("{task.percentage:3.0f}%"), TimeElapsedColumn()]
    with Bar(*columns, TextColumn("loss {task.fields[loss]:.4f}  held-out {task.fields[accuracy]:.2%}")) as bar:
        task = bar.add_task("training", total=total, loss=0.0, accuracy=0.0)
        for now in progress:
            history.append(now)
            bar.update(task, completed=now.step, loss=now.loss)
            if now.accuracy is not None:
                bar.update(task, accuracy=now.accuracy)
    return history


INK, PALE, ACCURACY, WRONG = "#2b2d42", "#b8c4d6", "#2a9d8f", "#d1495b"
STYLE: Any = {
    "axes.edgecolor": PALE,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.1,
    "grid.color": "#eceff3",
    "legend.frameon": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
HEADING = {"x": 0.03, "ha": "left", "size": 12, "weight": "bold"}


def draw(out: Path, history: list[Progress], steps: int, weights: Arrays, held_out: Digits) -> None:
    """The picture: loss, accuracy, filters, misread digits."""
    scores, _ = forward(half(weights), held_out.images)
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(11, 8.5))
        parts: Any = figure.subfigures(2, 2, height_ratios=[1, 1.15], hspace=0.03, wspace=0.03)
        (loss, curve), (filters, misread) = parts
        draw_loss(loss, history, steps)
        draw_accuracy(curve, history, steps)
        draw_filters(filters, weights["conv1"][:, 0])
        draw_misread(misread, scores.argmax(axis=1), held_out)
        figure.savefig(out, dpi=130)
        plt.close(figure)


def draw_loss(figure: Any, history: list[Progress], steps: int) -> None:
    figure.suptitle("Loss", **HEADING)
    epochs = np.array([now.step for now in history]) / steps
    losses = np.array([now.loss for now in history])
    smooth = [losses[max(0, i - steps + 1) : i + 1].mean() for i in range(len(losses))]
    axes = figure.subplots()
    axes.semilogy(epochs, losses, color=PALE, linewidth=1, label="each batch")
    axes.semilogy(epochs, smooth, color=INK, linewidth=2, label="mean over an epoch's batches")
    axes.set(xlabel="epoch", xlim=(0, epochs[-1]))
    axes.legend()


def draw_accuracy(figure: Any, history: list[Progress], steps: int) -> None:
    figure.suptitle("Held-out digits read correctly", **HEADING)
    measured = [(now.step / steps, now.accuracy) for now in history if now.accuracy is not None]
    epochs, share = zip(*measured, strict=True)
    axes = figure.subplots()
    axes.plot(epochs, share, color=ACCURACY, linewidth=2, marker="o", markersize=4, clip_on=False)
    axes.annotate(f"{share[-1]:.2%}", (epochs[-1], share[-1]), (0, -18), textcoords="offset points", ha="right")
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set(xlabel="epoch", xlim=(0, epochs[-1]), ylim=(None, 1))


def draw_filters(figure: Any, filters: Array) -> None:
    figure.suptitle("Filters of the first layer (red adds, blue subtracts)", **HEADING)
    limit = abs(filters).max()
    for axes, weights in zip(figure.subplots(4, 4).flat, filters, strict=True):
        axes.imshow(weights, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes.axis("off")


def draw_misread(figure: Any, read: Array, digits: Digits) -> None:
    wrong = np.flatnonzero(read != digits.labels)
    shown = wrong[:36]
    more = f", the first {len(shown)}" if len(shown) < len(wrong) else ""
    figure.suptitle(f"Misread: {len(wrong)} of {len(read)} held-out digits{more}", **HEADING)
    columns = 4 if len(shown) <= 12 else 6
    grid = figure.subplots(max(2, -(-len(shown) // columns)), columns)
    for axes in grid.flat:
        axes.axis("off")
    for axes, index in zip(grid.flat, shown, strict=False):
        axes.imshow(digits.images[index, 0].astype(np.float32), cmap="Greys")
        axes.set_title(f"{digits.labels[index]} read as {read[index]}", size=9, color=WRONG)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits with tcpy.")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training digits (default 15)")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the first weights and the order (default 0)")
    parser.add_argument("--out", type=Path, default=Path("train_digits.png"), help="the picture (train_digits.png)")
    options = parser.parse_args()
    if options.epochs < 1 or not 0 <= options.seed < 2**32:
        parser.error("--epochs must be at least 1, and --seed from 0 to 2**32-1")
    if not options.out.parent.is_dir():
        parser.error(f"--out {options.out}: there is no folder {options.out.parent}")
    return options


def main() -> None:
    options = parse()
    train_set, held_out = load(options.seed)
    weights = initial_weights(np.random.default_rng(options.seed))
    steps = steps_per_epoch(train_set)
    info = tcpy.default_context().info()
    print(f"tcpy {tcpy.__version__} on {info['device']} ({info['backend']} {info['isa']}, {info['threads']} threads)")
    print(f"{len(train_set.labels)} digits to train on, {len(held_out.labels)} held out")

    start = time.perf_counter()
    history = show(train(weights, train_set, held_out, options.epochs, options.seed), steps, options.epochs)
    print(f"trained in {time.perf_counter() - start:.1f} s, loss scale {history[-1].scale:g}")
    draw(options.out, history, steps, weights, held_out)
    print(f"picture: {options.out}")
    print(f"held-out accuracy {accuracy(weights, held_out):.2%}")


if __name__ == "__main__":
    main()
