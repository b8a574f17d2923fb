"""Who is there, who is asked, who has answered: a federation over a session of Flower's.

A client that does not answer is asked again until it does (``wait``), or left out of the round
(``drop``). An answer counts once: others are recorded, and so is everything that was waited for.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from undrift import __version__
from undrift._files import writing
from undrift.core.method import Method
from undrift.core.problem import Constants, Facts, Problem
from undrift.engines.federated import Answer, Call, Check, Federated, Refused, Remote, Unsound
from undrift.engines.format import dump, parse
from undrift.engines.options import FederatedOptions
from undrift.flower.job import Job, sources
from undrift.flower.session import LOOK, Lost, NoFederation, Reply, Session
from undrift.objectives import Objective
from undrift.runs.events import Began, Event
from undrift.runs.prepare import build_all
from undrift.spec.errors import Complaint
from undrift.spec.schema import Spec, values

AGAIN = 2.0
"""Seconds before a client that reported trouble is asked again."""
LIFE = 3600.0
"""Seconds that a message may take."""
HEAD = 2**16
RECORD = "federation.jsonl"
"""Who was asked again, waited for, came late: a file of the run's folder."""
NODES = "nodes.json"
"""Which node is which client, where clients have data of their own."""
NEWS = 10.0
"""Seconds between words about who is waited for."""


class Hello(NamedTuple):
    """What a node has said of itself."""

    node: str
    about: Mapping[str, Any]


class Letter(NamedTuple):
    """A message to one client."""

    kind: str
    table: Mapping[str, Any]
    content: bytes = b""


class Sent(NamedTuple):
    client: int
    node: str
    at: float


Accept = Callable[[int, Reply], None]
"""Takes a client's reply, or raises :class:`Refused`."""


