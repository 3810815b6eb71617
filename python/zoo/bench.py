"""Ratios against onnxruntime's CPU provider, each measured in one run with the two taking turns."""

import os
import statistics
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import ort_mlx
from ort_mlx.reference import quiet
from zoo import speech

# Frames and bands of the speech model: the lengths of its scans over time and over frequency.
FRAMES, BANDS = 442, 256


def _model(nodes, shape, initializers) -> bytes:
    graph = helper.make_graph(
        nodes,
        "bench",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in initializers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def rows() -> dict[str, tuple[bytes, np.ndarray]]:
    """Models and inputs by name."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    node = helper.make_node
    return {
        "Add, one element": (_model([node("Add", ["x", "x"], ["y"])], [1], {}), normal(1)),
        "MatMul 1024^3": (
            _model([node("MatMul", ["x", "w"], ["y"])], [1024, 1024], {"w": normal(1024, 1024)}),
            normal(1024, 1024),
        ),
        "Conv 3x3, 64 to 64 channels, 56x56": (
            _model([node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], [1, 64, 56, 56], {"w": normal(64, 64, 3, 3)}),
            normal(1, 64, 56, 56),
        ),
        "Softmax 4096x1024": (_model([node("Softmax", ["x"], ["y"])], [4096, 1024], {}), normal(4096, 1024)),
        "LayerNormalization 4096x768": (
            _model(
                [node("LayerNormalization", ["x", "scale", "bias"], ["y"])],
                [4096, 768],
                {"scale": normal(768), "bias": normal(768)},
            ),
            normal(4096, 768),
        ),
    }


def run(repeat: int) -> None:
    """Prints the table."""
    print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, {os.cpu_count()} processors")
    kept = {name: os.environ[name] for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if name in os.environ}
    print(f"OpenBLAS settings in force: {kept or 'none (OPENBLAS_CORETYPE unset)'}\n")
    print("| graph | MLX ms | ORT CPU ms | MLX / ORT CPU |")
    print("|---|--:|--:|--:|")
    for name, (model, x) in rows().items():
        ours = ort_mlx.session(model, claim="all")
        cpu = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        mlx_ms, cpu_ms = _medians([ours, cpu], {"x": x}, repeat)
        print(f"| {name} | {mlx_ms:.3f} | {cpu_ms:.3f} | {mlx_ms / cpu_ms:.2f} |", flush=True)
    _recurrences(repeat)


def _recurrences(repeat: int) -> None:
    """Models made of selective scans; with ``claim=auto`` a CPU takes the scans alone."""
    print("\n| selective scans | claim | load s | MLX ms | ORT CPU ms | ORT CPU / MLX |")
    print("|---|---|--:|--:|--:|--:|")
    rng = np.random.default_rng(0)
    sound = {"x": rng.standard_normal((FRAMES, BANDS, 16)).astype(np.float32)}
    one = speech.one_scan()
    cases = [
        ("one, (442, 16, 256, 16)", one, speech.one_scan_feeds(442, 16), ["auto"], repeat),
        ("one, (256, 442, 256, 16)", one, speech.one_scan_feeds(256, 442), ["auto"], 2),
        ("one, (2048, 1, 1536, 16)", speech.one_scan(1536), speech.one_scan_feeds(2048, 1, 1536), ["auto"], 5),
        ("speech, 120 scans over 442 and 256 steps", speech.model(), sound, ["auto", "all"], 1),
    ]
    for name, model, feeds, claims, times in cases:
        cpu = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        for claim in claims:
            start = time.perf_counter()
            ours = ort_mlx.session(model, quiet(), claim=claim)
            load = time.perf_counter() - start
            mlx_ms, cpu_ms = _medians([ours, cpu], feeds, times)
            print(f"| {name} | {claim} | {load:.2f} | {mlx_ms:.2f} | {cpu_ms:.2f} | {cpu_ms / mlx_ms:.2f} |", flush=True)


def _medians(sessions, feeds, repeat: int, block: int = 5) -> list[float]:
    """Milliseconds of each session. They take turns, so that a busy machine is unfair to none, in blocks of runs: the first
    run of a block does not count, since the threads of the session before may still be spinning."""
    times = [[] for _ in sessions]
    while len(times[-1]) < repeat:
        for session, taken in zip(sessions, times):
            for number in range(1 + min(block, repeat - len(taken))):
                start = time.perf_counter()
                session.run(None, feeds)
                if number > 0:
                    taken.append(time.perf_counter() - start)
    return [statistics.median(taken) * 1e3 for taken in times]
