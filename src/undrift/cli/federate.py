"""``federate``: a spec is run with clients who keep their data."""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from undrift.cli.output import OK, refuse, say, say_when
from undrift.cli.parser import Parser, natural
from undrift.cli.run import add_options, executes, finished, other, perform
from undrift.core.params import hints
from undrift.flower.compat import misfit
from undrift.records.folder import Folder, made
from undrift.spec.reader import load
from undrift.spec.schema import Spec

if TYPE_CHECKING:
    from undrift.federate.session import SuperLinkAddress


def add(parser: Parser) -> None:
    parser.description = (
        "Run every method of a spec with clients on machines of their own, which have joined a "
        "SuperLink of Flower's with undrift join. The results go to a folder, as with undrift run, "
        "and the same command continues a run that was interrupted. undrift federate keys makes "
        "certificates and keys."
    )
    parser.add_argument("spec", metavar="SPEC", help="TOML file that says what to run, or: keys")
    parser.add_argument(
        "--superlink", metavar="HOST:PORT", help="a SuperLink that runs with --isolation process"
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="run a SuperLink here too, for nodes to join"
    )
    parser.add_argument(
        "--local",
        type=natural,
        metavar="N",
        help="a SuperLink and N nodes on this machine, to try it; they end with the command",
    )
    parser.file("--keys", metavar="FOLDER", help="what undrift federate keys has made")
    parser.file("--data", metavar="FOLDER", help="the folder of data sets, with --local")
    parser.add_argument("--nodes", type=natural, default=3, metavar="N", help="keys: so many nodes")
    parser.add_argument(
        "--host",
        dest="hosts",
        action="append",
        default=[],
        metavar="NAME",
        help="keys: a name or address of the SuperLink's machine; may be repeated",
    )
    add_options(parser, new=True)


def main(args: Namespace) -> int:
    need_flower()
    if args.spec == "keys":
        return keys(args)
    if sum(way is not None for way in (args.superlink, args.listen, args.local)) != 1:
        refuse(["say where the clients are: one of --superlink, --listen and --local"])
    if args.jobs > 1:
        refuse(["--jobs: a federation runs one method after another"])
    flags = [*args.changes, "engine.name=flower"]
    spec = load(args.spec, flags, executes(Path(args.spec).parent))
    if "clients" not in hints(type(spec.problem)):
        text = f"{spec.problem_name} has no parameter clients, which a federation tells it: add one"
        remedy = (
            "Each node then builds the whole problem and has a part of it: join --part NUMBER. "
            "For nodes that read data of their own: docs/flower-app.md"
        )
        refuse([text], remedy)
    if args.local is not None and args.local != spec.problem.clients:
        spec = load(args.spec, [*flags, f"problem.clients={args.local}"])
    folder = Folder(args.out / spec.name)
    state = folder.state(spec)
    if args.overwrite or state in ("new", "unfinished"):
        return federate(spec, folder, args)
    if state in ("shorter", "other"):
        other(spec, folder)
    return finished(folder, args, "; --overwrite runs it again")


def need_flower() -> None:
    """Refuse to go on without Flower, or with one that is not known to work."""
    if why := misfit():
        refuse([why])


def federate(spec: Spec, folder: Folder, args: Namespace) -> int:
    """Run what is left of a spec with the clients that have joined."""
    from undrift.federate.federation import FlowerFederation
    from undrift.federate.session import Session, SuperLink, local_federation

    made(folder.path)
    folder.lock()
    try:
        with ExitStack() as stack:
            address, link = where(args), None
            if args.local is not None:
                local = local_federation(folder.path / "nodes", args.local, args.data)
                link = stack.enter_context(local)
                address = link.address
            elif args.listen is not None:
                link = SuperLink(folder.path / "superlink", address, args.keys)
                stack.callback(link.end)
                address = link.here
            revive = link.look if link else lambda: None
            session = stack.enter_context(Session(address, say_when, revive))
            keys = session.register(sorted(args.keys.glob("*.pub"))) if args.keys else {}
            session.open()
            federation = FlowerFederation(session, spec, say_when, folder.path, keys)
            return perform(spec, folder, args.overwrite, args, federation.build, federation.hear)
    finally:
        folder.close()


def where(args: Namespace) -> SuperLinkAddress:
    """The SuperLink, with what it takes to be let in."""
    from undrift.federate.session import SuperLinkAddress

    address = SuperLinkAddress.read(args.superlink or args.listen or "127.0.0.1:1")
    if args.keys is None:
        return address.secured(None, None)
    return address.secured(args.keys / "server.key", args.keys / "ca.crt", args.keys / "secret")


def keys(args: Namespace) -> int:
    """Make certificates and keys."""
    from undrift.federate.keys import make_keys

    folder = args.keys or Path("keys")
    if folder.exists() and any(folder.iterdir()):
        refuse([f"{folder} is there already: give another folder, --keys FOLDER"])
    for line in make_keys(folder, args.nodes, args.hosts):
        say(line)
    return OK
