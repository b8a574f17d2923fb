"""Who is there, who is asked, who has answered.

A client that does not answer is asked again until it does (``wait``), or left out of the round
(``drop``). An answer counts once: others are recorded, and so is everything that was waited for.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from undrift import __version__
from undrift.core.method import Method
from undrift.engines.federated import Answer, Call, Check, Refused, Unsound
from undrift.engines.options import FederatedOptions
from undrift.flower.orders import written

AGAIN = 2.0
"""Seconds before a client that reported trouble is asked again."""
LIFE = 3600.0
"""Seconds that a message may take, unless its answer is awaited for longer."""
NEWS = 10.0
"""Seconds between words about who is waited for."""


LOOK = 0.2
"""Seconds between looks for replies."""


About = Mapping[str, Any]
"""What a node says of itself, or a message of its run."""


class NoFederation(RuntimeError):
    """There is no SuperLink, or it does not do what is needed; the message says what to do."""


class Lost(ConnectionError):
    """The Flower run has ended: its messages are gone."""


class Reply(NamedTuple):
    """What came back of a message."""

    id: str
    table: Mapping[str, Any]
    content: bytes = b""
    error: str = ""


class Hello(NamedTuple):
    """What a node has said of itself."""

    node: str
    about: About


class Letter(NamedTuple):
    """A message to one client."""

    kind: str
    table: About
    content: bytes = b""


class Sent(NamedTuple):
    """A message on its way."""

    client: int
    node: str
    at: float


Accept = Callable[[int, Reply], None]
"""Takes a client's reply, or raises :class:`Refused`."""


class Asking:
    """An exchange under way: who has not answered yet, and why not."""

    def __init__(self, letters: Mapping[int, Letter], accept: Accept, group: str):
        self.pending, self.accept, self.group = dict(letters), accept, group
        self.words = dict.fromkeys(self.pending, "it has not joined")
        """Why a client has not answered."""
        self.begin_again()

    def begin_again(self) -> None:
        """Start over: nothing was sent yet, or all of it is lost."""
        self.due = dict.fromkeys(self.pending, 0.0)
        """When to ask a client; 0: it was not asked."""
        self.sent: dict[str, Sent] = {}

    def reasons(self) -> dict[int, str]:
        """Why those that have not answered have not."""
        return {client: self.words[client] for client in self.pending}


class Carrier(Protocol):
    """Carries messages to nodes, and their replies back."""

    @property
    def keys(self) -> Mapping[str, str]:
        """The names of the keys of nodes, where they are known."""

    def nodes(self) -> list[str]:
        """The nodes that are online."""

    def push(
        self, node: str, kind: str, table: About, content: bytes, ttl: float, group: str
    ) -> str | None:
        """Send a message; its number, ``None`` if it is not taken."""

    def pull(self, ids: Sequence[str]) -> list[Reply]:
        """The replies that have come to these messages."""

    def renew(self) -> None:
        """Begin again, after :class:`Lost`."""


