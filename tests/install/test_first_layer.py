# SPDX-License-Identifier: MIT
"""examples/02_first_layer.c on a real picture, on odd ones, and on files that are none."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from installation import EXAMPLES, Installation, build_program, compiler

SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]

# What is run: the program's arguments to what it did.
Program = Callable[..., "subprocess.CompletedProcess[str]"]


def has_sanitizers(folder: Path) -> bool:
    source = folder / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    command = [*compiler("C"), *SANITIZERS, source, "-o", folder / "empty"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module", params=["plain", "sanitized"])
def first_layer(
    request: pytest.FixtureRequest, installed: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Program:
    folder = tmp_path_factory.mktemp("first_layer")
    flags = [*installed.pkg_config("--cflags", "--libs"), "-std=c11", "-lm"]
    if request.param == "sanitized":
        if not has_sanitizers(folder):
            pytest.skip("this C compiler has no AddressSanitizer and UndefinedBehaviorSanitizer")
        flags += SANITIZERS
    sources = [EXAMPLES / "02_first_layer.c", EXAMPLES / "picture.c"]
    program = build_program(compiler("C"), sources, flags, folder / "02_first_layer")

    def run_it(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        environment = os.environ | {"LD_LIBRARY_PATH": str(installed.libdir)}
        return subprocess.run([program, *arguments], env=environment, text=True, capture_output=True, check=False)

    return run_it


def ppm(pixels: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]", comment: bytes = b"") -> bytes:
    height, width, _ = pixels.shape
    return b"P6\n%b%d %d\n255\n" % (comment, width, height) + pixels.tobytes()


def maps_of(first_layer: Program, folder: Path, picture: bytes) -> bytes:
    """The sheet of feature maps that the program writes for this picture."""
    (folder / "picture.ppm").write_bytes(picture)
    done = first_layer("--maps", folder / "maps.pgm", folder / "picture.ppm")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return (folder / "maps.pgm").read_bytes()


# ---- Pictures ------------------------------------------------------------------------------------
def test_photograph(first_layer: Program, tmp_path: Path) -> None:
    astronaut = pytest.importorskip("skimage.data", reason="scikit-image is not installed").astronaut()
    (tmp_path / "astronaut.ppm").write_bytes(ppm(astronaut))
    done = first_layer("--maps", tmp_path / "maps.pgm", tmp_path / "astronaut.ppm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "512 x 512 pixels" in done.stdout
    ratios = re.findall(r"^(?:forward|backward_input|backward_weight) .* ([0-9.]+)$", done.stdout, re.MULTILINE)
    assert len(ratios) == 3
    assert all(float(ratio) <= 1 for ratio in ratios)

    header, pixels = (tmp_path / "maps.pgm").read_bytes().split(b"\n255\n", 1)
    assert header == b"P5\n914 914"
    maps = np.frombuffer(pixels, np.uint8).reshape(914, 914)[2:, 2:].reshape(8, 114, 8, 114)[:, :112, :, :112]
    assert (maps.std(axis=(1, 3)) > 1).all()


def test_same_picture_in_other_files(first_layer: Program, tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (224, 224, 3), np.uint8)
    maps = maps_of(first_layer, tmp_path, ppm(pixels))
    twice = pixels.repeat(2, axis=0).repeat(2, axis=1)
    wide = np.pad(pixels, ((0, 0), (30, 31), (0, 0)))
    tall = np.pad(pixels, ((7, 7), (0, 0), (0, 0)))
    two_bytes = b"P6 224 224 65535\n" + (pixels.astype(">u2") * 257).tobytes()
    for same in [
        ppm(twice),
        ppm(wide),
        ppm(tall),
        two_bytes,
        ppm(pixels, b"#one\n # two 3 4\n"),
        ppm(pixels) + b"more",
    ]:
        assert maps_of(first_layer, tmp_path, same) == maps


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (2, 3), (223, 225)])
def test_any_size(first_layer: Program, tmp_path: Path, shape: tuple[int, int]) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (*shape, 3), np.uint8)
    assert maps_of(first_layer, tmp_path, ppm(pixels))


# ---- What isn't a picture ------------------------------------------------------------------------
NO_PICTURES = {
    "empty": (b"", "isn't a PPM picture"),
    "one byte": (b"P", "isn't a PPM picture"),
    "text pixels": (b"P3 1 1 255\n0 0 0", "isn't a PPM picture"),
    "magic only": (b"P6", "header's width"),
    "endless comment": (b"P6 # 1 1 255 \0\0\0", "header's width"),
    "no height": (b"P6 1 ", "header's height"),
    "width 0": (b"P6 0 1 255\n", "header's width"),
    "negative height": (b"P6 1 -1 255\n\0\0\0", "header's height"),
    "width over 64 bits": (b"P6 99999999999999999999999 1 255\n", "header's width"),
    "height over the limit": (b"P6 1 100001 255\n", "header's height"),
    "10 gigapixels": (b"P6 100000 100000 65535\n", "60000000000 bytes, 0 are there"),
    "maximum 0": (b"P6 1 1 0\n\0\0\0", "header's maximum"),
    "maximum over 16 bits": (b"P6 1 1 65536\n\0\0\0", "header's maximum"),
    "no space after header": (b"P6 1 1 255", "no white space"),
    "no space before pixels": (b"P6 1 1 255x\0\0\0", "no white space"),
    "a byte short": (b"P6 2 2 255\n" + bytes(11), "take 12 bytes, 11 are there"),
    "two-byte samples short": (b"P6 1 1 256\n" + bytes(5), "take 6 bytes, 5 are there"),
    "sample over maximum": (b"P6 1 1 100\n\0\145\0", "a sample is 101"),
}


@pytest.mark.parametrize("name", NO_PICTURES)
def test_no_picture(first_layer: Program, tmp_path: Path, name: str) -> None:
    content, sentence = NO_PICTURES[name]
    path = tmp_path / "picture.ppm"
    path.write_bytes(content)
    assert_fails(first_layer(path), str(path), sentence)


def test_no_file(first_layer: Program, tmp_path: Path) -> None:
    assert_fails(first_layer(tmp_path / "absent.ppm"), "absent.ppm", "No such file")
    assert_fails(first_layer(tmp_path), str(tmp_path), "Is a directory")
    assert_fails(first_layer("/dev/zero"), "/dev/zero", "is larger than")


def test_maps_that_cannot_be_written(first_layer: Program, tmp_path: Path) -> None:
    assert_fails(first_layer("--maps", tmp_path / "absent/maps.pgm"), "maps.pgm", "No such file")
    assert_fails(first_layer("--maps", "/dev/full"), "/dev/full", "No space left")


def test_usage(first_layer: Program) -> None:
    for arguments in [["--maps"], ["--unknown"], ["a.ppm", "b.ppm"]]:
        done = first_layer(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("usage: ")


def assert_fails(done: "subprocess.CompletedProcess[str]", name: str, sentence: str) -> None:
    """Status 1, and one line that names the file and says what is wrong: nothing from a sanitizer."""
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert name in done.stderr
    assert sentence in done.stderr
