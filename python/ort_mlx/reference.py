"""Sessions to compare with, and options that leave errors to exceptions instead of onnxruntime's log."""

import os

import onnxruntime


def quiet() -> onnxruntime.SessionOptions:
    """Options under which nothing is logged: an error that is raised is not also printed."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return options


def cpu_session(model: str | os.PathLike, optimise: bool = True) -> onnxruntime.InferenceSession:
    """``model`` on onnxruntime's CPU provider."""
    options = quiet()
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(os.fspath(model), options, providers=["CPUExecutionProvider"])
