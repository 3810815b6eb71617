"""Writes ops.json: inputs and expected outputs of every operation, computed by NumPy in float64.

Run it with any Python that has NumPy 2: `python generate.py`. The calls on the Rust side are in tests/ops.
"""

import json
import math
import pathlib

import numpy as np

RNG = np.random.default_rng(7)
CASES = {}


def f(*shape, lo=-2.0, hi=2.0):
    """Random values that float32 holds exactly."""
    return RNG.uniform(lo, hi, shape).astype(np.float32)


def i(*shape, lo=-5, hi=6, dtype=np.int32):
    return RNG.integers(lo, hi, shape).astype(dtype)


def c(*shape):
    return (f(*shape) + 1j * f(*shape)).astype(np.complex64)


def wide(x):
    if np.issubdtype(x.dtype, np.complexfloating):
        return x.astype(np.complex128)
    return x.astype(np.float64) if np.issubdtype(x.dtype, np.floating) else x


def encode(x):
    x = np.asarray(x)
    flat = x.reshape(-1)
    if np.iscomplexobj(x):
        flat = np.stack([flat.real, flat.imag], -1).reshape(-1)
    def number(v):
        if x.dtype.kind in "biu":
            return int(v)
        return float("%.9g" % v) if np.isfinite(v) else str(v)
    return {"type": str(x.dtype), "shape": list(x.shape), "values": [number(v) for v in flat]}


def case(name, inputs, outputs, tol=2e-6):
    assert name not in CASES, name
    inputs = [np.asarray(x) for x in inputs]
    assert all(x.dtype.name not in ("float64", "int64") for x in inputs), name
    outputs = outputs(*map(wide, inputs)) if callable(outputs) else outputs
    if not isinstance(outputs, (tuple, list)):
        outputs = [outputs]
    CASES[name] = {"tol": tol, "in": [encode(x) for x in inputs], "out": [encode(x) for x in outputs]}


def erfinv(y):
    x = 0.0
    for _ in range(60):
        x -= (math.erf(x) - y) / (2 / math.sqrt(math.pi) * math.exp(-x * x))
    return x


def each(function):
    return lambda x: np.vectorize(function)(x).astype(np.float64)


# Element by element.
x = f(2, 5)
positive, unit, above = f(2, 5, lo=0.1, hi=4), f(2, 5, lo=-0.95, hi=0.95), f(2, 5, lo=1.05, hi=4)
for name, values, function in [
    ("abs", x, np.abs), ("negative", x, np.negative), ("sign", x, np.sign), ("floor", x, np.floor),
    ("ceil", x, np.ceil), ("trunc", x, np.trunc), ("sqrt", positive, np.sqrt), ("square", x, np.square),
    ("rsqrt", positive, lambda v: 1 / np.sqrt(v)), ("reciprocal", positive, lambda v: 1 / v),
    ("exp", x, np.exp), ("expm1", x, np.expm1), ("log", positive, np.log), ("log1p", positive, np.log1p),
    ("log2", positive, np.log2), ("log10", positive, np.log10), ("sin", x, np.sin), ("cos", x, np.cos),
    ("tan", unit, np.tan), ("arcsin", unit, np.arcsin), ("arccos", unit, np.arccos), ("arctan", x, np.arctan),
    ("sinh", x, np.sinh), ("cosh", x, np.cosh), ("tanh", x, np.tanh), ("arcsinh", x, np.arcsinh),
    ("arccosh", above, np.arccosh), ("arctanh", unit, np.arctanh), ("erf", x, each(math.erf)),
    ("erfinv", unit, each(erfinv)), ("sigmoid", x, lambda v: 1 / (1 + np.exp(-v))), ("degrees", x, np.degrees),
    ("radians", x, np.radians), ("positive", x, lambda v: v), ("stop_gradient", x, lambda v: v), ("copy", x, lambda v: v),
]:
    case(name, [values], function, 1e-5)
case("round", [f(8, lo=-20, hi=20)], lambda v: np.round(v, 1), 1e-5)
case("round/halves", [np.float32([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])], np.round)
odd = np.float32([0, 1, np.nan, np.inf, -np.inf])
for name, function in [("isnan", np.isnan), ("isinf", np.isinf), ("isposinf", np.isposinf),
                       ("isneginf", np.isneginf), ("isfinite", np.isfinite)]:
    case(name, [odd], function)
