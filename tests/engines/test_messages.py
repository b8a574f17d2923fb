"""Frames: what is accepted, what is refused and why, and what that costs."""

import hashlib
import json
import time
import tracemalloc

import pytest
import torch
from safetensors.torch import load
from tests.faults import frames
from tests.faults.frames import (
    CLIENT,
    HERE,
    PHASE,
    ROUND,
    RUN,
    Empty,
    Mixed,
    Whole,
    begins,
    resealed,
    sealed,
)

from undrift.check.federations import least_squares
from undrift.core.problem import Problem
from undrift.engines import Simulate, Wire
from undrift.engines.messages.format import BadFormat, parse
from undrift.engines.messages.frames import ABOUT, BODY, Address, BadFrame, decode, header, pack
from undrift.engines.wire import Mailed
from undrift.methods import FedAvg, Scaffold

LIKE = torch.zeros(6, dtype=torch.float64)
WHOLE = Whole(y=torch.arange(6).double(), c=torch.ones(6).double())


def reason(kind, frame, like=LIKE, address=HERE):
    with pytest.raises(BadFrame) as caught:
        decode(kind, frame, like, address)
    return caught.value.reason


def parts(frame):
    """The head as a table, and the numbers."""
    size = begins(frame)
    return json.loads(frame[BODY + 8 : size]), frame[size:]


def frame(change=lambda table: None, numbers=None, message=WHOLE):
    """A frame with a changed head, and the digest of its bytes."""
    table, body = parts(HERE.frame(pack(message)))
    change(table)
    return sealed(json.dumps(table).encode(), body if numbers is None else numbers)


def test_a_frame_says_where_it_belongs_and_ends_with_a_safetensors_file():
    whole = HERE.frame(pack(WHOLE))
    assert hashlib.sha256(whole[32:]).digest() == whole[:32]
    assert ABOUT.unpack_from(whole, 32) == (bytes.fromhex(RUN), ROUND, PHASE, CLIENT, 1)
    tensors = load(whole[BODY:])
    assert torch.equal(tensors["y"], WHOLE.y) and torch.equal(tensors["c"], WHOLE.c)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_what_is_sent_arrives(dtype):
    like = torch.zeros(7, dtype=dtype)
    sent = Mixed(y=torch.randn(7).to(dtype), g=like.clone(), h=torch.randn(7).to(dtype))
    sent.g[3] = 2
    message = HERE.frame(pack(sent))
    got = decode(Mixed, message, like, HERE)
    assert all(torch.equal(v, getattr(sent, name)) for name, v in got.items())
    assert len(message) - sum(v.nbytes for v in load(message[BODY:]).values()) <= header(Mixed)
    assert decode(Empty, HERE.frame(pack(Empty())), like, HERE).items() == []


def test_messages_share_no_memory_with_their_frame():
    got = decode(Whole, HERE.frame(pack(WHOLE)), LIKE, HERE)
    got.y.zero_()
    assert got.c.tolist() == [1] * 6
    assert got.c.untyped_storage().nbytes() == 6 * 8


@pytest.mark.parametrize(
    "other",
    [
        HERE._replace(run="f" * 32),
        HERE._replace(round=ROUND - 1),
        HERE._replace(phase=0),
        HERE._replace(client=CLIENT + 1),
        HERE._replace(way="down"),
    ],
)
def test_another_address_is_refused(other):
    assert reason(Whole, other.frame(pack(WHOLE))) == "foreign"
    assert reason(Whole, HERE.frame(pack(WHOLE)), address=other) == "foreign"


