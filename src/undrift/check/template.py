"""A user's own method: a file to start from, and the battery on a file."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from undrift._files import reserved
from undrift.core.method import Method
from undrift.methods import registry

NAME = re.compile(r"[A-Z][A-Za-z0-9]*")

TEMPLATE = '''"""{name}: say what it does, and where it comes from."""

from undrift.core import Message, Method, Positive, State, Vec


class {name}(Method):
    """Clients: K times from x  y <- y - lr (g_i(y) - c_i + c);  c_i <- the mean of the K gradients.  Server: averages.

    Replace the recursion by your own. `undrift check` runs the battery on this file.

    lr  eta, local step
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

    class Down(Message):  # what travels to the clients
        x: Vec
        c: Vec

    class Up(Message):  # what travels back; the server sees the mean over the cohort
        dy: Vec
        dc: Vec

    def server(self, x0):
        return self.Server(x=x0, c=0 * x0)

    def client(self, x0):
        return self.Client(c=0 * x0)

    def send(self, s):
        return self.Down(x=s.x, c=s.c)

    def work(self, me, got, f):
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(y) - me.c + got.c)
        c = me.c - got.c + (got.x - y) / (f.steps * self.lr)
        return self.Client(c=c), self.Up(dy=y - got.x, dc=c - me.c)

    def merge(self, s, up, cohort):
        return self.Server(x=s.x + up.dy, c=s.c + cohort.fraction * up.dc)
'''


class BadFile(ValueError):
    """A file that does not hold a method."""


def write(name: str, folder: Path) -> Path:
    """A new file with a method called ``name`` that passes the battery; an existing file is kept."""
    if not NAME.fullmatch(name):
        raise BadFile(f"{name!r} cannot name a method: a capital letter, then letters and digits")
    if reserved(name):
        raise BadFile(f"{name} cannot name a file on Windows: choose another name")
    if name in registry:
        raise BadFile(f"{name} is a method of undrift already: choose another name")
    file = folder / f"{name.lower()}.py"
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(TEMPLATE.format(name=name))
    except FileExistsError:
        raise BadFile(f"{file} exists already: choose another name, or remove it") from None
    return file


def load(file: Path) -> list[type[Method]]:
    """The methods a file defines. The file is run, as any module of yours would be."""
    if not file.is_file():
        raise BadFile(f"{file}: there is no such file")
    known = set(registry)
    spec = importlib.util.spec_from_file_location(f"undrift_own_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise BadFile(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() too: the file does not end this program
        line = _line_in(error, file)
        raise BadFile(f"{file}{line}: {type(error).__name__}: {error}") from error
    found = [registry[name] for name in registry if name not in known]
    if not found:
        raise BadFile(f"{file}: defines no method; write a class that derives from undrift.Method")
    return found


def _line_in(error: BaseException, file: Path) -> str:
    lines = [
        frame.tb_lineno
        for frame in _frames(error)
        if Path(frame.tb_frame.f_code.co_filename) == file
    ]
    if isinstance(error, SyntaxError) and error.lineno:
        lines.append(error.lineno)
    return f":{lines[-1]}" if lines else ""


def _frames(error: BaseException) -> Iterator[TracebackType]:
    frame = error.__traceback__
    while frame is not None:
        yield frame
        frame = frame.tb_next