case("nan_to_num", [odd], lambda v: np.nan_to_num(v, nan=5, posinf=7, neginf=-9))
case("nan_to_num/limits", [odd], lambda v: np.float64(np.nan_to_num(v.astype(np.float32))), 1e-6)
case("logical_not", [i(6, lo=0, hi=2)], np.logical_not)
case("bitwise_invert", [i(6)], np.invert)
z = c(2, 3)
case("real", [z], np.real), case("imag", [z], np.imag), case("conjugate", [z], np.conjugate)
case("abs/complex", [z], np.abs), case("exp/complex", [z], np.exp, 1e-5)
case("astype", [f(6, lo=-9, hi=9)], lambda v: np.trunc(v).astype(np.int32))
bits = f(4)
case("view", [bits], bits.view(np.uint32))


def e4m3(code):
    sign, exponent, mantissa = -1 if code & 128 else 1, code >> 3 & 15, code & 7
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


codes = np.uint8([0, 1, 7, 8, 56, 60, 119, 126, 129, 184, 254])
case("from_fp8", [codes], np.array([e4m3(int(code)) for code in codes]))
case("to_fp8", [np.float32([e4m3(int(code)) for code in codes])], codes)

# Two arrays.
a, b = f(2, 1, 3), f(4, 1)
for name, function in [
    ("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply), ("divide", np.divide),
    ("floor_divide", np.floor_divide), ("remainder", np.remainder), ("maximum", np.maximum),
    ("minimum", np.minimum), ("arctan2", np.arctan2), ("logaddexp", np.logaddexp),
    ("divmod", lambda u, v: (np.floor_divide(u, v), np.remainder(u, v))),
]:
    case(name, [a, b], function, 1e-5)
case("add/complex", [z, c(3)], np.add), case("multiply/int", [i(3, 2), i(2)], np.multiply)
case("remainder/int", [np.int32([7, -7, 7, -7]), np.int32([3, 3, -3, -3])], np.remainder)
case("power", [positive, x], np.power, 1e-5)
u, v = i(3, 4, lo=0, hi=3), i(4, lo=0, hi=3)
for name in ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "bitwise_and", "bitwise_or",
             "bitwise_xor", "left_shift", "right_shift", "logical_and", "logical_or", "logical_xor"]:
    case(name, [u, v], getattr(np, name))
close = np.float32([1, 1.1, np.nan, 0, np.inf])
near = np.float32([1.001, 1.2, np.nan, 0.0009, np.inf])
case("isclose", [close, near], lambda p, q: np.isclose(p, q, 1e-2, 1e-3, True))
case("allclose", [close, near], np.bool_(False))
case("allclose/true", [close[[0, 3, 4]], near[[0, 3, 4]]], np.bool_(True))
case("array_equal", [u, u], np.bool_(True)), case("array_equal/shapes", [u, v], np.bool_(False))
case("clip", [x], lambda p: np.clip(p, -0.5, 0.75)), case("clip/above", [x], lambda p: np.minimum(p, 0.75))
case("where", [u > 0, f(3, 4), f(4)], np.where)

# Creation.
case("zeros", [], np.zeros((2, 0, 3))), case("ones", [], np.ones((2, 3)))
case("full", [f(3)], lambda p: np.full((2, 3), p)), case("full_like", [x, f(5)], lambda p, q: np.full_like(p, q))
case("zeros_like", [u], np.zeros_like), case("zeros_like_dtype", [u], lambda p: np.zeros(p.shape))
case("ones_like", [u], np.ones_like), case("ones_like_dtype", [u], lambda p: np.ones(p.shape))
case("arange", [], np.arange(-1, 2, 0.25)), case("arange/int", [], np.arange(7, -3, -3))
case("linspace", [], np.linspace(-1, 3, 7), 1e-6), case("linspace_endpoint", [], np.linspace(-1, 3, 7, False), 1e-6)
case("eye", [], np.eye(3, 4, 1)), case("identity", [], np.identity(3)), case("tri", [], np.tri(3, 4, -1))
case("tril", [f(2, 3, 4)], lambda p: np.tril(p, 1)), case("triu", [f(2, 3, 4)], lambda p: np.triu(p, -1))
case("diag", [f(3)], lambda p: np.diag(p, 1)), case("diag/matrix", [f(3, 4)], lambda p: np.diag(p, -1))
for name in ["bartlett", "blackman", "hamming", "hanning"]:
    case(name, [], getattr(np, name)(9), 1e-6)

