"""Real models: every one loads, runs with everything claimed, and agrees with onnxruntime's CPU provider."""

import numpy as np
import pytest

import ort_mlx
from ort_mlx.compare import difference
from ort_mlx.report import examine
from zoo import load, table


@pytest.mark.parametrize("id", [model.id for model in table()])
def test_model_agrees(id):
    model = load(id)
    report = examine(model.file(), model.feeds(), claim="all", device="cpu", repeat=1, tolerance=model.tolerance)
    assert report.placement.on_mlx > 0
    assert report.agrees, report.text()


@pytest.mark.parametrize(("id", "sizes"), [("ppocr4_rec", [(1, 320), (3, 160), (2, 480)]), ("ppocr2_cls", [(1, 192), (4, 192)])])
def test_one_session_takes_many_sizes(id, sizes):
    model = load(id)
    ours = ort_mlx.session(model.file(), claim="all", device="cpu")
    reference = ort_mlx.session(model.file(), claim="none")
    rng = np.random.default_rng(3)
    for batch, width in [*sizes, sizes[0]]:
        x = rng.uniform(-1, 1, (batch, 3, 48, width)).astype(np.float32)
        (got,), (wanted,) = ours.run(None, {"x": x}), reference.run(None, {"x": x})
        found = difference(got, wanted)
        assert found.agrees, f"{batch}x{width}: {found.detail}"