class FlowerFederation:
    """The clients of a spec, on nodes that have joined a SuperLink."""

    def __init__(
        self,
        session: Session,
        spec: Spec,
        tell: Callable[[str], None],
        folder: Path | None = None,
    ):
        self.session, self.spec, self.tell = session, spec, tell
        self.folder = folder
        options = spec.engine_options
        assert isinstance(options, FederatedOptions)
        self.options = options
        self.numbers: dict[str, int] = {}
        """The client of every node by its name, where clients have no numbers of their own."""
        self.seconds: list[float] = []
        """What every phase took."""
        self.phases: list[dict[str, Any]] = []
        if folder is not None and (folder / NODES).is_file():
            self.numbers = json.loads((folder / NODES).read_text(encoding="utf-8"))
        self._text, self._sources = spec.toml(), sources(spec)
        self._job = Job(self._text, self._sources)
        self._label = spec.entries[0].label
        self._samples: tuple[int, ...] = ()
        self._nodes: dict[int, str] = {}
        """The node of every client."""
        self._names: dict[int, str] = {}
        self._greeted: dict[str, str | None] = {}
        """The nodes that were asked who they are -> the number of that message."""
        self._replied: set[str] = set()
        self._late: dict[str, Sent] = {}
        """Messages whose answers no longer count."""

    # -- who is there ---------------------------------------------------------------------------

    def gather(self) -> list[Mapping[str, Any]]:
        """Wait until every client has joined; what each of them says of itself."""
        wanted, found, told = self.spec.problem.clients, dict[int, Mapping[str, Any]](), -1
        news = 0.0
        while len(found) < wanted:
            for hello in self._meet():
                found[self._number(hello)] = hello.about
            if len(found) != told or time.monotonic() > news:
                told, news = len(found), time.monotonic() + NEWS
                self.tell(f"{told} of {wanted} clients have joined.")
            time.sleep(LOOK)
        return [found[client] for client in range(wanted)]

    def _meet(self) -> list[Hello]:
        """Ask nodes that are new who they are; those that have said it since the last look."""
        try:
            return self._ask_new()
        except Lost:
            self._forget_run()
            self.session.renew()
            return []

    def _ask_new(self) -> list[Hello]:
        needs = any(entry.method.open_fields() for entry in self.spec.entries)
        for node in self.session.nodes():
            if node not in self._greeted:
                table = {**self._job.table(), "do": "hello", "constants": needs}
                self._greeted[node] = self.session.push(node, "query", table, b"", LIFE, "hello")
        waiting = {id: node for node, id in self._greeted.items() if id and id not in self._replied}
        met = []
        for reply in self.session.pull([*waiting]):
            node = waiting[reply.id]
            self._replied.add(reply.id)
            if "name" in reply.table:
                met.append(Hello(node, reply.table))
                continue
            why = reply.error or str(reply.table.get("error"))
            if reply.table.get("lasting"):
                self.tell(f"A node cannot take part: {why}")
            else:  # it was away, or is just starting
                del self._greeted[node]
                self._note("hello failed", why=why)
        for hello in met:
            self._welcome(hello)
        return met

    def _welcome(self, hello: Hello) -> None:
        if hello.about["version"] != __version__:
            self.tell(f"A node has undrift {hello.about['version']}, and this is {__version__}.")
        client = self._number(hello)
        name, before = hello.about["name"], self._names.get(client)
        if before not in (None, name):
            raise NoFederation(
                f"two nodes are client {client} ({before} and {name}): stop one of them, or give "
                "it another --part"
            )
        self._names[client], self._nodes[client] = name, hello.node

    def _number(self, hello: Hello) -> int:
        if "part" in hello.about:
            return int(hello.about["part"])
        name = str(hello.about["name"])
        if name not in self.numbers:
            free = set(range(self.spec.problem.clients)) - set(self.numbers.values())
            if not free:
                wanted = self.spec.problem.clients
                raise NoFederation(f"more nodes have joined than the spec has clients ({wanted})")
            self.numbers[name] = min(free)
        return self.numbers[name]

    def _forget_run(self) -> None:
        self._greeted.clear()
        self._replied.clear()
        self._late.clear()

    # -- the problem ----------------------------------------------------------------------------

    def build(
        self, spec: Spec, seed: int, complaints: list[Complaint]
    ) -> dict[Objective | None, Problem]:
        """The problems of a spec, whose data are with the clients."""
        say = spec.origin.complaint
        if spec.anew:
            text = "a federation has the data that it has: leave out vary"
            complaints.append(say(("vary",), text))
        for i, entry in enumerate(spec.entries):
            if self.options.absent == "drop" and _needs_all(entry.method):
                text = f"{entry.label} needs every client in every round: absent = 'wait'"
                complaints.append(spec.complaint(i, "name", text))
        if complaints:
            return {}
        said = self.gather()
        parts = ["part" in about for about in said]
        if all(parts):
            return self._shared(spec, seed, said, complaints)
        if any(parts):
            raise NoFederation("some nodes have data of their own, others joined with --part")
        return self._own(spec, said)

    def _shared(
        self,
        spec: Spec,
        seed: int,
        said: Sequence[Mapping[str, Any]],
        complaints: list[Complaint],
    ) -> dict[Objective | None, Problem]:
        """Everybody can build the problem, the server too."""
        problems = build_all(spec, seed, complaints)
        if complaints:
            return {}
        found: dict[Objective | None, Problem] = {}
        first = problems[spec.entries[0].objective].digest()
        for client, about in enumerate(said):
            if about["digest"] != first:
                raise NoFederation(f"client {client} has other data than this machine")
        for objective, whole in problems.items():
            found[objective] = Remote(whole.facts, self, whole.digest(), whole)
        self._samples = tuple(next(iter(problems.values())).samples)
        return found

    def _own(
        self, spec: Spec, said: Sequence[Mapping[str, Any]]
    ) -> dict[Objective | None, Problem]:
        """Every client has data that nobody else sees."""
        for field in ("dim", "dtype", "classes"):
            different = {json.dumps(about[field]) for about in said}
            if len(different) > 1:
                listed = ", ".join(f"client {i}: {about[field]}" for i, about in enumerate(said))
                raise NoFederation(f"the clients do not have the same {field} ({listed})")
        self._samples = tuple(about["samples"] for about in said)
        x = self._first_point()
        constants = None
        if all("L" in about for about in said):
            constants = Constants(
                L=_extreme(max, [about["L"] for about in said]),
                mu=_extreme(min, [about["mu"] for about in said]),
            )
        digest = hashlib.sha256(" ".join(str(about["digest"]) for about in said).encode())
        facts = Facts(
            clients=len(said),
            dim=said[0]["dim"],
            samples=self._samples,
            dtype=getattr(torch, said[0]["dtype"]),
            device=torch.device("cpu"),
            remembers=False,
            differentiates=bool(said[0]["differentiates"]),
            first=x,
            constants=constants,
        )
        self._pooled = bool(said[0]["pooled"])
        found: dict[Objective | None, Problem] = {}
        for entry in spec.entries:
            needs = () if entry.objective is None else entry.objective.needs
            its = dataclasses.replace(facts, remembers="previous" in needs)
            found[entry.objective] = Remote(its, self, digest.hexdigest())
        return found

    def _first_point(self) -> Tensor:
        found: dict[str, Tensor] = {}

        def accept(client: int, reply: Reply) -> None:
            found["x"] = parse(reply.content, HEAD)["x"]

        job = dataclasses.replace(self._job, samples=self._samples)
        self._exchange({0: Letter("query", {**job.table(), "do": "start"})}, accept, "start", True)
        return found["x"]

    # -- one phase ------------------------------------------------------------------------------

    def hear(self, event: Event) -> None:
        """Know which method of the spec comes next."""
        if isinstance(event, Began):
            self._label = event.label

    def begin(self, engine: Federated, seed: int) -> None:
        samples = tuple(engine.problem.samples)
        chosen = values(engine.method)
        self._job = Job(self._text, self._sources, self._label, chosen, seed, samples)
        if self.folder is not None and self.numbers:
            with writing(self.folder / NODES) as file:
                file.write(json.dumps(self.numbers).encode())

    def ask(self, calls: Sequence[Call], check: Check) -> dict[int, Answer | Unsound | str]:
        answers: dict[int, Answer | Unsound | str] = {}

        def accept(client: int, reply: Reply) -> None:
            if "unsound" in reply.table:
                answers[client] = Unsound(str(reply.table["unsound"]))
                return
            answer = Answer(reply.content, int(reply.table["gradients"]))
            check(client, answer)
            answers[client] = answer

        letters = {}
        for call in calls:
            job = dataclasses.replace(self._job, client=call.client)
            table = {**job.table(), "do": "work", "tag": call.tag, "before": call.before}
            table |= {"keep": call.keep, "skipped": [*call.skipped], "gone": [*call.gone]}
            letters[call.client] = Letter("train", table, call.frame)
        tag = calls[0].tag if calls else None
        wait = self.options.absent == "wait"
        missing = self._exchange(letters, accept, f"{tag and tag[:2]}", wait)
        return answers | missing

    def evaluate(self, problem: Remote, x: Tensor) -> dict[str, float]:
        replies: dict[int, Reply] = {}
        content, job = dump({"x": x.detach().cpu()}), self._job
        letters = {}
        for client in range(problem.clients):
            its = dataclasses.replace(job, client=client)
            letters[client] = Letter("evaluate", {**its.table(), "do": "evaluate"}, content)

        def accept(client: int, reply: Reply) -> None:
            if "unsound" in reply.table:
                raise Refused(str(reply.table["unsound"]))
            replies[client] = reply

        wait = self.options.absent == "wait" or problem.whole is not None
        self._exchange(letters, accept, "evaluate", wait)
        if problem.whole is not None:
            sums = [parse(replies[client].content, HEAD) for client in sorted(replies)]
            return problem.whole.combine(sums, x)
        return self._means([replies[client].table for client in sorted(replies)])

    def _means(self, said: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Losses as f has them; shares of samples by their samples."""
        if not said:
            return {"loss": math.nan}
        total, found = sum(about["samples"] for about in said), dict[str, float]()
        for name in said[0]["metrics"]:
            equal = "loss" in name and not self._pooled
            weights = [1 / len(said) if equal else about["samples"] / total for about in said]
            terms = zip(weights, (about["metrics"][name] for about in said), strict=True)
            found[name] = math.fsum(weight * value for weight, value in terms)
        if len(said) < self.spec.problem.clients:
            found["measured_clients"] = len(said)
        return found

    def _exchange(
        self, letters: Mapping[int, Letter], accept: Accept, group: str, wait: bool
    ) -> dict[int, str]:
        """Have every client answer; who did not, and why."""
        pending, failed = dict(letters), dict[int, str]()
        sent: dict[str, Sent] = {}
        due = dict.fromkeys(pending, 0.0)
        """When to ask next."""
        began, words = time.monotonic(), dict.fromkeys(pending, "")
        limit = began + self.options.deadline
        while pending:
            now = time.monotonic()
            try:
                for client, letter in pending.items():
                    node = self._nodes.get(client)
                    if node is None or now < due[client]:
                        continue
                    if due[client]:
                        self._note("asked again", group=group, client=client, why=words[client])
                    id = self.session.push(
                        node, letter.kind, letter.table, letter.content, LIFE, group
                    )
                    due[client] = now + (self.options.deadline if id else AGAIN)
                    words[client] = f"no answer within {self.options.deadline:g} s"
                    if id:
                        sent[id] = Sent(client, node, now)
                replies = self.session.pull([*sent, *self._late])
                moved = self._moved(pending)
            except Lost:
                self._forget_run()
                sent.clear()
                self.session.renew()
                due = dict.fromkeys(pending, 0.0)
                continue
            for client in moved:
                due[client] = 0.0
            for reply in replies:
                self._hear(reply, pending, sent, due, words, accept, group)
            if not pending:
                break
            if not wait and time.monotonic() > limit:
                failed = {client: words[client] or "it has not joined" for client in pending}
                break
            if replies:
                continue
            time.sleep(LOOK)
            if wait and time.monotonic() > limit:
                limit = time.monotonic() + self.options.deadline
                for client in pending:
                    why = words[client] or "it has not joined"
                    self.tell(f"Waiting for client {client}: {why}")
                    self._note("waited for", group=group, client=client, why=why)
        self._late |= sent
        self._late = {id: one for id, one in self._late.items() if now - one.at < LIFE}
        self.phases.append({"group": group, "seconds": time.monotonic() - began})
        return failed

    def _hear(
        self,
        reply: Reply,
        pending: dict[int, Letter],
        sent: dict[str, Sent],
        due: dict[int, float],
        words: dict[int, str],
        accept: Accept,
        group: str,
    ) -> None:
        """One reply."""
        if reply.id in self._late:
            late = self._late.pop(reply.id)
            self._note("late or second answer, not counted", group=group, client=late.client)
            return
        one = sent.pop(reply.id)
        client = one.client
        if client not in pending:
            self._note("second answer, not counted", group=group, client=client)
            return
        why = reply.error or str(reply.table.get("error", ""))
        if why and reply.table.get("lasting"):
            raise NoFederation(f"client {client} cannot go on: {why}")
        if not why:
            try:
                accept(client, reply)
                del pending[client]
                return
            except (Refused, KeyError, ValueError, TypeError) as error:
                why = f"an answer that cannot be used: {error}"
                self._note("refused", group=group, client=client, why=why)
        words[client] = why
        due[client] = min(due[client], time.monotonic() + AGAIN)
        if reply.error and self._nodes.get(client) == one.node:
            self._greeted.pop(one.node, None)  # it may be back under another number

    def _moved(self, pending: Mapping[int, Letter]) -> list[int]:
        """Clients that are on another node than before, of those that are waited for."""
        if time.monotonic() - self._looked < 1.0:
            return []
        self._looked = time.monotonic()
        before = dict(self._nodes)
        self._ask_new()
        return [client for client in pending if self._nodes.get(client) != before.get(client)]

    _looked = 0.0
    _pooled = False

    def _note(self, what: str, **about: Any) -> None:
        """Write down what was out of the ordinary."""
        if self.folder is not None and self.folder.is_dir():
            line = json.dumps({"time": round(time.time(), 3), "what": what, **about})
            with (self.folder / RECORD).open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def _needs_all(method: Method) -> bool:
    full = method.participation == "full"
    return full or any(phase.who == "all" for phase in method.exchanges())


def _extreme(choose: Callable[..., float], found: Sequence[float | None]) -> float | None:
    known = [value for value in found if value is not None]
    return choose(known) if len(known) == len(found) else None