# Shape.
t = f(2, 3, 4)
case("reshape", [t], lambda p: p.reshape(4, 6)), case("transpose_axes", [t], lambda p: p.transpose(2, 0, 1))
case("transpose", [t], np.transpose), case("swapaxes", [t], lambda p: p.swapaxes(0, 2))
case("moveaxis", [t], lambda p: np.moveaxis(p, 0, -1)), case("flatten", [t], lambda p: p.reshape(2, 12))
case("unflatten", [t], lambda p: p.reshape(2, 3, 2, 2)), case("contiguous", [t], lambda p: p.transpose(2, 1, 0))
case("broadcast_to", [f(3, 1)], lambda p: np.broadcast_to(p, (2, 3, 4)))
case("expand_dims", [t], lambda p: p[:, :, None]), case("expand_dims_axes", [t], lambda p: p[None, :, None])
thin = f(1, 3, 1, 2)
case("squeeze", [thin], np.squeeze), case("squeeze_axis", [thin], lambda p: p[0])
case("squeeze_axes", [thin], lambda p: p.reshape(3, 2)), case("tile", [t], lambda p: np.tile(p, (2, 1, 3)))
case("repeat", [t], lambda p: np.repeat(p, 2)), case("repeat_axis", [t], lambda p: np.repeat(p, 2, 1))
case("flip", [t], np.flip), case("flip_axis", [t], lambda p: np.flip(p, 1))
case("flip_axes", [t], lambda p: np.flip(p, (0, 2)))
case("roll", [t], lambda p: np.roll(p, 5)), case("roll_axis", [t], lambda p: np.roll(p, -1, 2))
case("roll_axes", [t], lambda p: np.roll(p, (1, 3), (0, 2)))
for n in (1, 2, 3):
    case(f"atleast_{n}d", [f(3) if n > 1 else f()], getattr(np, f"atleast_{n}d"))
case("diagonal", [t], lambda p: np.diagonal(p, 1, 0, 2))
case("pad", [t], lambda p: np.pad(p, ((1, 0), (0, 0), (0, 2)), constant_values=3))
case("pad/edge", [t], lambda p: np.pad(p, ((1, 2), (0, 0), (0, 0)), mode="edge"))
case("pad_symmetric", [t], lambda p: np.pad(p, 1, constant_values=-1))
case("split", [t], lambda p: np.split(p, 2, 2)), case("split_sections", [t], lambda p: np.split(p, [1, 3], 2))
case("unstack", [t], lambda p: list(p)), case("unstack_axis", [t], lambda p: list(np.moveaxis(p, 1, 0)))
case("as_strided", [t], lambda p: p.reshape(-1)[1:].reshape(-1)[np.arange(3)[:, None] * 2 + np.arange(4)])
case("concatenate", [t, f(3)], lambda p, q: np.concatenate([p, q], None))
case("concatenate_axis", [t, f(2, 1, 4)], lambda p, q: np.concatenate([p, q], 1))
case("stack", [x, x + 1], lambda p, q: np.stack([p, q])), case("stack_axis", [x, x + 1], lambda p, q: np.stack([p, q], 2))
case("broadcast_arrays", [f(3, 1), f(4)], lambda p, q: np.broadcast_arrays(p, q))
case("meshgrid", [f(2), f(3)], lambda p, q: np.meshgrid(p, q))
case("meshgrid/sparse", [f(2), f(3)], lambda p, q: np.meshgrid(p, q, sparse=True, indexing="ij"))
case("depends", [x, t], lambda p, q: p)
case("number_of_elements", [t], np.int32(8))

# Reductions.
ordered = RNG.permutation(24).reshape(2, 3, 4).astype(np.float32)
logic = i(2, 3, 4, lo=0, hi=2)
sparse = f(2, 3, 4) * logic.astype(np.float32)
lse = lambda p, axis=None: np.log(np.sum(np.exp(p), axis=axis))
def soft(p, axis=None):
    e = np.exp(p - p.max())
    return e / e.sum(axis=axis, keepdims=axis is not None)
