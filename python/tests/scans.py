"""Selective scans for the tests: models of the operators, inputs, and the definition in float64."""

import numpy as np
from domain import node_model
from onnx import TensorProto

AXES = {
    "dt": "TBD",
    "x": "TBD",
    "b": "TBN",
    "c": "TBN",
    "A": "DN",
    "h0": "BDN",
    "dy": "TBD",
    "dh": "BDN",
    "y": "TBD",
    "h": "BDN",
    "ddt": "TBD",
    "dx": "TBD",
    "db": "TBN",
    "dc": "TBN",
    "dA": "DN",
    "dh0": "BDN",
}
SCAN = ["dt", "x", "b", "c", "A", "h0"]
GRAD = [*SCAN, "dy", "dh"]
GRADS = ["ddt", "dx", "db", "dc", "dA", "dh0"]


def scan_model(op="SelectiveScan", inputs=SCAN, outputs=("y", "h"), element=TensorProto.FLOAT, **details) -> bytes:
    """One node; see ``node_model``."""
    return node_model(op, AXES, inputs, outputs, element, **details)


def scan_inputs(names, t, b, d, n, seed=0) -> dict[str, np.ndarray]:
    """Values such as trained models have; dt A reaches -129, whose exponential is 0 in float32."""
    rng = np.random.default_rng(seed)
    sizes = {"T": t, "B": b, "D": d, "N": n}
    values = {name: rng.standard_normal([sizes[axis] for axis in AXES[name]]) for name in GRAD}
    values["dt"] = rng.uniform(0.001, 2.78, values["dt"].shape)
    values["A"] = -rng.uniform(0.01, 46.4, values["A"].shape)
    return {name: values[name].astype(np.float32) for name in names if name}


def scan(dt, x, b, c, A, h0=None, reverse=0):
    """y and the last state, in float64."""
    dt, x, b, c, A = (np.asarray(v, np.float64) for v in (dt, x, b, c, A))
    h = np.zeros((*dt.shape[1:], A.shape[1])) if h0 is None else np.asarray(h0, np.float64)
    y = np.zeros(dt.shape)
    for t in range(len(dt))[:: -1 if reverse else 1]:
        h = np.exp(dt[t, :, :, None] * A) * h + (dt[t] * x[t])[:, :, None] * b[t, :, None, :]
        y[t] = (h * c[t, :, None, :]).sum(-1)
    return {"y": y, "h": h}


def loss(dy, dh=None, reverse=0, **inputs) -> float:
    """What the gradients are those of."""
    outputs = scan(reverse=reverse, **inputs)
    return (outputs["y"] * dy).sum() + (0 if dh is None else (outputs["h"] * dh).sum())


def scan_grad(dt, x, b, c, A, dy, h0=None, dh=None, reverse=0):
    """Derivatives of the loss by each input, in float64, by the chain rule."""
    dt, x, b, c, A, dy = (np.asarray(v, np.float64) for v in (dt, x, b, c, A, dy))
    order = range(len(dt))[:: -1 if reverse else 1]
    state = np.zeros((*dt.shape[1:], A.shape[1]))
    states = [state if h0 is None else np.asarray(h0, np.float64)]
    for t in order:
        drive = (dt[t] * x[t])[:, :, None] * b[t, :, None, :]
        states.append(np.exp(dt[t, :, :, None] * A) * states[-1] + drive)
    g = state if dh is None else np.asarray(dh, np.float64)
    ddt, dx, db, dc, dA = (np.zeros(v.shape) for v in (dt, x, b, c, A))
    for step in range(len(dt))[::-1]:
        t = order[step]
        g = g + dy[t][:, :, None] * c[t, :, None, :]
        decay = np.exp(dt[t, :, :, None] * A)
        by_exponent = g * decay * states[step]
        by_drive = (g * b[t, :, None, :]).sum(-1)
        dc[t] = (dy[t][:, :, None] * states[step + 1]).sum(1)
        db[t] = (g * (dt[t] * x[t])[:, :, None]).sum(1)
        dx[t] = by_drive * dt[t]
        ddt[t] = by_drive * x[t] + (by_exponent * A).sum(-1)
        dA += (by_exponent * dt[t][:, :, None]).sum(0)
        g = g * decay
    return {"ddt": ddt, "dx": dx, "db": db, "dc": dc, "dA": dA, "dh0": g}