def test_every_bit_counts():
    whole = HERE.frame(pack(WHOLE))
    for k in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[k // 8] ^= 1 << k % 8
        assert reason(Whole, bytes(damaged)) in ("damaged", "malformed")
    for size in range(len(whole)):
        assert reason(Whole, whole[:size]) in ("damaged", "malformed")
    assert reason(Whole, whole + b"\0") in ("damaged", "malformed")


def test_what_is_not_declared_is_refused_even_with_its_digest():
    def entry(**changes):
        return frame(lambda table: table["y"].update(changes))

    assert torch.equal(decode(Whole, frame(), LIKE, HERE).y, WHOLE.y)
    for bad in (
        b"",
        bytes(8),
        sealed(b""),
        sealed(b"{}"),
        frame(lambda table: table.pop("y")),
        frame(lambda table: table.update(z=table["y"])),
        frame(lambda table: table.update(z=table.pop("y"))),
        frame(lambda table: table.update(__metadata__={"round": 12})),
        resealed(frame()[: BODY - 1] + b"\x02" + frame()[BODY:]),
        frame(numbers=bytes(95)),
        frame(numbers=bytes(97)),
        entry(dtype="F32"),
        entry(dtype="I64"),
        entry(dtype="object"),
        entry(shape=[2, 3]),
        entry(shape=[7]),
        entry(shape=[-6, -1]),
        entry(shape=[10**400]),
        entry(data_offsets=[0, 48]),
        entry(data_offsets=None),
        sealed(parts_with_a_key_twice(), bytes(96)),
        HERE.frame(pack(Mixed(y=WHOLE.y, g=WHOLE.y, h=WHOLE.y))),
        HERE.frame(pack(Whole(y=torch.zeros(7).double(), c=WHOLE.y))),
        HERE.frame(pack(Whole(y=torch.zeros(6), c=WHOLE.y))),
    ):
        assert reason(Whole, bad) == "malformed", bad


def parts_with_a_key_twice():
    text = json.dumps(parts(HERE.frame(pack(WHOLE)))[0])
    return text.replace('"c": ', '"y": ').encode()


def bombs():
    empty = '"%07d":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}'
    many = ",".join(empty % k for k in range(1_000_000))
    start = json.dumps(parts(HERE.frame(pack(WHOLE)))[0])[:-1]
    yield "a million empty tensors", f"{start},{many}}}"
    yield "depth", start + ', "y": ' + "[" * 10_000_000
    yield "digits", start + ', "y": ' + "9" * 10_000_000
    yield "metadata", '{"__metadata__": {"run": "' + "a" * 10_000_000
    yield "dimensions", start + ', "y": {"dtype":"F64","shape":[' + "1," * 5_000_000 + "1]}}"


@pytest.mark.parametrize("name, text", [pytest.param(*pair, id=pair[0]) for pair in bombs()])
def test_a_head_that_explodes_is_refused_before_it_does(name, text):
    whole = sealed(text.encode(), bytes(96))
    for bomb in (whole, resealed(whole[:400])):
        began = time.process_time()
        tracemalloc.start()
        assert reason(Whole, bomb) == "malformed"
        assert tracemalloc.get_traced_memory()[1] < 2**20
        tracemalloc.stop()
        assert time.process_time() - began < 0.1


def test_twenty_thousand_mutants():
    found, _, grown = frames.fuzz(20_000, seed=1)
    assert found.total() == 20_000
    assert {"malformed", "damaged", "foreign"} <= set(found)
    assert found["right, with its own digest"] < 400
    assert grown is None or grown < 64 * 2**20


class Lost(Mailed):
    def carry(self, frame):
        return frame[:-1]


def test_clients_whose_frames_are_damaged_are_left_out():
    engine = Wire(FedAvg(lr=0.01), least_squares())
    engine.site = Lost(engine.common, engine.identity)
    engine.run_round()
    assert engine.ledger.skipped == 1 and len(engine.rejections) == engine.problem.clients
    assert all("message" in one.reason for one in engine.rejections)


def test_a_run_has_one_name():
    problem: Problem = least_squares()
    given = {"steps": 2, "cohort": 3, "seed": 1, "batch": 2}
    method = FedAvg(lr=0.01)
    engine = Wire(method, problem, **given)
    first = engine.identity
    assert len(first) == 32 and Address(first, 0, 0, 0, "up")
    engine.run_round()
    again = Wire(FedAvg(lr=0.01), least_squares(), **given)
    again.restore(*engine.snapshot())
    assert first == engine.identity == again.identity
    assert Simulate(method, problem, **given).identity == first
    others = [
        Wire(FedAvg(lr=0.02), problem, **given),
        Wire(Scaffold(lr=0.01), problem, **given),
        Wire(method, least_squares(dim=9), **given),
        Wire(method, problem, **given, x0=torch.ones(problem.dim)),
        Wire(method, problem, **given, training={"weight_decay": 0.1}),
        Wire(method, problem, **given, judge={"norm": 5.0}),
        Wire(method, problem, steps=2, cohort=3, seed=1, batch=2, schedule=0.9),
        *(Wire(method, problem, **{**given, name: 4}) for name in given),
    ]
    assert len({first, *(other.identity for other in others)}) == len(others) + 1


def file(entries):
    head = json.dumps(entries).encode()
    return len(head).to_bytes(8, "little") + head + bytes(16)


@pytest.mark.parametrize("start", [4, 16])
def test_tensors_that_do_not_follow_one_another_are_refused(start):
    """A hole, or an overlap: what lies between would be read as numbers."""
    entry = {"dtype": "F64", "shape": [1]}
    entries = {
        "a": {**entry, "data_offsets": [0, 8]},
        "b": {**entry, "data_offsets": [start, start + 8]},
    }
    with pytest.raises(BadFormat):
        parse(file(entries), 1000)
    entries["b"]["data_offsets"] = [8, 16]
    assert parse(file(entries), 1000).keys() == {"a", "b"}