for name, values, function in [
    ("sum", t, np.sum), ("prod", t, np.prod), ("mean", t, np.mean), ("median", t, np.median),
    ("var", t, lambda p, axis=None: np.var(p, axis, ddof=1)), ("std", t, lambda p, axis=None: np.std(p, axis, ddof=1)),
    ("max", ordered, np.max), ("min", ordered, np.min), ("all", logic > 0, np.all), ("any", logic > 0, np.any),
    ("count_nonzero", sparse, np.count_nonzero), ("logsumexp", t, lse), ("softmax", t, soft),
]:
    case(name, [values], function, 1e-5)
    case(f"{name}_axis", [values], lambda p: function(p, axis=1), 1e-5)
    case(f"{name}_axes", [values], lambda p: function(p, axis=(0, 2)), 1e-5)
case("sum/keepdims", [t], lambda p: p.sum((0, 2), keepdims=True), 1e-5)
case("sum/none", [t], lambda p: p)
case("argmax", [ordered], np.argmax), case("argmax_axis", [ordered], lambda p: p.argmax(1, keepdims=True))
case("argmin", [ordered], np.argmin), case("argmin_axis", [ordered], lambda p: p.argmin(-1))
def reverse(function, axis):
    return lambda p: np.flip(function(np.flip(p, axis), axis), axis)
for name, function in [("cumsum", np.cumsum), ("cumprod", np.cumprod), ("cummax", np.maximum.accumulate),
                       ("cummin", np.minimum.accumulate), ("logcumsumexp", np.logaddexp.accumulate)]:
    case(name, [t], lambda p: function(p.reshape(-1), 0), 1e-4)
    case(f"{name}_axis", [t], reverse(function, 1), 1e-5)
case("cumsum/exclusive", [t], lambda p: np.cumsum(p, 2) - p, 1e-5)
case("diff", [t], lambda p: np.diff(p, 2, 1), 1e-5)
case("trace", [f(3, 4)], np.trace, 1e-5), case("trace_axes", [t], lambda p: np.trace(p, 1, 0, 2), 1e-5)

# Sorting.
case("sort", [ordered], lambda p: np.sort(p, None)), case("sort_axis", [ordered], lambda p: np.sort(p, 1))
case("argsort", [ordered], lambda p: np.argsort(p, None)), case("argsort_axis", [ordered], lambda p: np.argsort(p, 1))
case("partition", [ordered], np.float64(5)), case("partition_axis", [ordered], lambda p: np.sort(p, -1)[..., 2])
case("argpartition", [ordered], np.float64(5))
case("argpartition_axis", [ordered], lambda p: np.sort(p, -1)[..., 2])
case("topk", [ordered], lambda p: np.sort(p, None)[-2:]), case("topk_axis", [ordered], lambda p: np.sort(p, 1)[:, -2:])
ladder = np.float32([0, 1, 1, 2, 5])
case("searchsorted", [ladder, f(2, 4, lo=-1, hi=6)], np.searchsorted)
case("searchsorted/right", [ladder, ladder], lambda p, q: np.searchsorted(p, q, "right"))

# Indexing.
at = np.int32([[2, 0], [-1, 1]])
case("take", [t, at], np.take), case("take_axis", [t, at], lambda p, q: np.take(p, q, 1))
along = i(2, 2, 4, lo=0, hi=3)
case("take_along_axis", [t, along], lambda p, q: np.take_along_axis(p, q, 1))
def put(p, q, r):
    p = p.copy()
    np.put_along_axis(p, q, r, 1)
    return p
distinct = np.argsort(f(2, 3, 4), 1)[:, :2].astype(np.int32)
case("put_along_axis", [t, distinct, f(2, 2, 4)], put)
def add_along(p, q, r):
    p = p.copy()
    first, last = np.meshgrid(np.arange(2), np.arange(4), indexing="ij")
    np.add.at(p, (first[:, None, :], q, last[:, None, :]), r)
    return p
