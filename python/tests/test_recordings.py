"""Recordings: what they are keyed by, that a replay is right for other values, and that few of them are kept."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import make_model
from onnx import TensorProto, helper

import ort_mlx
from ort_mlx.reference import quiet

node = helper.make_node


def open_session(model: bytes, **options):
    return ort_mlx.session(model, quiet(), claim="all", device="cpu", **options)


def decisions(trace: Path) -> list[dict]:
    """What was decided about runs, in order."""
    return [line for line in map(json.loads, trace.read_text().splitlines()) if line["event"] == "mode"]


def pages() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.fixture(scope="module")
def lookup() -> bytes:
    """Rows of a table by index, cut to a length: y = table[ids][:length] + 1."""
    return make_model(
        [
            node("Gather", ["table", "ids"], ["rows"]),
            node("Slice", ["rows", "start", "length"], ["cut"]),
            node("Add", ["cut", "one"], ["y"]),
        ],
        [("ids", TensorProto.INT64, ["N"]), ("length", TensorProto.INT64, [1])],
        [("y", TensorProto.FLOAT, ["M", 3])],
        {"table": np.arange(30, dtype=np.float32).reshape(10, 3), "start": np.array([0]), "one": np.float32(1)},
    )


def expect_lookup(session, ids, length):
    table = np.arange(30, dtype=np.float32).reshape(10, 3)
    (y,) = session.run(None, {"ids": np.array(ids), "length": np.array([length])})
    assert np.array_equal(y, table[ids][:length] + 1)


def test_values_count_only_where_the_host_reads_them(lookup, tmp_path):
    session = open_session(lookup, trace=tmp_path / "trace")
    for length in (2, 3, 2):
        for ids in ([1, 5, 9], [0, 0, 0], [-1, -2, 3]):
            expect_lookup(session, ids, length)
    expect_lookup(session, [4, 2, 1, 0], 2)
    found = decisions(tmp_path / "trace")
    assert [(d["mode"], d["shapes"]["ids"]) for d in found] == [("keyed", [3]), ("keyed", [3]), ("keyed", [4])]
    assert all(d["values"] == ["length"] for d in found)


def test_conditions_are_checked_at_every_replay(lookup):
    session = open_session(lookup)
    expect_lookup(session, [1, 2], 2)
    with pytest.raises(Exception, match="Gather.*out of range"):
        session.run(None, {"ids": np.array([1, 10]), "length": np.array([2])})
    expect_lookup(session, [3, 9], 2)


def test_reading_computed_values_makes_a_program_eager(tmp_path):
    model = make_model(
        [
            node("ReduceSum", ["x"], ["sum"], keepdims=1),
            node("Cast", ["sum"], ["end"], to=TensorProto.INT64),
            node("Slice", ["x", "start", "end"], ["y"]),
        ],
        [("x", TensorProto.FLOAT, ["N"])],
        [("y", TensorProto.FLOAT, ["M"])],
        {"start": np.array([0])},
    )
    session = open_session(model, trace=tmp_path / "trace")
    for size, ones in ((2000, 3), (2000, 1500), (3000, 7), (2000, 0)):
        x = np.zeros(size, np.float32)
        x[:ones] = 1
        assert np.array_equal(session.run(None, {"x": x})[0], x[:ones])
    (found,) = decisions(tmp_path / "trace")
    assert found["mode"] == "eager" and found["why"].startswith("Slice node") and "computes" in found["why"]


def test_compile_off(add_model, tmp_path):
    session = open_session(add_model, trace=tmp_path / "trace", compile="off")
    for rows in (1, 2, 1):
        x = np.full((rows, 3), rows, np.float32)
        assert np.array_equal(session.run(None, {"x": x})[0], x + 1)
    (found,) = decisions(tmp_path / "trace")
    assert (found["mode"], found["why"]) == ("eager", "option compile is off")


LOOP = """<ir_version: 10, opset_import: ["" : 17]>
g (int64 trips, float[N] x) => (float[N] y) {
    always = Constant <value = bool {1}> ()
    y = Loop <body = body (int64 i, bool on, float[N] a) => (bool go, float[N] b) {
        half = Constant <value = float {0.5}> ()
        go = Identity(on)
        c = Mul(a, half)
        b = Add(c, x)
    }> (trips, always, x)
}"""


def test_a_loop_is_recorded_while_it_is_short(tmp_path):
    session = open_session(onnx.parser.parse_model(LOOP).SerializeToString(), trace=tmp_path / "trace")
    for seed, trips in enumerate([3, 3, 5, 5000, 3, 5000]):
        x = np.random.default_rng(seed).standard_normal(4).astype(np.float32)
        y = x.copy()
        for _ in range(trips):
            y = y * np.float32(0.5) + x
        assert np.allclose(session.run(None, {"x": x, "trips": np.array(trips)})[0], y)
    found = decisions(tmp_path / "trace")
    assert [(d["mode"], d["values"]) for d in found] == [
        ("keyed", ["trips"]),
        ("keyed", ["trips"]),
        ("eager", ["trips"]),
    ]
    assert "evaluates as it goes" in found[2]["why"]


def test_shapes_that_never_come_back_are_not_recorded_for_ever(add_model, tmp_path):
    session = open_session(add_model, trace=tmp_path / "trace", cache=4)
    for rows in range(1, 101):
        x = np.full((rows, 3), rows, np.float32)
        assert np.array_equal(session.run(None, {"x": x})[0], x + 1)
    assert len(decisions(tmp_path / "trace")) == 8


def network(seed: int, depth: int, width: int) -> bytes:
    """Layers of y = y W + tanh(y) on x (N, width)."""
    rng = np.random.default_rng(seed)
    nodes, weights, value = [], {}, "x"
    for i in range(depth):
        weights[f"w{i}"] = (rng.standard_normal((width, width)) / width).astype(np.float32)
        nodes += [
            node("MatMul", [value, f"w{i}"], [f"a{i}"]),
            node("Tanh", [value], [f"b{i}"]),
            node("Add", [f"a{i}", f"b{i}"], [f"c{i}"]),
        ]
        value = f"c{i}"
    shape = ("x", TensorProto.FLOAT, ["N", width])
    return make_model(nodes, [shape], [(value, TensorProto.FLOAT, ["N", width])], weights)


def use_many_shapes():
    session = open_session(network(0, 20, 64), cache=8)

    def use(rounds: int):
        # Twice each, so that recordings are made and thrown away all the time.
        for _ in range(rounds):
            for rows in range(50, 100):
                for _ in range(2):
                    session.run(None, {"x": np.ones((rows, 64), np.float32)})

    use(4)
    before = pages()
    use(20)
    return pages() - before


def use_many_sessions():
    model = network(0, 4, 256)

    def use(sessions: int):
        for _ in range(sessions):
            session = open_session(model)
            for rows in (1, 2):
                session.run(None, {"x": np.ones((rows, 256), np.float32)})

    use(10)
    before = pages()
    use(60)
    return pages() - before


@pytest.mark.parametrize("use, most", [(use_many_shapes, 4 << 20), (use_many_sessions, 16 << 20)])
def test_memory_stays_flat(use, most):
    # In a process of its own: other tests leave a heap with holes. Each session holds 1 MiB of weights.
    script = f"import ort_mlx, test_recordings; ort_mlx.register(); print(test_recordings.{use.__name__}())"
    folders = [str(Path(__file__).parent), str(Path(ort_mlx.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    grown = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300)
    assert grown.returncode == 0, grown.stderr
    assert int(grown.stdout.split()[-1]) < most


def test_many_threads_and_shapes():
    model = network(1, 6, 32)
    alone, shared = open_session(model, compile="off"), open_session(model, cache=3)
    feeds = [np.random.default_rng(rows).standard_normal((rows, 32)).astype(np.float32) for rows in range(1, 9)]
    wanted = [alone.run(None, {"x": x})[0] for x in feeds]
    wrong = []

    def work(first: int):
        for i in range(40):
            at = (first + i // 3) % len(feeds)
            if not np.array_equal(shared.run(None, {"x": feeds[at]})[0], wanted[at]):
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("option", [{"compile": "on"}, {"cache": 0}, {"memory_cache": "much"}])
def test_options_say_what_they_take(add_model, option):
    (name,) = option
    with pytest.raises(Exception, match=f"option '{name}' .* it takes "):
        open_session(add_model, **option)


def test_memory_cache_is_an_option(add_model):
    session = open_session(add_model, memory_cache=64)
    assert session.run(None, {"x": np.zeros((1, 3), np.float32)})[0].tolist() == [[1, 1, 1]]
