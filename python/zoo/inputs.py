"""Seeded inputs that make real models answer with more than constants.

An input is written ``name:dtype:shape:values``, the shape as ``2x3`` or ``scalar``. Values:

- ``n``, ``n0.1``: normal, times the number
- ``i1-53``: integers, both ends included
- ``c16000``: that constant
- ``dist``: a symmetric matrix of integers 0 to 12 with a zero diagonal
- ``img``: smooth blobs between about -4 and 4
- ``text``: dark strokes on white, between -1 and 1
"""

import numpy as np


def make(specs: tuple[str, ...], seed: int) -> dict[str, np.ndarray]:
    """One array an input."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for spec in specs:
        name, dtype, shape, values = spec.rsplit(":", 3)
        dims = () if shape == "scalar" else tuple(int(d) for d in shape.split("x"))
        feeds[name] = np.ascontiguousarray(_values(rng, values, dims).astype(dtype)).reshape(dims)
    return feeds


def _values(rng: np.random.Generator, values: str, dims: tuple[int, ...]) -> np.ndarray:
    match values:
        case "dist":
            upper = np.triu(rng.integers(0, 13, dims)[0], 1)
            return (upper + upper.T)[None]
        case "img":
            return _blobs(rng, dims)
        case "text":
            return np.stack([_strokes(rng, dims[1:]) for _ in range(dims[0])])
    kind, number = values[0], values[1:]
    if kind == "i":
        low, high = number.split("-")
        return rng.integers(int(low), int(high) + 1, dims)
    if kind == "c":
        return np.full(dims, float(number))
    if kind == "n":
        return rng.standard_normal(dims) * float(number or 1)
    raise ValueError(f"no generator of values '{values}'")


def _blobs(rng: np.random.Generator, dims: tuple[int, ...]) -> np.ndarray:
    """White noise would be averaged away by global pooling: make patches of 32 by 32 with a colour each."""
    batch, channels, height, width = dims
    patches = 2 * rng.standard_normal((batch, channels, height // 32, width // 32))
    colours = 2 * rng.standard_normal((batch, channels, 1, 1))
    return (patches + colours).repeat(32, 2).repeat(32, 3) + 0.2 * rng.standard_normal(dims)


def _strokes(rng: np.random.Generator, dims: tuple[int, ...]) -> np.ndarray:
    """Lines of letter-like glyphs, three strokes each."""
    _, height, width = dims
    page = np.ones(dims)
    line = min(height, 48)
    thick = line // 5
    for top in range(0, height - line + 1, line + line // 3):
        y0, y1, x = top + thick, top + line - thick, 8
        while x < width - 24:
            glyph = int(rng.integers(8, 16))
            for _ in range(3):
                if rng.random() < 0.5:
                    at = x + int(rng.integers(0, glyph - 3))
                    page[:, y0:y1, at : at + 3] = -1
                else:
                    at = int(rng.integers(y0, y1 - 3))
                    page[:, at : at + 3, x : x + glyph] = -1
            x += glyph + (4 if rng.random() < 0.85 else 16)
    return page