class Correspondence:
    """Letters to the clients of a federation, and their replies."""

    def __init__(
        self,
        session: Carrier,
        clients: int,
        options: FederatedOptions,
        tell: Callable[[str], None],
        record: Path | None = None,
        known: Mapping[str, int] | None = None,
    ):
        self.session, self.clients, self.options = session, clients, options
        self.tell, self.record = tell, record
        self.numbers: dict[str, int] = dict(known or {})
        """The client of every node by its name, where clients have no numbers of their own."""
        self._numbered = bool(known)
        """Whether these are the numbers of a run that is under way."""
        self._nodes: dict[int, str] = {}
        """The node of every client."""
        self._names: dict[int, str] = {}
        self._greeted: dict[str, str | None] = {}
        """The nodes that were asked who they are -> the number of that message."""
        self._replied: set[str] = set()
        self._informed: set[str] = set()
        """Nodes that have answered a whole message."""
        self._late: dict[str, Sent] = {}
        """Messages whose answers no longer count."""
        self._gathered = False
        self._looked, self._life = 0.0, max(LIFE, options.deadline)

    def greeting(self) -> Letter:
        """What asks a node who it is."""
        raise NotImplementedError

    def about_run(self, client: int) -> About:
        """What a message to a client says of its run."""
        raise NotImplementedError

    def shortened(self, table: About) -> About:
        """A message for a node that has answered one before."""
        return table

    def cannot_join(self, node: str, why: str) -> None:
        """A node will never do: the end, unless everybody has joined before."""
        if not self._gathered:
            raise NoFederation(
                f"node {node} cannot take part: {why}; mend that on the node, and start again"
            )
        self.tell(f"Node {node} cannot take part: {why}")

    def who(self, client: int) -> str:
        """A client, with the name of its node where that is known."""
        name = self._names.get(client)
        return f"client {client}" if name is None else f"client {client} (node {name})"

    def gather(self) -> list[About]:
        """Wait until every client has joined; what each of them says of itself."""
        wanted, found, told = self.clients, dict[int, About](), -1
        news, limit = 0.0, time.monotonic() + self.options.joining
        while len(found) < wanted:
            for hello in self._meet():
                found[self._number(hello)] = hello.about
            now = time.monotonic()
            if len(found) < wanted and now > limit:
                raise NoFederation(
                    f"{self._joined(found)}; after {self.options.joining:g} s nobody waits for "
                    "them any longer (joining = SECONDS)"
                )
            if len(found) != told or now > news:
                told, news = len(found), now + NEWS
                self.tell(self._joined(found))
            self._pause()
        if not self._numbered and len(self.numbers) == wanted:
            found = self._number_by_name(found)
        self._gathered = self._numbered = True
        return [found[client] for client in range(wanted)]

    def _joined(self, found: Mapping[int, About]) -> str:
        """Who has joined, and who has not, as far as that is known."""
        keys = self.session.keys
        here = [keys.get(self._nodes[client], self.who(client)) for client in sorted(found)]
        missing = [name for name in keys.values() if name not in here]
        if not keys:
            absent = [client for client in range(self.clients) if client not in found]
            numbered = any("part" in about for about in found.values())
            missing = [self.who(client) for client in absent if numbered]
            missing += [name for name, client in self.numbers.items() if client in absent]
        text = f"{len(found)} of {self.clients} clients have joined"
        text += f": {', '.join(here)}" if here else ""
        return f"{text}; missing: {', '.join(missing)}" if missing else text

    def _pause(self) -> None:
        """Wait a moment, unless the program has ended and this thread alone keeps it."""
        if not threading.main_thread().is_alive():
            raise NoFederation("the program has ended")
        time.sleep(LOOK)

    def _number_by_name(self, found: Mapping[int, About]) -> dict[int, About]:
        """Number the clients by the names of their nodes, and no longer as they came."""
        now = {self.numbers[name]: client for client, name in enumerate(sorted(self.numbers))}
        self.numbers = {name: now[client] for name, client in self.numbers.items()}
        self._nodes = {now[client]: node for client, node in self._nodes.items()}
        self._names = {now[client]: name for client, name in self._names.items()}
        return {now[client]: about for client, about in found.items()}

    def _meet(self) -> list[Hello]:
        """Ask nodes that are new who they are; those that have said it since the last look."""
        try:
            return self._ask_new()
        except Lost:
            self._forget_run()
            self.session.renew()
            return []

    def _ask_new(self) -> list[Hello]:
        greeting = self.greeting()
        for node in self.session.nodes():
            if node not in self._greeted:
                self._greeted[node] = self.session.push(node, *greeting, self._life, "hello")
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
                self.cannot_join(str(reply.table.get("node", node)), why)
            else:  # it was away, or is just starting
                del self._greeted[node]
                self._note("hello failed", why=why)
        for hello in met:
            self._welcome(hello)
        return met

    def _welcome(self, hello: Hello) -> None:
        if hello.about["version"] != __version__:
            self.tell(f"A node has undrift {hello.about['version']}, and this is {__version__}.")
        name = str(hello.about["name"])
        try:
            client = self._number(hello)
        except NoFederation as error:
            return self.cannot_join(name, str(error))
        before = self._names.get(client)
        if before not in (None, name):
            why = f"two nodes are client {client} ({before} and {name}): stop one of them, or give "
            return self.cannot_join(name, f"{why}it another number")
        self._names[client], self._nodes[client] = name, hello.node

    def _number(self, hello: Hello) -> int:
        if "part" in hello.about:
            return int(hello.about["part"])
        name = str(hello.about["name"])
        if name not in self.numbers:
            free = set(range(self.clients)) - set(self.numbers.values())
            if not free:
                raise NoFederation(
                    f"the {self.clients} clients are other nodes; one of them that has lost its "
                    "folder of states has to be started with that folder"
                )
            self.numbers[name] = min(free)
        return self.numbers[name]

    def _forget_run(self) -> None:
        self._greeted.clear()
        self._replied.clear()
        self._late.clear()

    def ask(self, calls: Sequence[Call], check: Check) -> dict[int, Answer | Unsound | str]:
        answers: dict[int, Answer | Unsound | str] = {}

        def accept(client: int, reply: Reply) -> None:
            if "unsound" in reply.table:
                answers[client] = Unsound(str(reply.table["unsound"]))
                return
            drawn = bool(reply.table["drawn"])
            answer = Answer(reply.content, int(reply.table["gradients"]), drawn)
            check(client, answer)
            answers[client] = answer

        letters = {}
        for call in calls:
            table = {**self.about_run(call.client), **written(call)}
            letters[call.client] = Letter("train", table, call.frame)
        tag = calls[0].tag if calls else None
        wait = self.options.absent == "wait"
        missing = self._exchange(letters, accept, f"{tag and tag[:2]}", wait)
        return answers | missing

    def _exchange(
        self, letters: Mapping[int, Letter], accept: Accept, group: str, wait: bool
    ) -> dict[int, str]:
        """Have every client answer; who did not, and why."""
        asking = Asking(letters, accept, group)
        limit = time.monotonic() + self.options.deadline
        while asking.pending:
            try:
                self._send(asking)
                replies = self.session.pull([*asking.sent, *self._late])
                moved = self._moved(asking)
            except Lost:
                self._forget_run()
                self.session.renew()
                asking.begin_again()
                continue
            for client in moved:
                asking.due[client] = 0.0
            for reply in replies:
                self._hear(reply, asking)
            over = time.monotonic() > limit
            if over and not wait:
                break
            if over and asking.pending:
                limit = time.monotonic() + self.options.deadline
                for client, why in asking.reasons().items():
                    self.tell(f"Waiting for {self.who(client)}: {why}")
                    self._note("waited for", group=group, client=client, why=why)
            if not replies:
                self._pause()
        now = time.monotonic()
        known = self._late | asking.sent
        self._late = {id: one for id, one in known.items() if now - one.at < self._life}
        return asking.reasons()

    def _send(self, asking: Asking) -> None:
        """Ask those whose turn it is, for the first time or again."""
        now, deadline = time.monotonic(), self.options.deadline
        for client, letter in asking.pending.items():
            node, due = self._nodes.get(client), asking.due[client]
            if node is None or now < due:
                continue
            if due:
                why = asking.words[client]
                self._note("asked again", group=asking.group, client=client, why=why)
            table = self.shortened(letter.table) if node in self._informed else letter.table
            letter = letter._replace(table=table)
            id = self.session.push(node, *letter, self._life, asking.group)
            asking.due[client] = now + (deadline if id else AGAIN)
            asking.words[client] = f"no answer within {deadline:g} s"
            if id:
                asking.sent[id] = Sent(client, node, now)

    def _hear(self, reply: Reply, asking: Asking) -> None:
        """Take one reply, if it counts."""
        if reply.id in self._late:
            late = self._late.pop(reply.id)
            what = "late or second answer, not counted"
            return self._note(what, group=asking.group, client=late.client)
        one = asking.sent.pop(reply.id)
        client = one.client
        if client not in asking.pending:
            return self._note("second answer, not counted", group=asking.group, client=client)
        if "untold" in reply.table:
            self._informed.discard(one.node)
            asking.due[client] = 0.0
            return None
        why = reply.error or str(reply.table.get("error", ""))
        if why and reply.table.get("lasting"):
            raise NoFederation(f"{self.who(client)} cannot go on: {why}")
        if not why:
            try:
                asking.accept(client, reply)
                del asking.pending[client]
                self._informed.add(one.node)
                return None
            except (Refused, KeyError, ValueError, TypeError) as error:
                why = f"an answer that cannot be used: {error}"
                self._note("refused", group=asking.group, client=client, why=why)
        asking.words[client] = why
        asking.due[client] = min(asking.due[client], time.monotonic() + AGAIN)
        if reply.error and self._nodes.get(client) == one.node:
            self._greeted.pop(one.node, None)  # it may be back under another number
        return None

    def _moved(self, asking: Asking) -> list[int]:
        """Clients that are on another node than before, of those that are waited for."""
        if time.monotonic() - self._looked < 1.0:
            return []
        self._looked = time.monotonic()
        before = dict(self._nodes)
        self._ask_new()
        return [
            client for client in asking.pending if self._nodes.get(client) != before.get(client)
        ]

    def _note(self, what: str, **about: Any) -> None:
        """Write down what was out of the ordinary."""
        if self.record is not None and self.record.parent.is_dir():
            line = json.dumps({"time": round(time.time(), 3), "what": what, **about})
            with self.record.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def needs_all(method: Method) -> bool:
    full = method.participation == "full"
    return full or any(phase.who == "all" for phase in method.exchanges())
