"""Vectors of which only the non-zero entries travel: how they are declared, sent, checked and
counted.
"""

import numpy as np
import pytest
import torch
from safetensors.torch import load
from tests.faults.frames import HERE, begins
from tests.rounds import after

import undrift as ud
from undrift.check.federations import least_squares
from undrift.core import Message, Method, Sparse, State, Vec, registry
from undrift.core.costs import costs
from undrift.engines import Simulate, Wire
from undrift.engines.messages.format import dump
from undrift.engines.messages.frames import (
    BODY,
    WAYS,
    BadFrame,
    decode,
    header,
    pack,
    sparse_bytes,
)
from undrift.engines.wire import Mailed
from undrift.methods.fedlin import top
from undrift.problems import build

BOTH = pytest.mark.parametrize("engine", [Simulate, Wire])


class Up(Message):
    y: Vec
    g: Sparse


def upload(*g, dtype=torch.float64):
    g = torch.tensor(g, dtype=dtype)
    return Up(y=torch.ones_like(g), g=g)


def payload(frame):
    """Bytes of the numbers of a frame."""
    return len(frame) - begins(frame)


@pytest.fixture
def sent(monkeypatch):
    """Every frame that the wire engine sends, by its way."""
    frames = {"down": [], "up": []}

    def carry(site, frame):
        frames[WAYS[frame[BODY - 1]]].append(frame)
        return frame

    monkeypatch.setattr(Mailed, "carry", carry)
    return frames


def test_it_is_a_vector_of_a_message():
    assert (Up.vectors, Up.sparse, Up.scratch, ud.Sparse) == (("y", "g"), ("g",), (), Sparse)
    whole = type("Whole", (Up,), {"__annotations__": {"g": Vec}})
    assert (whole.vectors, whole.sparse) == (("y", "g"), ())
    assert type("More", (Up,), {"__annotations__": {"y": Sparse}}).sparse == ("y", "g")
    with pytest.raises(TypeError, match="a Sparse is a field of a message"):
        type("Bad", (State,), {"__annotations__": {"g": Sparse}})


@pytest.mark.parametrize("dtype, size", [(torch.float64, 8), (torch.float32, 4)])
def test_entries_and_places_travel_where_that_is_less(dtype, size):
    like = torch.zeros(6, dtype=dtype)
    for g, entries in (
        ([0] * 6, 0),
        ([0, 2, 0, 0, -1, 0], 2),
        ([1, 2, 3, 4, 5, 6], None),
        ([1, 2, 3, 4, 5, 0], None),
    ):
        message = upload(*g, dtype=dtype)
        frame = HERE.frame(pack(message))
        expected = 6 * size if entries is None else entries * (size + 4)
        assert payload(frame) == 6 * size + expected and sparse_bytes(message) == expected
        assert 0 < len(frame) - payload(frame) <= header(Up)
        assert set(load(frame[BODY:])) == (
            {"y", "g"} if entries is None else {"y", "g.places", "g.values"}
        )
        back = decode(Up, frame, like, HERE)
        assert (
            back.g.dtype == dtype
            and torch.equal(back.g, message.g)
            and torch.equal(back.y, message.y)
        )


def test_what_is_not_finite_travels_too():
    back = decode(
        Up,
        HERE.frame(pack(upload(0, float("nan"), 0, 0, float("-inf"), 0))),
        torch.zeros(6, dtype=torch.float64),
        HERE,
    )
    assert np.array_equal(back.g, [0, np.nan, 0, 0, -np.inf, 0], equal_nan=True)


def frame(places, values, kind=torch.int32, dtype=torch.float64, **more):
    return made(
        y=torch.zeros(6, dtype=torch.float64),
        places=torch.tensor(places, dtype=kind),
        values=torch.tensor(values, dtype=dtype),
        **more,
    )


def made(**tensors):
    """A frame with these tensors, whatever is declared; places and values are those of g."""
    parts = {n if n not in ("places", "values") else f"g.{n}": v for n, v in tensors.items()}
    return HERE.frame(dump(parts))


