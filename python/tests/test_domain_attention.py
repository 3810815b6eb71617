"""``ScaledDotProductAttention`` and its gradient, in the domain ``ai.ortmlx``."""

import numpy as np
import onnx
import onnxruntime
import pytest
from attentions import AXES, GRADS, attention, attention_grad, attention_inputs, attention_model
from domain import claims, near, refused, rounded, run
from onnx import TensorProto, helper

import ort_mlx
from ort_mlx.report import Placement

MASKS = {
    "none": None,
    "bool": np.random.default_rng(1).random((7, 9)) < 0.7,
    "row": np.random.default_rng(2).random(9) < 0.7,
    "heads": np.random.default_rng(3).random((2, 1, 1, 9)) < 0.7,
    "additive": np.random.default_rng(4).standard_normal((4, 7, 9)).astype(np.float32),
    "short": np.random.default_rng(5).standard_normal((7, 5)).astype(np.float32),
    "infinite": np.where(np.arange(9) < 4, 0, -np.inf).astype(np.float32),
    "one": np.float32(2.5).reshape(1, 1),
    "all hidden": np.arange(7)[:, None] > np.zeros(9),
}


def masked(feeds: dict, mask) -> tuple[dict, dict, dict]:
    """Feeds, shapes and types with a mask."""
    if mask is None:
        return feeds, {}, {}
    element = helper.np_dtype_to_tensor_dtype(mask.dtype)
    return {**feeds, "mask": mask}, {"mask": mask.shape}, {"mask": element}


def forward(feeds, claim="none", outputs=("Y", "lse"), element=TensorProto.FLOAT, **attributes):
    mask = feeds.get("mask")
    feeds, shapes, types = masked({name: feeds[name] for name in "QKV"}, mask)
    model = attention_model(False, list(feeds), outputs, element, shapes=shapes, types=types, **attributes)
    return run(model, feeds, claim)


def gradient(feeds, claim="none", outputs=GRADS, element=TensorProto.FLOAT, **attributes):
    mask = feeds.get("mask")
    feeds, shapes, types = masked({name: feeds[name] for name in ["Q", "K", "V", "dY"]}, mask)
    model = attention_model(True, list(feeds), outputs, element, shapes=shapes, types=types, **attributes)
    return run(model, feeds, claim)


def wanted_forward(feeds, **attributes):
    return attention(**{name: value for name, value in feeds.items() if name != "dY"}, **attributes)


@claims
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("is_causal", [0, 1])
def test_masks(claim, mask, is_causal):
    feeds = attention_inputs()
    if MASKS[mask] is not None:
        feeds["mask"] = MASKS[mask]
    near(forward(feeds, claim, is_causal=is_causal), wanted_forward(feeds, is_causal=is_causal))
    near(gradient(feeds, claim, is_causal=is_causal), attention_grad(**feeds, is_causal=is_causal))


def test_the_reference_gradient_is_that_of_the_reference():
    feeds = {name: value.astype(np.float64) for name, value in attention_inputs(1, 2, 1, 3, 4, 3, 2).items()}
    feeds["mask"] = np.array([True, True, True, False])
    grads, step = attention_grad(**feeds, is_causal=1), 1e-6
    for name in "QKV":
        for at in np.ndindex(feeds[name].shape):
            sides = []
            for sign in (1, -1):
                moved = {**feeds, name: feeds[name].copy()}
                moved[name][at] += sign * step
                sides.append((wanted_forward(moved, is_causal=1)["Y"] * feeds["dY"]).sum())
            assert grads[f"d{name}"][at] == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-5, abs=1e-7)


@claims
@pytest.mark.parametrize("scale", [0.0, 1e-3, 40.0, -0.5])
def test_scales(claim, scale):
    feeds = attention_inputs()
    near(forward(feeds, claim, scale=scale), wanted_forward(feeds, scale=scale))
    near(gradient(feeds, claim, scale=scale), attention_grad(**feeds, scale=scale))