case("scatter_add_axis", [t, along, f(2, 2, 4)], add_along, 1e-5)
case("slice", [t], lambda p: p[0:2, 1:3, 0:4:2])
case("slice_dynamic", [t, np.int32([1, 2])], lambda p, q: p[:, 1:3, 2:4])
case("gather", [t, np.int32([1, 0, 1]), np.int32([2, 0, 1])], lambda p, q, r: p[q, r].reshape(3, 1, 1, 4))
case("gather_single", [t, np.int32([1, 0, 1])], lambda p, q: p[q][:, None])
def scattered(function):
    def run(p, q, r):
        p = p.copy()
        for place, value in zip(q, r):
            p[place] = function(p[place], value[0])
        return p
    return run
for name, function in [("scatter", lambda p, q: q), ("scatter_add", np.add), ("scatter_prod", np.multiply),
                       ("scatter_max", np.maximum), ("scatter_min", np.minimum)]:
    places = np.int32([2, 0]) if name == "scatter" else np.int32([2, 0, 2])
    case(name, [f(3, 4), places, f(len(places), 1, 4)], scattered(function), 1e-5)
    case(f"{name}_single", [f(3, 4), places, f(len(places), 1, 4)], scattered(function), 1e-5)
def masked(p, q, r):
    p = p.copy()
    p[q] = r[:q.sum()]
    return p
case("masked_scatter", [t, logic > 0, f(24)], masked)
def updated(function):
    def run(p, q):
        p = p.copy()
        p[0:2, 1:3, 0:4:2] = function(p[0:2, 1:3, 0:4:2], q)
        return p
    return run
for name, function in [("", lambda p, q: q), ("_add", np.add), ("_prod", np.multiply), ("_max", np.maximum),
                       ("_min", np.minimum)]:
    case(f"slice_update{name}", [t, f(2, 2, 2)], updated(function), 1e-5)
def dynamic(p, q, r):
    p = p.copy()
    p[:, 1:3, 2:4] = q
    return p
case("slice_update_dynamic", [t, f(2, 2, 2), np.int32([1, 2])], dynamic)

# Products.
m, n = f(2, 3, 4), f(4, 5)
case("matmul", [m, n], np.matmul, 1e-5), case("addmm", [f(5), m, n], lambda p, q, r: 0.5 * q @ r + 2 * p, 1e-5)
case("matmul/inner_zero", [f(2, 0), f(0, 3)], np.matmul)
case("inner", [m, f(5, 4)], np.inner, 1e-5), case("outer", [f(2, 2), f(3)], np.outer, 1e-5)
case("kron", [f(2, 3), f(2, 2)], np.kron, 1e-5), case("vecdot", [m, f(1, 3, 4)], np.vecdot, 1e-5)
case("tensordot", [m, f(3, 2, 5)], lambda p, q: np.tensordot(p, q, ((1, 0), (0, 1))), 1e-5)
case("tensordot_axis", [m, f(3, 4, 2)], lambda p, q: np.tensordot(p, q, 2), 1e-5)
case("einsum", [m, f(5, 4)], lambda p, q: np.einsum("bij,kj->bki", p, q), 1e-5)
keep, left, right = i(2, 1, lo=0, hi=2) > 0, f(2, 3), f(3, 1)
blocks = lambda p: np.kron(p, np.ones((32, 32)))
case("block_masked_mm", [f(64, 96), f(96, 32), np.array([[True], [False]]), left, right],
     lambda p, q, o, l, r: blocks(o) * ((blocks(l) * p) @ (blocks(r) * q)), 1e-4)
case("gather_mm", [f(3, 2, 4), f(2, 4, 5), np.uint32([2, 0, 2]), np.uint32([1, 1, 0])],
     lambda p, q, l, r: p[l] @ q[r], 1e-5)
case("segmented_mm", [f(3, 6), f(6, 2), np.uint32([[0, 2], [2, 2], [1, 6]])],
     lambda p, q, s: np.stack([p[:, k:e] @ q[k:e] for k, e in s]), 1e-5)
h2 = np.array([[1, 1], [1, -1]])
h8 = np.kron(np.kron(h2, h2), h2)
case("hadamard_transform", [f(2, 8)], lambda p: p @ h8 / np.sqrt(8), 1e-5)
case("hadamard_transform/scale", [f(2, 8)], lambda p: p @ h8 * 3, 1e-5)

