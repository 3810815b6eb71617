"""Runs sessions on values that numpy cannot carry through onnxruntime: bfloat16 goes in and out as raw bytes."""

import ctypes

import numpy as np
import onnxruntime

BFLOAT16 = "tensor(bfloat16)"
# onnx.TensorProto.BFLOAT16; the package onnx is not needed for it.
_ONNX_BFLOAT16 = 16


def run(session: onnxruntime.InferenceSession, feeds: dict[str, np.ndarray]) -> list:
    """All outputs. bfloat16 inputs are given in any float type, and bfloat16 outputs come back as float32."""
    types = {value.name: value.type for value in session.get_inputs()}
    outputs = session.get_outputs()
    names = [output.name for output in outputs]
    if BFLOAT16 not in types.values() and all(output.type != BFLOAT16 for output in outputs):
        return session.run(names, feeds)
    wrapped = {name: _wrap(value, types.get(name)) for name, value in feeds.items()}
    return [_unwrap(value) for value in session.run_with_ort_values(names, wrapped)]


def _wrap(value: np.ndarray, declared: str | None) -> onnxruntime.OrtValue:
    if declared != BFLOAT16:
        return onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(value))
    bits = to_bfloat16(np.asarray(value).astype(np.float32))
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _ONNX_BFLOAT16)


def _unwrap(value: onnxruntime.OrtValue) -> np.ndarray:
    if value.element_type() != _ONNX_BFLOAT16:
        return value.numpy()
    count = int(np.prod(value.shape()))
    # An empty tensor may have no address.
    raw = ctypes.string_at(value.data_ptr(), 2 * count) if count else b""
    return from_bfloat16(np.frombuffer(raw, np.uint16)).reshape(value.shape())


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """The bits of float32 values rounded to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(np.shape(values))
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits as float32 values."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
