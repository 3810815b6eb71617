"""Run ONNX models on MLX through a stock ONNX Runtime.

    import ort_mlx
    session = ort_mlx.session("model.onnx", claim="all")
    outputs = session.run(None, {"x": x})

``register()`` alone makes ``MLXExecutionProvider`` known to onnxruntime, for programs that build sessions themselves.
"""

from ort_mlx._library import LibraryNotFound, library_path
from ort_mlx._session import EP_NAME, MINIMUM_ORT, OrtTooOld, devices, empty, register, session

__all__ = [
    "EP_NAME",
    "MINIMUM_ORT",
    "LibraryNotFound",
    "OrtTooOld",
    "devices",
    "empty",
    "library_path",
    "register",
    "session",
]