def test_entries_that_are_not_some_of_a_vector_are_refused():
    like = torch.zeros(6, dtype=torch.float64)
    assert decode(Up, frame([1, 4], [2.0, 3.0]), like, HERE).g.tolist() == [0, 2, 0, 0, 3, 0]
    for bad in (
        frame([1, 6], [2.0, 3.0]),
        frame([-1, 4], [2.0, 3.0]),
        frame([4, 1], [2.0, 3.0]),
        frame([1, 1], [2.0, 3.0]),
        frame([0, 2**31 - 1, -(2**31), -1], [1.0] * 4),  # differences of int32 would wrap around
        frame([1, 4], [2.0]),
        frame([1], [2.0, 3.0]),
        frame([[1, 4]], [[2.0, 3.0]]),
        frame([1, 4], [2.0, 3.0], kind=torch.int64),
        frame([1, 4], [2.0, 3.0], kind=torch.float64),
        frame([1, 4], [2.0, 3.0], dtype=torch.float32),
        frame([1, 4], [2.0, 3.0], g=like),
        frame([1, 4], [2.0, 3.0], h=like),
        frame([*range(6)], [1.0] * 6),  # whole it takes fewer bytes
        made(y=like, places=torch.zeros(1, dtype=torch.int32)),
        made(**{"y.places": torch.zeros(1, dtype=torch.int32), "y.values": like[:1], "g": like}),
    ):
        with pytest.raises(BadFrame) as caught:
            decode(Up, bad, like, HERE)
        assert caught.value.reason == "malformed"


@BOTH
def test_bytes_of_top_k_are_those_that_travel(engine):
    """20 clients, d = 10, float64: an entry with its place is 12 bytes, a whole vector 80."""
    problem = build("quadratic", clients=20, dim=10)
    machine = engine(ud.FedLinTopK(lr=0.001, k_server=3, k_client=2), problem)
    machine.run_round()
    assert (machine.ledger.bytes_up, machine.ledger.bytes_down) == (
        20 * 160,
        20 * 160,
    )  # the first is sent whole
    after(9, machine)
    assert machine.ledger.bytes_up == 20 * (160 + 9 * (2 * 12 + 80))
    assert machine.ledger.bytes_down == 20 * (160 + 9 * (80 + 3 * 12))
    assert (machine.ledger.vectors_up, machine.ledger.vectors_down) == (20, 20)
    assert (costs(machine.method).up, costs(machine.method).down) == (2, 2)


class Sketch(Method):
    """Uploads the largest entries of each client's gradient, and sends the largest of the mean."""

    class Server(State):
        x: Vec
        g: Vec

    class Down(Message):
        x: Vec
        g: Sparse

    class Up(Message):
        g: Sparse

    def server(self, x0):
        return self.Server(x=x0, g=0 * x0)

    def send(self, s):
        return self.Down(x=s.x, g=top(2, s.g))

    def work(self, me, got, f):
        return me, self.Up(g=top(1 + f.round % 3, f.grad(got.x)))

    def merge(self, s, up, cohort):
        return self.Server(x=s.x - 0.01 * up.g, g=up.g)


registry.pop("Sketch")


@pytest.mark.parametrize("reduction", ["mean", "pick"])
def test_the_ledger_is_what_the_wire_carries(reduction, sent):
    problem = least_squares(dim=9)
    kind = type("Reduced", (Sketch,), {"reduction": reduction}, abstract=True)
    fast, slow = Simulate(kind(), problem, cohort=3), Wire(kind(), problem, cohort=3)
    for _ in range(50):
        fast.run_round()
        slow.run_round()
        assert fast.ledger == slow.ledger
    assert float((fast.x - slow.x).abs().max()) < 1e-12
    ups = 1 if reduction == "pick" else 3
    assert (len(sent["down"]), len(sent["up"])) == (150, 50 * ups)
    assert slow.ledger.bytes_down == sum(map(payload, sent["down"])) < 50 * 3 * 2 * 9 * 8
    assert slow.ledger.bytes_up == sum(map(payload, sent["up"])) < 50 * ups * 9 * 8
    assert 0 < slow.site.frames_down - slow.ledger.bytes_down <= 150 * header(Sketch.Down)
    assert 0 < slow.site.frames_up - slow.ledger.bytes_up <= 50 * ups * header(Sketch.Up)


def test_other_methods_are_not_looked_into():
    """Counting would wait for a GPU."""
    assert sparse_bytes(ud.Scaffold.Up(dy=object(), dc=object())) == 0