# Quantized: packed here, by the format's definition.
def packed(rows, columns, width):
    q = RNG.integers(0, 1 << width, (*rows, columns))
    per = 32 // width
    words = (q.reshape(*rows, -1, per) << (np.arange(per) * width)).sum(-1).astype(np.uint32)
    return q, words
q4, words = packed((3, 8), 64, 4)
scales, biases = f(3, 8, 2, lo=0.1, hi=0.2), f(3, 8, 2)
weights = np.repeat(wide(scales), 32, -1) * q4 + np.repeat(wide(biases), 32, -1)
case("dequantize", [words, scales, biases], weights, 1e-5)
case("quantized_matmul", [f(5, 64), words[0], scales[0], biases[0]], lambda p, *_: p @ weights[0].T, 1e-4)
case("gather_qmm", [f(3, 1, 64), words, scales, biases, np.uint32([0, 2, 1]), np.uint32([2, 2, 0])],
     lambda p, w, s, b, l, r: p[l] @ weights[r].swapaxes(-1, -2), 1e-4)
fp4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
fp4 = np.concatenate([fp4, -fp4])
q, words = packed((4,), 64, 4)
powers = RNG.integers(120, 130, (4, 2)).astype(np.uint8)
case("dequantize/mxfp4", [words, powers], fp4[q] * np.repeat(2.0 ** (powers.astype(int) - 127), 32, -1))
# Values that lie on the grid survive packing.
grid = np.repeat(i(4, 2), 32, -1) + np.tile(np.arange(16), (4, 4)) * 0.25
case("quantize", [grid.astype(np.float32)], grid, 1e-2)

