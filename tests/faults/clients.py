"""One client of ten whose work cannot be used is left out, and nothing else changes.

    python -m tests.faults.clients [--seed 0] [--rounds 5]

Every method that works with some of the clients, on both engines, with the fault in every phase:
uploads that are NaN, infinite or 1e30 times too long, and on ``wire`` frames of a wrong shape, of a
wrong type, without a field, with one too many, or cut short. The states of server and clients must
be those of a run in which that client is left out of the same rounds, bit for bit.
"""

from __future__ import annotations

import json
import sys

import torch

from tests.faults.frames import begins, sealed
from tests.faults.tally import Tally, arguments
from undrift.check.federations import example, least_squares
from undrift.engines import Engine, Simulate, Wire
from undrift.engines.messages.format import LENGTH
from undrift.engines.messages.frames import ABOUT, BODY, DIGEST, WAYS, Address
from undrift.engines.wire import Mailed
from undrift.methods import __all__ as METHODS
from undrift.methods import registry

BAD, SINCE = 3, 1
PROBLEM = least_squares(clients=10)
PARTIAL = [name for name in METHODS if registry[name].participation == "partial"]
NUMBERS = {
    "nan": {"kind": "nan"},
    "inf": {"kind": "inf"},
    "1e30": {"kind": "scale", "factor": 1e30},
}
FRAMES = ("shape", "type", "missing field", "extra field", "cut short")


class Misled(Mailed):
    """A site with a client whose frames are wrong in one phase."""

    fault, phase = "", 0

    def carry(self, frame: bytes) -> bytes:
        run, round, phase, client, way = ABOUT.unpack_from(frame, DIGEST)
        if (WAYS[way], client, phase) != ("up", BAD, self.phase) or round < SINCE:
            return frame
        return wrong(self.fault, frame, Address(run.hex(), round, phase, client, "up"))


def wrong(fault: str, frame: bytes, address: Address) -> bytes:
    """A frame with something wrong, and the digest of its own bytes."""
    if fault == "cut short":
        return frame[:-1]
    table, numbers = json.loads(frame[BODY + LENGTH : begins(frame)]), frame[begins(frame) :]
    name = next(iter(table), None)
    if name is None:  # a message without vectors
        return frame[:-1]
    if fault == "shape":
        (size,) = table[name]["shape"]
        table[name]["shape"] = [1, size]
    elif fault == "type":
        table[name]["dtype"] = "I64"
    elif fault == "missing field":
        table["other"] = table.pop(name)
    else:
        table["other"] = {"dtype": "F64", "shape": [0], "data_offsets": [len(numbers)] * 2}
    return sealed(json.dumps(table).encode(), numbers, address)


def states(engine: Engine) -> dict[str, torch.Tensor]:
    return engine.snapshot()[0]


def ran(kind: type[Engine], name: str, rounds: int, seed: int, **setting: object) -> Engine:
    """An engine after so many rounds; ``misled`` is the site of some wrong frames."""
    misled = setting.pop("misled", None)
    method = example(registry[name], PROBLEM.constants)
    engine = kind(method, PROBLEM, steps=2, seed=seed, **setting)
    if misled:
        site = Misled(engine.common, engine.identity)
        site.fault, site.phase = misled
        engine.parts[engine.parts.index(engine.site)] = site
        engine.site = site
    for _ in range(rounds):
        engine.run_round()
    return engine


def problem_with(engine: Engine, kind: type[Engine], name: str, rounds: int, seed: int) -> str:
    """What is not as in a run in which the bad client is left out; empty if nothing is."""
    refused = sorted({one.round for one in engine.rejections})
    if others := {one.client for one in engine.rejections} - {BAD}:
        return f"clients {sorted(others)} were left out"
    exchanges = engine.clock.plan(0, 0).phases
    sends = all(exchange.who == "cohort" and exchange.reduction != "pick" for exchange in exchanges)
    if sends and refused != list(range(SINCE, rounds)):
        return f"left out in rounds {refused} only"
    masks = [
        {"kind": "drop-before", "clients": [BAD], "since": round, "until": round + 1}
        for round in refused
    ]
    mine, theirs = states(engine), states(ran(kind, name, rounds, seed, faults=masks))
    if not all(bool(v.isfinite().all()) for v in mine.values()):
        return "states are not finite"
    differ = [key for key in theirs if not torch.equal(mine[key], theirs[key])]
    return f"{', '.join(differ)} differ" if differ else ""


def one_of_ten(
    rounds: int, seed: int, names: list[str], engines: tuple[type[Engine], ...] = (Simulate, Wire)
) -> Tally:
    torch.set_num_threads(1)
    tally = Tally("clients", f"one of ten clients bad, {len(names)} methods, every phase")
    for name in names:
        method = example(registry[name], PROBLEM.constants)
        phases = Simulate(method, PROBLEM, steps=2).clock.plan(0, 0).phases
        for phase, exchange in enumerate(phases):
            if not exchange.Up.vectors:
                continue  # nothing is sent that could be wrong
            for kind in engines:
                for fault, table in NUMBERS.items():
                    if fault == "1e30" and (exchange.who == "one" or exchange.reduction == "pick"):
                        continue  # one upload has no others to be compared with
                    bad = {**table, "clients": [BAD], "phase": phase, "since": SINCE}
                    engine = ran(kind, name, rounds, seed, faults=[bad])
                    case = f"{kind.__name__} {name}, phase {phase}, {fault}"
                    tally.add(case, problem_with(engine, kind, name, rounds, seed))
                for fault in FRAMES if kind is Wire else ():
                    engine = ran(kind, name, rounds, seed, misled=(fault, phase))
                    case = f"{kind.__name__} {name}, phase {phase}, {fault}"
                    tally.add(case, problem_with(engine, kind, name, rounds, seed))
    return tally


def main() -> int:
    given = arguments(__doc__, rounds=5)
    return one_of_ten(given.rounds, given.seed, PARTIAL).report()


if __name__ == "__main__":
    sys.exit(main())
