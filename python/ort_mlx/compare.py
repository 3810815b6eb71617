"""How far two results are apart."""

from dataclasses import dataclass

import numpy as np

RELATIVE = 1e-3
ABSOLUTE_OF_SCALE = 1e-4


@dataclass(frozen=True)
class Difference:
    """One output against its reference.

    Attributes:
        error: the largest absolute difference over the reference's largest absolute value.
        agrees: floats within ``relative`` of the value plus ``absolute`` of the scale; everything else equal.
        detail: what is wrong, or nothing.
    """

    error: float
    agrees: bool
    detail: str = ""


def difference(
    got: np.ndarray, wanted: np.ndarray, relative: float = RELATIVE, absolute: float = ABSOLUTE_OF_SCALE
) -> Difference:
    """Compares one output; NaN agrees with NaN and an infinity with itself."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return Difference(
            np.inf, False, f"{got.dtype}{list(got.shape)} where {wanted.dtype}{list(wanted.shape)} is right"
        )
    if wanted.size == 0:
        return Difference(0.0, True)
    if not np.issubdtype(wanted.dtype, np.floating):
        equal = bool(np.array_equal(got, wanted))
        wrong = 0.0 if equal else float(np.mean(got != wanted))
        return Difference(wrong, equal, "" if equal else f"{wrong:.2%} of the values differ")
    g, w = got.astype(np.float64), wanted.astype(np.float64)
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    finite = np.isfinite(w)
    scale = float(np.max(np.abs(w[finite]), initial=0.0))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(g - w))
        near = same | (finite & (apart <= relative * np.abs(w) + absolute * scale))
    error = float(np.max(np.nan_to_num(apart, nan=np.inf))) / (scale or 1.0)
    if near.all():
        return Difference(error, True)
    at = tuple(int(i) for i in np.argwhere(~near)[0])
    return Difference(error, False, f"{np.mean(~near):.2%} of the values differ, first at {at}: {g[at]} for {w[at]}")