# Convolutions, by their definition.
def convolve(p, w, stride, padding, dilation, groups, flip=False, into=None, far=None):
    dims = p.ndim - 2
    if flip:
        w = np.flip(w, tuple(range(1, dims + 1)))
    if into:
        grown = np.zeros([p.shape[0], *[(s - 1) * d + 1 for s, d in zip(p.shape[1:-1], into)], p.shape[-1]])
        grown[(slice(None), *[slice(None, None, d) for d in into], slice(None))] = p
        p = grown
    p = np.pad(p, [(0, 0), *zip(padding, far or padding), (0, 0)])
    sizes = [(s - d * (k - 1) - 1) // t + 1 for s, d, k, t in zip(p.shape[1:-1], dilation, w.shape[1:-1], stride)]
    out = np.zeros([p.shape[0], *sizes, w.shape[0]])
    wide_in, wide_out = p.shape[-1] // groups, w.shape[0] // groups
    for at in np.ndindex(*sizes):
        window = p[(slice(None), *[slice(a * t, a * t + d * (k - 1) + 1, d)
                                   for a, t, d, k in zip(at, stride, dilation, w.shape[1:-1])])]
        for g in range(groups):
            part = window[..., g * wide_in:(g + 1) * wide_in].reshape(p.shape[0], -1)
            kernel = w[g * wide_out:(g + 1) * wide_out].reshape(wide_out, -1)
            out[(slice(None), *at, slice(g * wide_out, (g + 1) * wide_out))] = part @ kernel.T
    return out


def transposed(p, w, stride, padding, dilation, more):
    near = [d * (k - 1) - q for d, k, q in zip(dilation, w.shape[1:-1], padding)]
    far = [q + o for q, o in zip(near, more)]
    return convolve(p, w, [1] * len(stride), near, dilation, 1, True, stride, far)


case("conv1d", [f(2, 9, 4), f(6, 3, 2)], lambda p, w: convolve(p, w, [2], [1], [2], 2), 1e-5)
case("conv2d", [f(2, 6, 7, 2), f(3, 3, 2, 2)], lambda p, w: convolve(p, w, [1, 2], [1, 0], [2, 1], 1), 1e-5)
case("conv3d", [f(1, 4, 5, 4, 2), f(3, 2, 3, 2, 2)], lambda p, w: convolve(p, w, [1, 2, 1], [0, 1, 1], [1, 1, 2], 1), 1e-5)
case("conv_general", [f(2, 6, 7, 2), f(3, 3, 2, 2)],
     lambda p, w: convolve(p, w, [1, 2], [1, 0], [1, 2], 1, True, [2, 1], [0, 1]), 1e-5)
case("conv_transpose1d", [f(2, 5, 3), f(4, 3, 3)], lambda p, w: transposed(p, w, [2], [1], [1], [1]), 1e-5)
case("conv_transpose2d", [f(1, 4, 3, 2), f(3, 3, 2, 2)], lambda p, w: transposed(p, w, [2, 1], [1, 0], [1, 1], [1, 0]), 1e-5)
case("conv_transpose3d", [f(1, 3, 2, 3, 2), f(2, 2, 3, 2, 2)],
     lambda p, w: transposed(p, w, [1, 2, 2], [0, 1, 0], [1, 1, 1], [0, 1, 0]), 1e-5)

# Linear algebra.
square = f(2, 4, 4) + 3 * np.eye(4, dtype=np.float32)
definite = (wide(f(4, 4)) @ np.eye(4)).astype(np.float32)
definite = (wide(definite) @ wide(definite).T + 4 * np.eye(4)).astype(np.float32)
tall = f(5, 3)
case("linalg_cholesky", [definite], np.linalg.cholesky, 1e-5)
case("linalg_cholesky/upper", [definite], lambda p: np.linalg.cholesky(p).T, 1e-5)
case("linalg_cholesky_inv", [np.linalg.cholesky(wide(definite)).astype(np.float32)], np.linalg.inv(wide(definite)), 1e-4)
case("linalg_cross", [f(4, 3), f(4, 3)], np.cross, 1e-5)
case("linalg_det", [square], np.linalg.det, 1e-4), case("linalg_slogdet", [square], lambda p: tuple(np.linalg.slogdet(p)), 1e-5)
case("linalg_inv", [square], np.linalg.inv, 1e-4), case("linalg_pinv", [tall], np.linalg.pinv, 1e-4)
case("linalg_solve", [square, f(2, 4, 3)], np.linalg.solve, 1e-4)
case("linalg_solve_triangular", [square[0], f(4, 2)], lambda p, q: np.linalg.solve(np.triu(p), q), 1e-4)
case("linalg_tri_inv", [square[0]], lambda p: np.linalg.inv(np.tril(p)), 1e-4)
case("linalg_eigvals", [square[0]], lambda p: np.trace(p) + 0j, 1e-4)
case("linalg_eig", [square[0]], lambda p: p + 0j, 1e-4)
case("linalg_eigvalsh", [definite], np.linalg.eigvalsh, 1e-4)
case("linalg_eigh", [definite], lambda p: (np.linalg.eigvalsh(p), p), 1e-4)
case("linalg_qr", [tall], lambda p: (p, np.eye(3)), 1e-4)
case("linalg_svd", [tall], lambda p: (p, np.linalg.svd(p, compute_uv=False)), 1e-4)
case("linalg_svd/values", [tall], lambda p: np.linalg.svd(p, compute_uv=False), 1e-4)
def factored(p):
    p, pivots = p.copy(), []
    for k in range(min(p.shape)):
        best = k + int(np.argmax(np.abs(p[k:, k])))
        pivots.append(best)
        p[[k, best]] = p[[best, k]]
        p[k + 1:, k] /= p[k, k]
        p[k + 1:, k + 1:] -= np.outer(p[k + 1:, k], p[k, k + 1:])
    return p, np.array(pivots, np.uint32)
case("linalg_lu_factor", [f(4, 4)], factored, 1e-4)
case("linalg_lu", [f(4, 4)], lambda p: (p, np.tril(factored(p)[0], -1) + np.eye(4), np.triu(factored(p)[0])), 1e-4)
case("linalg_norm", [t], lambda p: np.linalg.norm(p, 3, 1), 1e-5)
case("linalg_norm/inf", [tall], lambda p: np.linalg.norm(p, np.inf), 1e-5)
case("linalg_norm_matrix", [t], lambda p: np.linalg.norm(p, "fro", (1, 2), keepdims=True), 1e-5)
case("linalg_norm_matrix/nuclear", [tall], lambda p: np.linalg.norm(p, "nuc"), 1e-4)
case("linalg_norm_l2", [t], np.linalg.norm, 1e-5)

# Fourier transforms.
z, r = c(3, 4, 5), f(3, 4, 6)
for name, values in [("fft", z), ("ifft", z), ("rfft", r), ("irfft", z)]:
    function = getattr(np.fft, name)
    case(f"fft_{name}", [values], lambda p: function(p, axis=1), 1e-4)
    case(f"fft_{name}/n", [values], lambda p: function(p, 7, 0, "ortho"), 1e-4)
    case(f"fft_{name}2", [values], lambda p: getattr(np.fft, name + "2")(p, axes=(0, 2)), 1e-4)
    case(f"fft_{name}n", [values], lambda p: getattr(np.fft, name + "n")(p, axes=(0, 1, 2), norm="forward"), 1e-4)
case("fft_fftfreq", [], np.fft.fftfreq(7, 0.5), 1e-6), case("fft_rfftfreq", [], np.fft.rfftfreq(8, 0.5), 1e-6)
case("fft_fftshift", [t], np.fft.fftshift), case("fft_ifftshift", [t], lambda p: np.fft.ifftshift(p, 1))

# Fused operations.
w, bias = f(4), f(4)
def layer(p, w, bias):
    return (p - p.mean(-1, keepdims=True)) / np.sqrt(p.var(-1, keepdims=True) + 1e-5) * w + bias
case("fast_layer_norm", [t, w, bias], layer, 1e-5)
case("fast_rms_norm", [t, w], lambda p, w: p / np.sqrt((p**2).mean(-1, keepdims=True) + 1e-5) * w, 1e-5)
case("fast_cross_entropy", [f(5, 7), i(5, lo=0, hi=7)],
     lambda p, q: lse(p, -1) - p[np.arange(5), q], 1e-5)
def rope(p, traditional, offset, scale=1.0, base=10000.0, freqs=None, dims=6):
    length, half = p.shape[-2], dims // 2
    inverse = base ** (-2.0 * np.arange(half) / dims) if freqs is None else 1 / freqs
    angle = np.outer((np.arange(length) + offset) * scale, inverse)
    first, second = (p[..., 0:dims:2], p[..., 1:dims:2]) if traditional else (p[..., :half], p[..., half:dims])
    turned = first * np.cos(angle) - second * np.sin(angle), first * np.sin(angle) + second * np.cos(angle)
    out = p.copy()
    if traditional:
        out[..., 0:dims:2], out[..., 1:dims:2] = turned
    else:
        out[..., :half], out[..., half:dims] = turned
    return out
turning = f(2, 2, 5, 8)
case("fast_rope", [turning], lambda p: rope(p, False, 3, 0.5), 1e-5)
case("fast_rope/traditional", [turning, f(3, lo=1, hi=50)], lambda p, q: rope(p, True, 0, freqs=q), 1e-5)
case("fast_rope_dynamic", [turning, np.int32(2)], lambda p, q: rope(p, True, 2), 1e-5)
def attend(q, k, v, mask=0.0, sinks=None):
    k, v = np.repeat(k, q.shape[1] // k.shape[1], 1), np.repeat(v, q.shape[1] // v.shape[1], 1)
    e = np.exp(q @ k.swapaxes(-1, -2) * 0.4 + mask)
    total = e.sum(-1, keepdims=True)
    return e / (total if sinks is None else total + np.exp(sinks)[:, None, None]) @ v
q, k, v = f(2, 4, 3, 8), f(2, 2, 5, 8), f(2, 2, 5, 8)
name = "fast_scaled_dot_product_attention"
causal = np.where(np.tril(np.ones((3, 5)), 2) > 0, 0, -np.inf)
case(name, [q, k, v], attend, 1e-5), case(f"{name}/causal", [q, k, v], lambda *p: attend(*p, causal), 1e-5)
case(f"{name}/mask", [q, k, v, f(3, 5)], attend, 1e-5)
case(f"{name}/sinks", [q, k, v, f(4)], lambda q, k, v, s: attend(q, k, v, 0, s), 1e-5)

lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in CASES.items()]
text = "{\n" + ",\n".join(lines) + "\n}\n"
pathlib.Path(__file__).with_name("ops.json").write_text(text)
print(len(CASES), "cases")
