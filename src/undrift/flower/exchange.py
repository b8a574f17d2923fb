"""Requests to the clients of a federation: who is there, who is asked again, who is late.

A client's request is in one of these states:

* pending: it has to be asked, at once or at the time in ``due``; nobody is asked whose node has not
  joined;
* sent: on its way, by the number that the carrier gave it. It stays pending, and is sent again
  after the deadline, so that several copies may be under way;
* answered: a reply was accepted, and the client is no longer pending. Replies to other copies are
  noted and dropped: an answer counts once;
* given up (``absent = "drop"``): the deadline has passed. Its reply, should it still come, belongs
  to an exchange that is over, and is noted and dropped.

A greeting goes to a node, not to a client: its reply says which client the node is. Greetings and
requests share one table of what is under way, and one turn of greeting, sending and hearing.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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

    def push(self, node: str, packet: Packet, ttl: float, group: str) -> str | None:
        """Send a packet; its number, ``None`` if it is not taken."""

    def pull(self, ids: Sequence[str]) -> dict[str, Packet]:
        """The replies that have come to these packets."""

    def renew(self) -> None:
        """Begin again, after :class:`Lost`."""


class Member(NamedTuple):
    """A node that has joined: where it is reached, and what it has said of itself."""

    node: str
    about: About


@dataclasses.dataclass
class Asking:
    """An exchange under way."""

    pending: dict[int, Packet]
    accept: Accept
    group: str

    def __post_init__(self) -> None:
        self.words = dict.fromkeys(self.pending, "it has not joined")
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
        record: Path | None = None,
    ):
        self.carrier, self.clients, self.options = carrier, clients, options
        self.tell, self.record = tell, record
        self.numbers: dict[str, int] = {}
        """The client of every node by its name, where clients have no numbers of their own."""
        self.keys: Mapping[str, str] = {}
        """The names of nodes' keys, where those are known."""
        self._members: dict[int | str, Member] = {}
        """By client, or by name as long as the node has no number."""
        self._gathered = False
        """Whether all of them have joined once, and have numbers."""
        self._greeted: set[str] = set()
        self._sent: dict[str, Sent] = {}
        self._looked, self._life = 0.0, max(LIFE, options.deadline)

    def greeting(self) -> Packet:
        """What asks a node who it is."""
        raise NotImplementedError

    def about_run(self, client: int) -> About:
        """What a message to a client says of its run."""
        raise NotImplementedError

    def whole(self, packet: Packet) -> Packet:
        """A message with what nodes are told once, for one that has not heard it or forgot."""
        return packet

    def who(self, client: int) -> str:
        """A client, with the name of its node where that is known."""
        member = self._members.get(client)
        return f"client {client} (node {member.about['name']})" if member else f"client {client}"

    # -- who is there ---------------------------------------------------------------------------

    def gather(self) -> list[About]:
        """Wait until every client has joined; what each of them says of itself."""
        told, news, limit = -1, 0.0, time.monotonic() + self.options.joining
        while (count := len(self._members)) < self.clients:
            now = time.monotonic()
            if now > limit:
                raise NoFederation(
                    f"{self._joined()}; after {self.options.joining:g} s nobody waits for them any "
                    "longer (joining = SECONDS)"
                )
            if count != told or now > news:
                told, news = count, now + NEWS
                self.tell(self._joined())
            if not self._turn(None):
                self._pause()
        # By their names and not as they came, so that the same nodes always make the same run.
        free = (client for client in range(self.clients) if client not in self._members)
        for name in sorted(name for name in self._members if isinstance(name, str)):
            self.numbers[name] = next(free)
            self._members[self.numbers[name]] = self._members.pop(name)
        self._gathered = True
        self.tell(self._joined())
        return [self._members[client].about for client in range(self.clients)]

    def _joined(self) -> str:
        """Who has joined and, where clients have numbers or keys, who has not."""
        here = [self.who(at) if isinstance(at, int) else f"node {at}" for at in self._members]
        text = f"{len(here)} of {self.clients} clients have joined: {', '.join(sorted(here))}"
        numbered = any(isinstance(at, int) for at in self._members)
        absent = [self.who(at) for at in range(self.clients) if at not in self._members]
        nodes = {member.node for member in self._members.values()}
        keys = [f"key {name}" for node, name in self.keys.items() if node not in nodes]
        missing = absent if numbered else keys
        return f"{text}; missing: {', '.join(missing)}" if missing else text

    def _met(self, node: str, about: About, asking: Asking | None) -> None:
        """A node has replied to a greeting."""
        if "name" not in about:
            why = str(about.get("error"))
            if about.get("lasting"):
                return self._cannot_join(str(about.get("node", node)), why)
            self._greeted.discard(node)  # it was away, or is just starting
            return self._note("hello failed", why=why)
        if about["version"] != __version__:
            self.tell(f"A node has undrift {about['version']}, and this is {__version__}.")
        name = str(about["name"])
        at = int(about["part"]) if "part" in about else self.numbers.get(name, name)
        before = self._members.get(at)
        full = self._gathered or len(self._members) == self.clients
        if before is None and isinstance(at, str) and full:
            return self._cannot_join(
                name,
                f"the {self.clients} clients are other nodes; one of them that has lost its folder "
                "of states has to be started with that folder",
            )
        if before is not None and before.about["name"] != name:
            both = f"two nodes are client {at} ({before.about['name']} and {name})"
            remedy = "stop one of them, or give it another number"
            return self._cannot_join(name, f"{both}: {remedy}")
        self._members[at] = Member(node, about)
        moved = before is not None and before.node != node
        if asking is not None and at in asking.pending and moved:
            asking.due[int(at)] = 0.0  # what was sent to where it was is lost
        return None

    def _cannot_join(self, node: str, why: str) -> None:
        """A node will never do: the end, unless everybody has joined before."""
        if not self._gathered:
            raise NoFederation(
                f"node {node} cannot take part: {why}; mend that on the node, and start again"
            )
        self.tell(f"Node {node} cannot take part: {why}")

    # -- request and reply ----------------------------------------------------------------------

    def ask(self, orders: Mapping[int, Packet], accept: Accept) -> dict[int, str]:
        """Have every client reply to its order; who did not, and why."""
        packets, group = dict[int, Packet](), ""
        for client, (table, content) in orders.items():
            packet = Packet({**self.about_run(client), **table}, content)
            # Its first work: it cannot have been told yet, and need not say so.
            packets[client] = packet if table["before"] else self.whole(packet)
            group = f"{tuple(table['tag'][:2])}"
        return self.exchange(packets, accept, group, self.options.absent == "wait")

    def exchange(
        self, packets: Mapping[int, Packet], accept: Accept, group: str, wait: bool
    ) -> dict[int, str]:
        """The same for any request; ``wait``: nobody is given up."""
        asking = Asking(dict(packets), accept, group)
        limit = time.monotonic() + self.options.deadline
        while asking.pending:
            heard = self._turn(asking)
            if time.monotonic() > limit:
                if not wait:
                    break
                limit = time.monotonic() + self.options.deadline
                for client in asking.pending:
                    why = asking.words[client]
                    self.tell(f"Waiting for {self.who(client)}: {why}")
                    self._note("waited for", group=group, client=client, why=why)
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
            if node not in self._greeted:
                id = self.carrier.push(node, self.greeting(), self._life, "hello")
                if id:
                    self._greeted.add(node)
                    self._sent[id] = Sent(node, now)

    def _send(self, asking: Asking, now: float) -> None:
        """Ask those whose turn it is, for the first time or again."""
        deadline = self.options.deadline
        for client, packet in asking.pending.items():
            member = self._members.get(client)
            if member is None or now < asking.due[client]:
                continue
            if asking.due[client]:
                why = asking.words[client]
                self._note("asked again", group=asking.group, client=client, why=why)
            id = self.carrier.push(member.node, packet, self._life, asking.group)
            # It stays pending until a reply is accepted, so that a lost message is sent again.
            asking.due[client] = now + (deadline if id else AGAIN)
            asking.words[client] = f"no answer within {deadline:g} s"
            if id:
                self._sent[id] = Sent(member.node, now, client, asking)

    def _hear(self, sent: Sent, reply: Packet, asking: Asking | None) -> None:
        """Take one reply, if it counts."""
        table, client = reply.table, sent.client
        if client is None:
            return self._met(sent.node, table, asking)
        if asking is None or sent.asking is not asking or client not in asking.pending:
            group = "" if sent.asking is None else sent.asking.group
            return self._note("late or second answer, not counted", group=group, client=client)
        if "untold" in table:
            asking.pending[client], asking.due[client] = self.whole(asking.pending[client]), 0.0
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
                self._note("refused", group=asking.group, client=client, why=why)
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

    def _note(self, what: str, **about: Any) -> None:
        """Write down what was out of the ordinary."""
        if self.record is not None and self.record.parent.is_dir():
            line = json.dumps({"time": round(time.time(), 3), "what": what, **about})
            with self.record.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def needs_all(method: Method) -> bool:
    full = method.participation == "full"
    return full or any(phase.who == "all" for phase in method.exchanges())
