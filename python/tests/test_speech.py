"""The synthetic speech model: every scan of it is recognised, in one cluster, and right at sizes it was not made for."""

from pathlib import Path

import numpy as np
import pytest

import ort_mlx
from ort_mlx.compare import difference
from ort_mlx.reference import cpu_session, quiet
from ort_mlx.report import Placement
from zoo import speech

LAYERS = 2


@pytest.mark.parametrize("claim, clusters", [("all", 1), ("auto", None)])
def test_every_scan_of_the_speech_model_is_fused(claim: str, clusters: int | None, tmp_path: Path) -> None:
    model = speech.model(LAYERS, channels=8)
    trace = tmp_path / "trace.jsonl"
    session = ort_mlx.session(model, quiet(), device="cpu", claim=claim, trace=str(trace))
    placement = Placement.read(trace)
    scans = [count for kernel, count, _ in placement.kernels() if kernel.startswith("selective_scan")]
    assert sum(scans) == LAYERS * speech.SCANS_PER_LAYER
    assert clusters is None or len(placement.clusters) == clusters
    reference = cpu_session(model)
    for frames, bands in [(13, 7), (1, 5), (70, 3)]:
        x = np.random.default_rng(frames).standard_normal((frames, bands, 8)).astype(np.float32)
        (got,), (wanted,) = session.run(None, {"x": x}), reference.run(None, {"x": x})
        found = difference(got, wanted, 1e-4, 1e-5)
        assert found.agrees, found.detail