@claims
@pytest.mark.parametrize("element", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_16_bit_types(claim, element):
    """The mask keeps its own type, and the log-sum-exp is float."""
    feeds = {**attention_inputs(), "mask": MASKS["bool"]}
    exact = rounded(feeds, element)
    near(forward(feeds, claim, element=element), wanted_forward(exact), element)
    near(gradient(feeds, claim, element=element), attention_grad(**exact), element)


@claims
@pytest.mark.parametrize("empty", ["b", "l", "s", "e", "ev"])
def test_sizes_of_zero(claim, empty):
    feeds = attention_inputs(**{empty: 0})
    near(forward(feeds, claim), wanted_forward(feeds))
    near(gradient(feeds, claim), attention_grad(**feeds))


@claims
@pytest.mark.parametrize("outputs", [["dQ"], ["", "dK"], ["", "", "dV"]])
def test_parts_of_a_gradient_may_be_left_out(claim, outputs):
    feeds = attention_inputs()
    got = gradient(feeds, claim, outputs)
    assert list(got) == [name for name in outputs if name]
    near(got, attention_grad(**feeds))


@claims
def test_the_gradient_takes_what_the_forward_pass_saved(claim):
    """Its own values of Y and lse give the same derivatives; others show that they are used."""
    feeds = attention_inputs()
    saved = wanted_forward(feeds)
    names = ["Q", "K", "V", "dY", "", "Y", "lse"]
    model = attention_model(True, names, GRADS)
    given = {**feeds, **{name: saved[name].astype(np.float32) for name in saved}}
    near(run(model, given, claim), attention_grad(**feeds))
    halved = run(model, {**given, "lse": given["lse"] + np.float32(np.log(2))}, claim)
    near({"dV": 2 * halved["dV"]}, attention_grad(**feeds))


def test_shapes_are_inferred():
    model = onnx.load_from_string(attention_model(True, ["Q", "K", "V", "dY"], GRADS))
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    session = ort_mlx.session(model.SerializeToString(), claim="none")
    for output in session.get_outputs():
        assert output.shape == list(AXES[output.name])


def test_sizes_that_do_not_fit_are_refused():
    refused(
        attention_model(shapes={"Q": ["B", 4, "L", "E"], "K": ["B", 3, "S", "E"]}),
        "ScaledDotProductAttention node 'node': Hq is 4 and Hk 3: each key head serves the same number",
    )
    refused(
        attention_model(shapes={"Q": ["B", "Hq", "L", 8], "K": ["B", "Hk", "S", 4]}),
        r"'K' \(B, Hk, S, E\) has the shape \[B, Hk, S, 4\], so E is 4, but input 'Q' says 8",
    )
    shapes = {"Q": ["B", "Hq", 7, "E"], "mask": [6, "S"]}
    refused(
        attention_model(False, ["Q", "K", "V", "mask"], shapes=shapes),
        r"'mask' \(B, Hq, L, S\) has the shape \[6, S\], which does not broadcast to \[B, Hq, 7, S\]",
    )
    refused(
        attention_model(False, ["Q", "K", "V", "mask"], types={"mask": TensorProto.INT32}),
        "'mask' is int32: give bool, float, float16 or bfloat16",
    )
    refused(
        attention_model(True, ["Q", "K", "V", "dY", "", "Y"], GRADS),
        "'Y' and 'lse' belong together: give both or none",
    )


def test_shapes_that_do_not_fit_are_refused_at_a_run():
    feeds = {**attention_inputs(), "mask": np.zeros((7, 10), np.float32)}
    model = attention_model(False, ["Q", "K", "V", "mask"])
    with pytest.raises(
        onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,
        match=r"'mask' .* has the shape \[7, 10\], which does not broadcast to \[2, 4, 7, 9\]",
    ):
        run(model, {name: feeds[name] for name in ["Q", "K", "V", "mask"]})


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({"scale": 1}, "attribute 'scale' is no float: give a finite float, or leave it out"),
        ({"scale": float("nan")}, "attribute 'scale' is NaN: give a finite float"),
        ({"scale": [0.5]}, "attribute 'scale' is no float"),
        ({"is_causal": 2}, "attribute 'is_causal' is 2: give 0 for every key, 1 for keys 0 to i of query i"),
        ({"is_causal": "yes"}, "attribute 'is_causal' is no integer"),
    ],
)
def test_values_that_an_attribute_does_not_have_are_refused(attributes, wanted):
    refused(attention_model(**attributes), wanted)


@pytest.mark.parametrize("grad", [False, True])
def test_the_provider_claims_the_nodes(grad, tmp_path):
    trace = tmp_path / "trace.jsonl"
    model = attention_model(grad, ["Q", "K", "V", "dY"][: 3 + grad], GRADS if grad else ["Y", "lse"])
    session = ort_mlx.session(model, claim="all", device="cpu", trace=str(trace))
    placement = Placement.read(trace)
    assert len(placement.clusters) == 1 and not placement.left(), placement
    feeds = attention_inputs()
    feeds = {name: feeds[name] for name in ["Q", "K", "V", "dY"][: 3 + grad]}
    session.run(None, feeds)
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="node 'node': attention: k of shape"):
        session.run(None, {**feeds, "K": feeds["K"][..., 1:]})
