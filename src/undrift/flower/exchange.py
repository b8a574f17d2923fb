"""Requests to the clients of a federation: who is there, who is asked again, who is late.

A client's request is in one of these states:

* pending: it has to be asked, at once or at the time in ``due``;
* sent: on its way, by the number that the carrier gave it. It stays pending, and is sent again
  after the deadline, so that several copies may be under way;
* answered: a reply was accepted, and the client is no longer pending. Replies to other copies are
  dropped: an answer counts once;
* given up (``absent = "drop"``): the deadline has passed. Its reply, should it still come, belongs
  to an exchange that is over, and is dropped.

A greeting goes to a node, not to a client: its reply says which client the node is. Greetings and
requests share one table of what is under way, and one turn of greeting, sending and hearing.

What is the same in all messages of a run (``once``) is told to a client once. Later messages have
its digest; a node that does not have it, or no longer, says so and is told again.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from undrift import __version__
from undrift.core.method import Method
from undrift.engines.federated import Accept, Refused
from undrift.engines.messages.packet import Packet
from undrift.engines.options import FederatedOptions
from undrift.flower.compat import Lost, NoFederation

LOOK = 0.2
"""Seconds between looks for replies."""
SEEK = 1.0
"""Seconds between looks for nodes."""
AGAIN = 2.0
"""Seconds before a client that reported trouble is asked again."""
LIFE = 3600.0
"""Seconds that a message may take, unless its answer is awaited for longer."""
NEWS = 10.0
"""Seconds between words about who is waited for."""

About = Mapping[str, Any]
"""What a node says of itself, or a message of its run."""


class Carrier(Protocol):
    """Carries packets to nodes, and their replies back."""

    def nodes(self) -> list[str]:
        """The nodes that are online."""

    def push(self, node: str, packet: Packet, ttl: float) -> str | None:
        """Send a packet, which lives for ``ttl`` seconds; its number, ``None`` if it is refused."""

    def pull(self, ids: Sequence[str]) -> dict[str, Packet]:
        """The replies that have come to these packets."""

    def renew(self) -> None:
        """Begin again, after :class:`Lost`."""


class Member(NamedTuple):
    """A node that has joined: where it is reached, and what it has said of itself."""

    node: str
    about: About
    key: str

    def __str__(self) -> str:
        number = f"client {self.about['part']} " if "part" in self.about else ""
        return f"{number}({self.called})"

    @property
    def called(self) -> str:
        """By its key, if that is known, and by the name that it gave itself."""
        return (f"key {self.key}, " if self.key else "") + f"node {self.about['name']}"


class Asking:
    """An exchange under way."""

    def __init__(self, packets: Mapping[int, Packet], accept: Accept):
        self.pending, self.accept = dict(packets), accept
        self.words = dict.fromkeys(self.pending, "")
        """Why a client has not answered."""
        self.due = dict.fromkeys(self.pending, 0.0)
        """When to ask a client; 0: it was not asked."""


class Sent(NamedTuple):
    """A message under way; a greeting has no client."""

    node: str
    at: float
    client: int | None = None
    asking: Asking | None = None


class ClientExchange:
    """Requests to the clients of a federation, and their replies."""

    def __init__(
        self,
        carrier: Carrier,
        clients: int,
        options: FederatedOptions,
        tell: Callable[[str], None],
    ):
        self.carrier, self.clients, self.options, self.tell = carrier, clients, options, tell
        self.keys: Mapping[str, str] = {}
        """The names of nodes' keys, where those are known."""
        self._members: dict[str, Member] = {}
        """By the number that the node has as a client, or by its name."""
        self._order: list[str] = []
        """The members as clients 0, 1 and so on, when all of them have joined."""
        self._greeted: set[str] = set()
        self._once, self._digest = b"", ""
        self._told: set[int] = set()
        """The clients that have been told what they are told once."""
        self._sent: dict[str, Sent] = {}
        self._looked, self._life = 0.0, max(LIFE, options.deadline)

    def greeting(self) -> Packet:
        """What asks a node who it is."""
        raise NotImplementedError

    def about_run(self, client: int) -> About:
        """What a message to a client says of its run."""
        raise NotImplementedError

    def tell_once(self, once: bytes) -> None:
        """From now on messages refer to this."""
        self._once, self._digest = once, hashlib.sha256(once).hexdigest()
        self._told.clear()

    def referring(self, packet: Packet, whole: bool) -> Packet:
        """A message, ``whole`` with what nodes are told once."""
        once = self._once if whole else b""
        table = {**packet.table, "told": self._digest, "once": len(once)}
        return Packet(table, packet.content + once)

    def who(self, client: int) -> str:
        """A client, with the names of its key and its node."""
        return f"client {client} ({self._members[self._order[client]].called})"

    # -- who is there ---------------------------------------------------------------------------

    def gather(self) -> list[About]:
        """Wait until every client has joined; what each of them says of itself."""
        told, news, limit = -1, 0.0, time.monotonic() + self.options.joining
        while (count := len(self._members)) < self.clients:
            now = time.monotonic()
            if now > limit:
                raise NoFederation(
                    f"{self._joined()}; waited {self.options.joining:g} s: start the others, or "
                    "give clients or joining = SECONDS another value"
                )
            if count != told or now > news:
                told, news = count, now + NEWS
                self.tell(self._joined())
            if not self._turn(None):
                self._pause()
        # By their names and not as they came, so that the same nodes always make the same run.
        self._order = sorted(self._members)
        self.tell(self._joined())
        return [self._members[place].about for place in self._order]

    def _joined(self) -> str:
        """Who has joined and, where clients have numbers or keys, who has not."""
        members = [*self._members.values()]
        text = f"{len(members)} of {self.clients} clients have joined"
        if members:
            text += f": {', '.join(sorted(map(str, members)))}"
        nodes = {member.node for member in members}
        missing = [f"key {name}" for node, name in self.keys.items() if node not in nodes]
        if any("part" in member.about for member in members):
            numbers = range(self.clients)
            missing = [f"client {k}" for k in numbers if _place(k) not in self._members]
        return f"{text}; missing: {', '.join(missing)}" if missing else text

    def _met(self, node: str, about: About, asking: Asking | None) -> None:
        """A node has replied to a greeting."""
        if "name" not in about:
            if about.get("lasting"):
                return self._cannot_join(str(about.get("node", node)), str(about.get("error")))
            self._greeted.discard(node)  # it was away, or is just starting
            return
        if about["version"] != __version__:
            self.tell(f"A node has undrift {about['version']}, and this is {__version__}.")
        name = str(about["name"])
        place = _place(int(about["part"])) if "part" in about else name
        before = self._members.get(place)
        if before is None and len(self._members) == self.clients:
            return self._cannot_join(
                name,
                f"the {self.clients} clients are other nodes; one of them that has lost its folder "
                "of states has to be started with that folder",
            )
        if before is not None and before.about["name"] != name:
            return self._cannot_join(
                name, f"{before} is the same client: stop one of them, or give it another number"
            )
        self._members[place] = Member(node, about, self.keys.get(node, ""))
        if asking is not None and before is not None and before.node != node:
            client = self._order.index(place)
            if client in asking.pending:
                asking.due[client] = 0.0  # what was sent to where it was is lost

    def _cannot_join(self, node: str, why: str) -> None:
        """A node will never do: the end, unless everybody has joined before."""
        if not self._order:
            raise NoFederation(
                f"node {node} cannot take part: {why}; mend that on the node, and start again"
            )
        self.tell(f"Node {node} cannot take part: {why}")

    # -- request and reply ----------------------------------------------------------------------

    def ask(self, orders: Mapping[int, Packet], accept: Accept) -> dict[int, str]:
        """Have every client reply to its order; who did not, and why."""
        packets = {
            client: Packet({**self.about_run(client), **table}, content)
            for client, (table, content) in orders.items()
        }
        return self.exchange(packets, accept, self.options.absent == "wait")

    def exchange(self, packets: Mapping[int, Packet], accept: Accept, wait: bool) -> dict[int, str]:
        """The same for any request; ``wait``: nobody is given up."""
        asking = Asking(packets, accept)
        limit = time.monotonic() + self.options.deadline
        while asking.pending:
            heard = self._turn(asking)
            if time.monotonic() > limit:
                if not wait:
                    break
                limit = time.monotonic() + self.options.deadline
                for client in asking.pending:
                    self.tell(f"Waiting for {self.who(client)}: {asking.words[client]}")
            if not heard:
                self._pause()
        return {client: asking.words[client] for client in asking.pending}

    def _turn(self, asking: Asking | None) -> bool:
        """Greet, send and hear once; whether anything was heard."""
        now = time.monotonic()
        # The carrier has forgotten what is older than its life: nothing comes of it any more.
        self._sent = {id: one for id, one in self._sent.items() if now - one.at < self._life}
        try:
            self._greet(now)
            if asking is not None:
                self._send(asking, now)
            replies = self.carrier.pull([*self._sent])
        except Lost:
            # All that was under way went with the Flower run. Nodes may have other numbers in the
            # next one, so they are greeted anew; states on their disks make asking again harmless.
            self._greeted.clear()
            self._sent.clear()
            if asking is not None:
                asking.due = dict.fromkeys(asking.pending, 0.0)
            self.carrier.renew()
            return True
        # What was heard is no longer under way: it is not asked for again.
        for id, reply in replies.items():
            self._hear(self._sent.pop(id), reply, asking)
        return bool(replies)

    def _greet(self, now: float) -> None:
        if now - self._looked < SEEK:
            return
        self._looked = now
        for node in self.carrier.nodes():
            new = node not in self._greeted
            if new and (id := self.carrier.push(node, self.greeting(), self._life)):
                self._greeted.add(node)
                self._sent[id] = Sent(node, now)

    def _send(self, asking: Asking, now: float) -> None:
        """Ask those whose turn it is, for the first time or again."""
        deadline = self.options.deadline
        for client, packet in asking.pending.items():
            if now < asking.due[client]:
                continue
            node = self._members[self._order[client]].node
            packet = self.referring(packet, client not in self._told)
            id = self.carrier.push(node, packet, self._life)
            # It stays pending until a reply is accepted, so that a lost message is sent again.
            asking.due[client] = now + (deadline if id else AGAIN)
            asking.words[client] = asking.words[client] or f"no answer within {deadline:g} s"
            if id:
                self._sent[id] = Sent(node, now, client, asking)
                self._told.add(client)

    def _hear(self, sent: Sent, reply: Packet, asking: Asking | None) -> None:
        """Take one reply, if it counts."""
        table, client = reply.table, sent.client
        if client is None:
            return self._met(sent.node, table, asking)
        if asking is None or sent.asking is not asking or client not in asking.pending:
            return None  # late, or a second answer
        if "untold" in table:
            self._told.discard(client)
            asking.due[client] = 0.0
            return None
        why = str(table.get("error", ""))
        if why and table.get("lasting"):
            raise NoFederation(f"{self.who(client)} cannot go on: {why}")
        if not why:
            try:
                asking.accept(client, reply)
                del asking.pending[client]
                return None
            except (Refused, KeyError, ValueError, TypeError) as error:
                why = f"an answer that cannot be used: {error}"
        if why != asking.words[client]:  # not at every try
            self.tell(f"{self.who(client)}: {why}; it is asked again")
        asking.words[client] = why
        asking.due[client] = min(asking.due[client], time.monotonic() + AGAIN)
        if "code" in table:  # from Flower: the node may be back under another number
            self._greeted.discard(sent.node)
        return None

    def _pause(self) -> None:
        """Wait a moment, unless the program has ended and this thread alone keeps it."""
        if not threading.main_thread().is_alive():
            raise NoFederation("the program has ended")
        time.sleep(LOOK)


def _place(number: int) -> str:
    """A number of a client, so that places in their order are those of the numbers."""
    return f"{number:09}"


def needs_all(method: Method) -> bool:
    """Whether a method cannot go on without any of its clients."""
    return method.participation == "full" or any(one.who == "all" for one in method.exchanges())
