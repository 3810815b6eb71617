"""Registration of the plugin with onnxruntime, and sessions that use it."""

import os
import re
import weakref
from pathlib import Path

import numpy as np
import onnxruntime

from ort_mlx._library import library_path

EP_NAME = "MLXExecutionProvider"
MINIMUM_ORT = (1, 24)
ALLOCATES = (1, 28)
# Older ones may refuse sessions if several devices give the operator domain, so that the plugin then gives none by itself.
ONE_DOMAIN_FOR_MANY_DEVICES = (1, 31)


# onnxruntime takes the provider once for each SessionOptions, and does not tell whether one has it already.
_carried: "weakref.WeakKeyDictionary[onnxruntime.SessionOptions, dict[str, str]]" = weakref.WeakKeyDictionary()


class OrtTooOld(RuntimeError):
    """The installed onnxruntime cannot load plugins of this kind."""


def _version() -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", onnxruntime.__version__)[:2])


def _check_version() -> None:
    if _version() < MINIMUM_ORT:
        wanted = ".".join(map(str, MINIMUM_ORT))
        raise OrtTooOld(
            f"onnxruntime {onnxruntime.__version__} is too old for {EP_NAME}: "
            f"install {wanted} or newer (pip install -U 'onnxruntime>={wanted}')"
        )


def devices() -> list:
    """The ``OrtEpDevice`` objects of MLX that onnxruntime knows; empty before :func:`register`."""
    _check_version()
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == EP_NAME]


def register(library: str | os.PathLike | None = None) -> list:
    """Makes the plugin known to onnxruntime, once per process, and returns its devices.

    Args:
        library: the plugin's shared library; :func:`library_path` finds it if left out.

    Raises:
        LibraryNotFound: if there is no library.
        OrtTooOld: if onnxruntime is older than 1.24.
    """
    _check_version()
    found = devices()
    if found:
        return found
    # onnxruntime takes a relative path from its own folder, which nobody means.
    path = library_path() if library is None else Path(library).expanduser().resolve()
    onnxruntime.register_execution_provider_library(EP_NAME, str(path))
    return devices()


def session(
    model: str | os.PathLike | bytes,
    sess_options: "onnxruntime.SessionOptions | None" = None,
    **options: str,
) -> "onnxruntime.InferenceSession":
    """A session that runs on MLX what MLX can run, and the rest on onnxruntime's CPU provider.

    Args:
        model: a path or the bytes of a model.
        sess_options: options of onnxruntime's own; a fresh set if left out. They carry the provider from then on, so that
            they serve further sessions with the same ``options``.
        options: options of the provider, such as ``device="cpu"`` or ``claim="all"``; see the README.

    Raises:
        ValueError: if ``sess_options`` were used before with other ``options``.
        Exception: what onnxruntime raises; a failing provider is never silently replaced by the CPU.
    """
    found = register()
    if not found:
        raise RuntimeError(f"{EP_NAME} offers no device on this machine")
    if sess_options is None:
        sess_options = onnxruntime.SessionOptions()
    options = {name: str(value) for name, value in options.items() if value is not None}
    carried = _carried.get(sess_options)
    if carried is None:
        if len(found) > 1 and _version() < ONE_DOMAIN_FOR_MANY_DEVICES:
            sess_options.register_custom_ops_library(found[0].ep_metadata["library_path"])
        sess_options.add_provider_for_devices(found[:1], options)
        _carried[sess_options] = options
    elif carried != options:
        raise ValueError(f"these SessionOptions carry {EP_NAME} with {carried} already: make new ones for {options}")
    if not isinstance(model, bytes):
        model = os.fspath(model)
    made = onnxruntime.InferenceSession(model, sess_options=sess_options, enable_fallback=0)
    made.disable_fallback()
    return made


def empty(shape, element_type=np.float32) -> "onnxruntime.OrtValue":
    """A tensor in MLX's memory, uninitialised, to be bound to inputs and outputs.

    An input that lies there is read there. An output is written there once it is computed: on a GPU by the device, which then
    need not send it to the host, on a CPU by a copy. ``numpy()`` of the result shows the elements and takes new ones, without
    a copy. Drop such tensors before the library is unregistered: onnxruntime frees them through it.

    Args:
        shape: its sizes.
        element_type: a NumPy type, or one of ``onnx.TensorProto``'s numbers.

    Raises:
        MemoryError: if there is not as much.
        OrtTooOld: if this onnxruntime for Python cannot allocate there (before 1.28; C and C++ can from 1.24 on).
    """
    found = register()
    if not found:
        raise RuntimeError(f"{EP_NAME} offers no device on this machine")
    if _version() < ALLOCATES:
        raise OrtTooOld(f"onnxruntime {onnxruntime.__version__} cannot allocate MLX's memory: 1.28 or newer can")
    memory = found[0].memory_info(onnxruntime.OrtDeviceMemoryType.HOST_ACCESSIBLE)
    made = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), element_type, memory_info=memory)
    # onnxruntime takes what an allocator returns for granted.
    if made.data_ptr() == 0 and made.tensor_size_in_bytes() > 0:
        raise MemoryError(f"MLX has no memory for a tensor of shape {list(shape)}")
    return made
