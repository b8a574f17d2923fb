"""A federation and its workers without Flower: messages pass through a session in this process."""

import itertools
import json
from collections import deque

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from undrift.engines.messages.packet import Packet
from undrift.federate.federation import FlowerFederation
from undrift.federate.node import NodeConfig
from undrift.federate.worker import ClientWorker
from undrift.runs.experiment import make
from undrift.spec.reader import parse as read

SPEC = """\
name = "mine"
rounds = 4
steps = 3
{top}
[problem]
name = "{problem}"
{more}
clients = 3

[[method]]
name = "{method}"
lr = 0.002
"""


def spec(method="Scaffold", top="batch = 3", problem="least-squares", more="", engine=""):
    text = SPEC.format(method=method, top=top, problem=problem, more=more)
    flags = ["engine.name=flower", *(f"engine.{one}" for one in engine.split())]
    return read(text, "mine.toml", flags)


class Session:
    """Hands messages to workers. ``spoil(message, worker)`` may lose, change or delay a reply."""

    def __init__(self, *workers):
        self.workers = {str(k): worker for k, worker in enumerate(workers)}
        self.numbers, self.waiting, self.looks = itertools.count(), {}, itertools.count()
        self.spoil = lambda asked, reply: [reply]
        self.asked, self.lives, self.renewed = [], [], 0

    def nodes(self):
        assert next(self.looks) < 2000, "nodes are waited for in vain"
        return [*self.workers]

    def push(self, node, packet, ttl):
        asked = Packet(json.loads(json.dumps(packet.table)), packet.content)
        self.asked.append((node, asked.table["do"], asked.table["once"] > 0))
        self.lives.append(ttl)
        id = str(next(self.numbers))
        worker = self.workers.get(node)
        found = Packet({"gone": True}) if worker is None else worker.answer(asked)
        self.waiting[id] = deque(self._spoilt(asked, found) if worker else [])
        return id

    def _spoilt(self, asked, found):
        return [found] if "untold" in found.table else self.spoil(asked, found)

    def pull(self, ids):
        found = {}
        for id in ids:
            while self.waiting.get(id):
                one = self.waiting[id].popleft()
                if isinstance(one, int):  # looks until it is there
                    if one > 0:
                        self.waiting[id].appendleft(one - 1)
                        break
                    continue
                if isinstance(one, Exception):
                    raise one
                if isinstance(one, str):
                    found[id] = Packet({"error": one, "code": 5})
                else:
                    found[id] = Packet(json.loads(json.dumps(one.table)), one.content)
                break
        return found

    def renew(self):
        self.renewed += 1
        self.waiting.clear()


def own(tmp_path, order=(0, 1, 2), states="s"):
    """Nodes with data of their own."""
    return Session(
        *(
            ClientWorker(NodeConfig(f"h{k}", tmp_path / f"{states}{k}", tmp_path / f"data{k}"))
            for k in order
        )
    )


def draw(folder, images, rng):
    """Grey images of 8 x 8; ``images`` has how many of each use."""
    from PIL import Image

    for (use, count), (shade, kind) in itertools.product(images.items(), enumerate(("cat", "dog"))):
        (folder / use / kind).mkdir(parents=True)
        for i in range(count // 2):
            pixels = rng.integers(0, 200, (8, 8), dtype=np.uint8) + np.uint8(50 * shade)
            Image.fromarray(pixels).save(folder / use / kind / f"{i}.png")


def run(session, chosen, told=None):
    said = told if told is not None else []
    federation = FlowerFederation(session, chosen, said.append)
    (result,) = make(chosen, federation.build).run(emit=federation.hear)
    return result


def near(chosen):
    again = {k: v for k, v in chosen.document().items() if k != "engine"}
    from undrift.spec import document as writer

    (result,) = make(read(writer.toml(again), "mine.toml")).run()
    return result


def assert_equal(far, here):
    assert far.outcome.status == here.outcome.status
    assert far.outcome.seeded == here.outcome.seeded
    assert torch.equal(far.model, here.model)
    assert far.engine.ledger == here.engine.ledger
