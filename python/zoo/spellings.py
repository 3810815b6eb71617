"""Counts spelled-out operators in a folder of models, and how many of them the provider recognises.

``python python/zoo/spellings.py FOLDER`` prints the table of ``docs/recognition.md``. The count looks for a few nodes that
every spelling has, with no regard for what the provider's rules ask; the provider's trace says what runs in their place.
"""

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import onnx

import ort_mlx
from ort_mlx import corpus
from ort_mlx.reference import quiet
from ort_mlx.report import Placement

# Kinds of spellings, and what the trace calls the operator that runs for them.
KINDS = {
    "layer normalisation": "layer_norm",
    "RMS normalisation": "rms_norm",
    "GELU by erf": "gelu",
    "GELU by tanh": "gelu_tanh",
    "SiLU, QuickGELU": "swish",
    "rotary embedding": "rotary",
}

# Operators that move values and keep them.
MOVES = {"Cast", "CastLike", "Reshape", "Expand", "Unsqueeze", "Squeeze", "Identity"}


class Graph:
    """Who makes and who reads the values of a graph."""

    def __init__(self, graph: onnx.GraphProto):
        self.nodes = graph.node
        self.makers = {output: node for node in graph.node for output in node.output}
        self.readers = defaultdict(list)
        for node in graph.node:
            for value in node.input:
                self.readers[value].append(node)

    def behind(self, value: str) -> onnx.NodeProto | None:
        """The node that computes a value, behind those that only move it."""
        node = self.makers.get(value)
        while node is not None and node.op_type in MOVES:
            node = self.makers.get(node.input[0])
        return node

    def operands(self, value: str, ops: set[str]) -> list[onnx.NodeProto]:
        """The nodes of these operators among the operands of the node behind a value."""
        node = self.behind(value)
        found = [self.behind(operand) for operand in node.input] if node is not None else []
        return [operand for operand in found if operand is not None and operand.op_type in ops]

    def kinds(self) -> Iterator[str]:
        """The kind of every spelling."""
        for node in self.nodes:
            kind = getattr(self, f"_{node.op_type.lower()}", lambda _: None)(node)
            if kind:
                yield kind

    def _sqrt(self, node: onnx.NodeProto) -> str | None:
        """The root of the mean of squares, with or without an epsilon."""
        inner = self.behind(node.input[0])
        if inner is None:
            return None
        means = [inner] if inner.op_type == "ReduceMean" else self.operands(node.input[0], {"ReduceMean"})
        squares = self.behind(means[0].input[0]) if means else None
        if squares is None or squares.op_type not in {"Pow", "Mul"}:
            return None
        difference = self.behind(squares.input[0])
        centred = difference is not None and self.operands(squares.input[0], {"ReduceMean"})
        return "layer normalisation" if centred and difference.op_type == "Sub" else "RMS normalisation"

    def _erf(self, _: onnx.NodeProto) -> str:
        return "GELU by erf"

    def _tanh(self, node: onnx.NodeProto) -> str | None:
        """Of a multiple of a sum, in which there is a cube."""
        sums = self.operands(node.input[0], {"Add"}) if getattr(self.behind(node.input[0]), "op_type", "") == "Mul" else []
        cubes = [term for add in sums for term in self.operands(add.output[0], {"Mul"})]
        return "GELU by tanh" if any(self.operands(cube.output[0], {"Pow", "Mul"}) for cube in cubes) else None

    def _sigmoid(self, node: onnx.NodeProto) -> str | None:
        """Of x or a multiple of it, and a product with x."""
        x = {node.input[0]}
        inner = self.makers.get(node.input[0])
        if inner is not None and inner.op_type == "Mul":
            x |= set(inner.input)
        products = [reader for reader in self.readers[node.output[0]] if reader.op_type == "Mul"]
        return "SiLU, QuickGELU" if any(x & set(product.input) for product in products) else None

    def _concat(self, node: onnx.NodeProto) -> str | None:
        """(-x2 | x1) that is multiplied; or a difference and a sum of products of the same values."""
        parts = [self.makers.get(value) for value in node.input[:2]]
        if len(parts) < 2 or None in parts:
            return None
        ops = [part.op_type for part in (self.behind(value) for value in node.input[:2]) if part is not None]
        if ops[:1] == ["Neg"] and ops[1:] in (["Slice"], ["Split"], ["Gather"]):
            after = [reader.op_type for reader in self.readers[node.output[0]]]
            return "rotary embedding" if {"Mul", "Reshape", "Cast"} & set(after) else None
        if ops != ["Sub", "Add"]:
            return None
        products = [self.operands(part.output[0], {"Mul"}) for part in parts]
        read = [{value for product in pair for value in product.input} for pair in products]
        return "rotary embedding" if all(len(pair) == 2 for pair in products) and read[0] == read[1] else None


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and the bodies in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def count(folder: Path) -> tuple[Counter, Counter, list[tuple[str, str, int, int]]]:
    """How many spellings of each kind there are and are recognised, and the models in which the numbers differ."""
    there, recognised, differ = Counter(), Counter(), []
    with tempfile.TemporaryDirectory() as temporary:
        trace = Path(temporary) / "trace.jsonl"
        for case in corpus.cases(folder):
            found = Counter(
                kind for graph in graphs(onnx.load(case.model).graph) for kind in Graph(graph).kinds()
            )
            trace.unlink(missing_ok=True)
            ort_mlx.session(case.model, quiet(), trace=str(trace), claim="all", device="cpu")
            fused = Counter(event["kernel"] for event in Placement.read(trace).fused)
            for kind, operator in KINDS.items():
                there[kind] += found[kind]
                recognised[kind] += fused[operator]
                if found[kind] != fused[operator]:
                    differ.append((case.folder.name, kind, found[kind], fused[operator]))
    return there, recognised, differ


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder", type=Path)
    there, recognised, differ = count(arguments.parse_args().folder)
    print("| spelling | in the models | recognised |\n|---|---|---|")
    for kind in KINDS:
        print(f"| {kind} | {there[kind]} | {recognised[kind]} |")
    print("\n| model | spelling | in the model | recognised |\n|---|---|---|---|")
    for model, kind, found, fused in differ:
        print(f"| {model} | {kind} | {found} | {fused} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
