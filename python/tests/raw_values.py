"""Runs sessions on values that numpy cannot carry through onnxruntime: bfloat16 goes in and out as raw bytes."""

import ctypes

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import TensorProto

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def run(session: onnxruntime.InferenceSession, given) -> list:
    """Outputs for inputs by position."""
    names = [i.name for i in session.get_inputs()]
    outputs = [o.name for o in session.get_outputs()]
    feeds = dict(zip(names, given))
    types = {o.type for o in session.get_outputs()} | {i.type for i in session.get_inputs()}
    if "tensor(bfloat16)" not in types:
        return session.run(outputs, feeds)
    values = session.run_with_ort_values(outputs, {name: _wrap(value) for name, value in feeds.items()})
    return [_unwrap(value) for value in values]


def _wrap(value: np.ndarray) -> onnxruntime.OrtValue:
    if value.dtype != BFLOAT16:
        return onnxruntime.OrtValue.ortvalue_from_numpy(value)
    bits = np.ascontiguousarray(value).view(np.uint16)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)


def _unwrap(value: onnxruntime.OrtValue) -> np.ndarray:
    if value.element_type() != TensorProto.BFLOAT16:
        return value.numpy()
    count = int(np.prod(value.shape()))
    if count == 0:
        return np.zeros(value.shape(), BFLOAT16)
    raw = ctypes.string_at(value.data_ptr(), 2 * count)
    return np.frombuffer(raw, np.uint16).view(BFLOAT16).reshape(value.shape())
