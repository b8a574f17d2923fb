"""``federate``: a spec is run with clients who keep their data."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from pathlib import Path

from undrift.cli.output import OK, refuse, say, say_when
from undrift.cli.parser import Parser, natural
from undrift.cli.run import add_options, executes, finished, is_left, perform
from undrift.core.params import hints
from undrift.flower.compat import misfit
from undrift.records.folder import Folder, made
from undrift.records.part import WHOLE
from undrift.spec.reader import load
from undrift.spec.schema import Spec


def add(parser: Parser) -> None:
    parser.description = (
        "Run every method of a spec with clients on machines of their own, which have joined a "
        "SuperLink of Flower's on this machine with undrift join. The results go to a folder, as "
        "with undrift run, and the same command continues a run that was interrupted. undrift "
        "federate keys makes a certificate and keys."
    )
    parser.add_argument("spec", metavar="SPEC", help="TOML file that says what to run, or: keys")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="where nodes reach the SuperLink of this machine"
    )
    parser.add_argument(
        "--local",
        type=natural,
        metavar="N",
        help="N nodes on this machine, to try it; they end with the command",
    )
    parser.file("--keys", metavar="FOLDER", help="what undrift federate keys has made")
    parser.add_argument(
        "--data",
        nargs="+",
        type=Path,
        metavar="FOLDER",
        help="with --local: the folder of data sets, or one for each node, of its own data",
    )
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
    parser.set_defaults(part=WHOLE)


def main(args: Namespace) -> int:
    need_flower()
    if args.spec == "keys":
        return keys(args)
    if (args.listen is None) == (args.local is None):
        refuse(["say where the clients are: one of --listen and --local"])
    if args.data and len(args.data) not in (1, args.local):
        refuse([f"--data: give one folder for all nodes, or {args.local} for --local {args.local}"])
    if args.jobs > 1:
        refuse(["--jobs: a federation runs one method after another"])
    flags = [*args.changes, "engine.name=flower"]
    spec = load(args.spec, flags, partial(executes, Path(args.spec).parent))
    if "clients" not in hints(type(spec.problem)):
        refuse(
            [f"{spec.problem_name} has no parameter clients, which a federation tells it: add one"],
            "Each node then builds the whole problem and has a part of it: join --part NUMBER. "
            "For nodes that read data of their own: docs/flower-app.md",
        )
    if args.local is not None and args.local != spec.problem.clients:
        spec = load(args.spec, [*flags, f"problem.clients={args.local}"])
    need = spec.problem.clients
    have = len([*args.keys.glob("*.pub")]) if args.listen and args.keys else need
    if have < need:
        refuse(
            [f"{need} clients need as many keys, and {args.keys} has {have}"],
            "Put a .pub of every node there, or set clients to their number: another run",
        )
    folder = Folder(args.out / spec.name)
    if is_left(spec, folder, args, longer=False):
        return federate(spec, folder, args)
    return finished(folder, args, "; --overwrite runs it again")


def need_flower() -> None:
    """Refuse to go on without Flower, or with one that is not known to work."""
    if why := misfit():
        refuse([why])


def federate(spec: Spec, folder: Folder, args: Namespace) -> int:
    """Run what is left of a spec with the clients that have joined."""
    from undrift.federate.federation import FlowerFederation
    from undrift.federate.keys import in_force
    from undrift.federate.session import Session, SuperLinkAddress, free_port, local_nodes

    here = SuperLinkAddress("127.0.0.1", free_port())
    keys = None if args.local else args.keys
    key = keys and keys / "server.key"
    address = SuperLinkAddress.read(args.listen, key) if args.listen else here
    if keys:
        try:
            in_force(keys / "server.pem")
        except (OSError, ValueError) as error:
            refuse([error])
    nodes = local_nodes(folder.path / "nodes", address, args.local or 0, args.data or ())
    made(folder.path)
    folder.lock()
    try:
        # Nodes end first: they still tell the SuperLink that they leave.
        with Session(folder.path / "superlink", address, keys, say_when) as session, nodes:
            session.open()
            federation = FlowerFederation(session, spec, say_when, session.key_names)
            return perform(spec, folder, args.overwrite, args, federation.build, federation.hear)
    finally:
        folder.close()


def keys(args: Namespace) -> int:
    """Make a certificate and keys."""
    from undrift.federate.keys import make_keys

    folder = args.keys or Path("keys")
    if folder.exists() and any(folder.iterdir()):
        refuse([f"{folder} is there already: give another folder, --keys FOLDER"])
    for line in make_keys(folder, args.nodes, args.hosts):
        say(line)
    return OK
