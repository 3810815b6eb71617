"""Where the plugin's shared library lies."""

import os
import sys
from pathlib import Path

_SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
LIBRARY_NAME = f"libonnxruntime_mlx_ep{_SUFFIX}"
VARIABLE = "ORT_MLX_LIBRARY"


class LibraryNotFound(FileNotFoundError):
    """The plugin's shared library is nowhere it could be."""


def library_path() -> Path:
    """The plugin's shared library: ``$ORT_MLX_LIBRARY`` if set, else the one inside this package.

    Raises:
        LibraryNotFound: if there is no file; the message says where it was looked for and what to do.
    """
    named = os.environ.get(VARIABLE)
    if named:
        path = Path(named).expanduser().resolve()
        if path.is_file():
            return path
        raise LibraryNotFound(f"{VARIABLE} names {path}, which is not a file")
    path = Path(__file__).resolve().parent / "lib" / LIBRARY_NAME
    if path.is_file():
        return path
    raise LibraryNotFound(
        f"{path} is missing. Set {VARIABLE} to {LIBRARY_NAME}, which `cargo build --release -p ep-plugin` leaves in "
        "target/release"
    )
