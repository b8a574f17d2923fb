"""The file of a user's own method to start from."""

from __future__ import annotations

import re
from pathlib import Path

from undrift._files import reserved
from undrift.methods import __all__ as known

NAME = re.compile(r"[A-Z][A-Za-z0-9]*")

TEMPLATE = '''"""{name}: say what it does, and where it comes from."""

from undrift.core import Cohort, Local, Message, Method, Positive, State, Vec


class {name}(Method):
    r"""A method of my own: say in a line what it does.

    Clients take K steps from y = x; then the server averages. Replace the recursion by your own:

    .. math::

        y &\\leftarrow y - \\eta (g_i(y) - c_i + c) \\\\
        c_i^+ &= c_i - c + (x - y_i) / (K \\eta)

    Args:
        lr: eta, the local step size.
    """

    title = "A method of my own"
    paper = "unpublished"
    exact = True  # reaches the minimiser on heterogeneous clients with a constant lr

    lr: Positive

    class Server(State):  # what the server remembers
        x: Vec
        c: Vec

    class Client(State):  # what a client remembers
        c: Vec

    class Down(Message):  # what travels to the clients: the server's fields of these names
        x: Vec
        c: Vec

    class Up(Message):  # what travels back; the server sees the mean over the cohort
        dy: Vec
        dc: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, c=0 * x0)

    def client(self, x0: Vec) -> Client:
        return self.Client(c=0 * x0)

    def work(self, me: Client, got: Down, f: Local) -> tuple[Client, Up]:
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(y) - me.c + got.c)
        c = me.c - got.c + (got.x - y) / (f.steps * self.lr)
        return self.Client(c=c), self.Up(dy=y - got.x, dc=c - me.c)

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        return self.Server(x=s.x + up.dy, c=s.c + cohort.fraction * up.dc)
'''


class BadName(ValueError):
    """A name that no new method can have."""


def write(name: str, folder: Path) -> Path:
    """A new file with a method called ``name`` that passes the battery; no file is replaced."""
    file = folder / f"{name.lower()}.py"
    if not NAME.fullmatch(name):
        raise BadName(f"{name!r} cannot name a method: a capital letter, then letters and digits")
    if reserved(name):
        raise BadName(f"{name} cannot name a file on Windows: choose another name")
    if name in known:
        raise BadName(f"{name} is a method of undrift already: choose another name")
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(TEMPLATE.format(name=name))
    except FileExistsError:
        raise BadName(f"{file} exists already: choose another name, or remove it") from None
    return file
