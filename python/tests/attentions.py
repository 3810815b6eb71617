"""Attention for the tests: models of the operators, inputs, and the definition in float64."""

import numpy as np
from domain import node_model
from onnx import TensorProto

AXES = {
    "Q": ("B", "Hq", "L", "E"),
    "K": ("B", "Hk", "S", "E"),
    "V": ("B", "Hk", "S", "Ev"),
    "dY": ("B", "Hq", "L", "Ev"),
    "mask": ("L", "S"),
    "Y": ("B", "Hq", "L", "Ev"),
    "lse": ("B", "Hq", "L"),
    "dQ": ("B", "Hq", "L", "E"),
    "dK": ("B", "Hk", "S", "E"),
    "dV": ("B", "Hk", "S", "Ev"),
}
ATTENTION = ["Q", "K", "V", "mask"]
GRAD = ["Q", "K", "V", "dY", "mask", "Y", "lse"]
GRADS = ["dQ", "dK", "dV"]


def attention_model(grad=False, inputs=("Q", "K", "V"), outputs=("Y", "lse"), element=TensorProto.FLOAT, **details):
    """One node; see ``node_model``."""
    op = "ScaledDotProductAttentionGrad" if grad else "ScaledDotProductAttention"
    types = {"lse": TensorProto.FLOAT, **details.pop("types", {})}
    return node_model(op, AXES, inputs, outputs, element, types=types, **details)


def attention_inputs(b=2, hq=4, hk=2, l=7, s=9, e=8, ev=6, seed=0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = {"B": b, "Hq": hq, "Hk": hk, "L": l, "S": s, "E": e, "Ev": ev}
    return {
        name: rng.standard_normal([sizes[axis] for axis in AXES[name]]).astype(np.float32)
        for name in ["Q", "K", "V", "dY"]
    }


def bias(mask, l, s, causal):
    """What is added to the scores: 0 or minus infinity for a bool mask and beyond a short one."""
    total = np.zeros((l, s))
    if causal:
        total[np.arange(s) > np.arange(l)[:, None]] = -np.inf
    if mask is None:
        return total
    mask = np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask.astype(np.float64)
    if mask.ndim and mask.shape[-1] not in (1, s):
        rest = [(0, 0)] * (mask.ndim - 1) + [(0, s - mask.shape[-1])]
        mask = np.pad(mask, rest, constant_values=-np.inf)
    return total + mask


def probabilities(Q, K, mask, scale, is_causal):
    """P, lse and the scale, with keys repeated for the query heads that share them."""
    scale = 1 / np.sqrt(max(Q.shape[-1], 1)) if scale is None else scale
    scores = scale * Q @ K.swapaxes(-1, -2) + bias(mask, Q.shape[2], K.shape[2], is_causal)
    highest = scores.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isfinite(highest), highest, 0))
    total = e.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + np.where(np.isfinite(highest), highest, 0))[..., 0]
    return e / np.where(total == 0, 1, total), lse, scale


def repeated(x, heads):
    """(B, Hk, ...) with every key head once for each of its query heads."""
    return np.repeat(x.astype(np.float64), heads // max(x.shape[1], 1), axis=1)


def attention(Q, K, V, mask=None, scale=None, is_causal=0):
    """Y and lse, in float64."""
    heads, Q = Q.shape[1], Q.astype(np.float64)
    P, lse, _ = probabilities(Q, repeated(K, heads), mask, scale, is_causal)
    return {"Y": P @ repeated(V, heads), "lse": lse}


def attention_grad(Q, K, V, dY, mask=None, scale=None, is_causal=0):
    """dQ, dK and dV, in float64."""
    heads, key_heads = Q.shape[1], K.shape[1]
    Q, dY, keys, values = Q.astype(np.float64), dY.astype(np.float64), repeated(K, heads), repeated(V, heads)
    P, _, scale = probabilities(Q, keys, mask, scale, is_causal)
    dP = dY @ values.swapaxes(-1, -2)
    dS = P * (dP - (dY * (P @ values)).sum(-1, keepdims=True))

    def shared(x):
        group = heads // max(key_heads, 1)
        return x.reshape(x.shape[0], key_heads, group, *x.shape[2:]).sum(2)

    return {
        "dQ": scale * dS @ keys,
        "dK": shared(scale * dS.swapaxes(-1, -2) @ Q),
        "dV": shared(P.swapaxes(-1, -2) @ dY),
    }
