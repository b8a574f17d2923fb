"""Frames that are mutated at random: none is accepted, and none does more than raise BadFrame.

    python -m tests.faults.frames [--count 1000000] [--seed 0]

Every second mutant gets the digest of its own bytes, as a sender with a bug would write it: what
lies behind the digest is tried too. Such a frame may be right, but only with the declared form.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from collections import Counter
from pathlib import Path

import torch

from undrift.core import Message, Sparse, Vec
from undrift.engines.messages.frames import BODY, DIGEST, Address, BadFrame, decode, pack

RUN, ROUND, PHASE, CLIENT = "0123456789abcdef" * 2, 12, 1, 7
MOST = 64 * 2**20
"""Bytes by which memory may grow."""
HERE = Address(RUN, ROUND, PHASE, CLIENT, "up")


class Whole(Message):
    y: Vec
    c: Vec


class Mixed(Message):
    y: Vec
    g: Sparse
    h: Sparse


class Empty(Message):
    pass


def sealed(head: bytes, numbers: bytes = b"", address: Address = HERE) -> bytes:
    """A frame with this head, whatever it says, and the digest of its own bytes."""
    return address.frame(len(head).to_bytes(8, "little") + head + numbers)


def resealed(frame: bytes) -> bytes:
    """The frame with the digest of its own bytes."""
    return hashlib.sha256(frame[DIGEST:]).digest() + frame[DIGEST:]


def begins(frame: bytes) -> int:
    """Where the numbers begin."""
    return BODY + 8 + int.from_bytes(frame[BODY : BODY + 8], "little")


def corpus() -> list[tuple[type[Message], bytes, torch.Tensor]]:
    """(kind, frame, a vector of the form that is declared)."""
    few, many = torch.arange(6.0, dtype=torch.float64), torch.arange(300.0)
    entries, none = torch.tensor([0, 2, 0, 0, -1, 0]).double(), torch.zeros(6).double()
    messages = [
        (Whole(y=few, c=few), few),
        (Whole(y=many, c=-many), many),
        (Mixed(y=few, g=entries, h=none), few),
        (Mixed(y=few, g=few + 1, h=entries), few),
        (Empty(), few),
    ]
    return [(type(message), HERE.frame(pack(message)), like) for message, like in messages]


WORDS = [
    *(bytes([byte]) for byte in b'"{}[]:, 0'),
    *(b"-1", b"1e999", b"NaN", b"null", b"true", b"[0, 0]", b"[6, 1]", b"F64", b"F32", b"I32"),
    *(b"9" * 20, b"9" * 300, b"9" * 5000, b"[" * 100, b"[" * 3000, b'{"a":' * 500),
    *(b"\\u0000", b"\xff", b"__metadata__", b'"y"', b'"digest": "', b"data_offsets"),
]


def mutant(frame: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """``frame`` with some damage."""
    size = begins(frame)
    made = bytearray(frame)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        within = size if draw.random() < 0.7 else len(made)
        at = draw.randrange(min(within, len(made)) or 1)
        kind = draw.randrange(13)
        if not made or kind == 0:
            made += draw.randbytes(draw.randrange(1, 40))
        elif kind == 1:
            made[at] ^= 1 << draw.randrange(8)
        elif kind == 2:
            made[at] = draw.randrange(256)
        elif kind == 3:
            del made[at:]
        elif kind == 4:
            del made[at : at + draw.randrange(1, 20)]
        elif kind == 5:
            made[at:at] = draw.choice(WORDS)
        elif kind == 6:
            word = draw.choice(WORDS)
            made[at : at + len(word)] = word
        elif kind == 7:
            right = size - BODY - 8
            length = draw.choice((0, 1, right - 1, right + 1, size, 2**31, 2**63, 2**64 - 1))
            made[BODY : BODY + 8] = length.to_bytes(8, "little")
        elif kind == 8:
            length = size - BODY - 8 + draw.randrange(-40, 40)
            made[BODY : BODY + 8] = length.to_bytes(8, "little", signed=True)
        elif kind == 9:
            other = draw.choice(others)
            made[at:] = other[draw.randrange(len(other)) :]
        elif kind == 10:
            there, many = draw.randrange(len(made)), draw.randrange(1, 30)
            made[at : at + many], made[there : there + many] = (
                made[there : there + many],
                made[at : at + many],
            )
        elif kind == 11:
            digits = [k for k, byte in enumerate(made[:size]) if 48 <= byte < 58]
            if digits:
                made[draw.choice(digits)] = draw.randrange(48, 58)
        else:
            made[at:at] = made[at : at + draw.randrange(1, 200)]
    if draw.random() < 0.2:  # a head of the length that it has now
        length = max(len(made) - (len(frame) - size) - BODY - 8, 0)
        made[BODY : BODY + 8] = length.to_bytes(8, "little")
    return bytes(made)


def resident() -> int | None:
    """Bytes of memory in use; ``None`` where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * 4096
    except OSError:
        return None


def fuzz(count: int, seed: int = 0) -> tuple[Counter[str], float, int | None]:
    """What became of the mutants, the longest time of one of them, and the growth of memory."""
    draw, frames = random.Random(seed), corpus()
    others = [frame for _, frame, _ in frames]
    found: Counter[str] = Counter()
    worst, before = 0.0, None
    for k in range(count):
        if k == min(count // 2, 10_000):
            before = resident()
        kind, frame, like = frames[k % len(frames)]
        made, honest = frame, k // len(frames) % 2 == 0
        while made == frame:
            made = mutant(frame, others, draw)
            made = made if honest else resealed(made)
        began = time.perf_counter()
        try:
            message = decode(kind, made, like, HERE)
        except BadFrame as error:
            found[error.reason] += 1
        else:
            assert not honest, f"mutant {k} of seed {seed} was accepted"
            assert isinstance(message, kind)
            forms = {(v.shape, v.dtype) for _, v in message.items()}
            assert forms <= {(like.shape, like.dtype)}, f"mutant {k} of seed {seed}: {forms}"
            found["right, with its own digest"] += 1
        worst = max(worst, time.perf_counter() - began)
    after = resident()
    return found, worst, None if before is None or after is None else after - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    found, worst, grown = fuzz(arguments.count, arguments.seed)
    seconds = time.perf_counter() - began
    print(f"  {seconds:.0f} s, the slowest frame {1e3 * worst:.1f} ms")
    if grown is not None:
        print(f"  memory grew by {grown / 2**20:.1f} MiB")
    for reason, number in found.most_common():
        print(f"  {number:8d} {reason}")
    count = arguments.count
    print(f"frames: mutated frames refused or of the declared form, {found.total()} of {count}")
    return 0 if found.total() == count and (grown is None or grown < MOST) else 1


if __name__ == "__main__":
    sys.exit(main())
