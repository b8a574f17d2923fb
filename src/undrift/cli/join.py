"""``join``: this machine becomes a client of a federation."""

from __future__ import annotations

from argparse import Namespace

from undrift.cli.federate import need_flower
from undrift.cli.output import FAILED, OK, refuse, result, say, say_when
from undrift.cli.parser import Parser, number
from undrift.cli.stop import Stop
from undrift.core.params import Natural
from undrift.flower.compat import NoFederation


def add(parser: Parser) -> None:
    parser.description = (
        "Be a client of a federation: train on the data in a folder of this machine, whenever the "
        "server asks, until Ctrl-C. The data stay here; models and gradients travel. What the "
        "client remembers between rounds is kept in files here too. The installed undrift runs, "
        "never code that the server sends."
    )
    parser.add_argument(
        "--superlink",
        required=True,
        metavar="HOST:PORT",
        help="where the federation's SuperLink is",
    )
    parser.file("--data", metavar="FOLDER", help="the folder with this client's data")
    parser.add_argument(
        "--part",
        type=number(Natural),
        metavar="K",
        help="be client K (from 0) of a problem that everybody can build, to try a federation",
    )
    parser.file(
        "--key",
        help="this node's private key, beside ca.crt; not needed if the SuperLink is here",
    )
    parser.folder("--states", default="undrift-node", help="where this client's states are kept")
    parser.file(
        "--methods",
        metavar="FOLDER",
        help="files of methods that may run here, if they are the same as the server's",
    )
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help="cpu, cuda, cuda:1 ...")
    parser.add_argument(
        "--check",
        nargs="?",
        const="",
        metavar="SPEC",
        help="do not join: look at the key, reach the SuperLink and, with the federation's spec, "
        "read the data and show what the server would be told of them",
    )


def main(args: Namespace) -> int:
    need_flower()
    from undrift.federate.keys import private
    from undrift.federate.node import Joined, NodeConfig
    from undrift.federate.session import SuperLinkAddress

    folders = [folder for folder in (args.data, args.methods) if folder is not None]
    wrong = [f"{folder} is not a folder" for folder in folders if not folder.is_dir()]
    if args.part is None and args.data is None and args.check != "":
        wrong.append("give the folder of this client's data, --data FOLDER")
    if wrong:
        refuse(wrong)
    try:
        address = SuperLinkAddress.read(args.superlink, args.key)
        if args.key and args.check is None:
            private(args.key)
    except (NoFederation, OSError, ValueError) as error:
        refuse([str(error)])
    config = NodeConfig(
        data=args.data and args.data.resolve(),
        part=args.part,
        methods=args.methods and args.methods.resolve(),
        device=args.device,
    )
    if args.check is not None:
        from undrift.federate.rehearse import rehearse

        looks = [*rehearse(address, args.key, config, args.check)]
        for name, right, said in looks:
            result(f"{name:<8}{'ok' if right else 'FAILED':<8}{said}")
        return OK if all(right for _, right, _ in looks) else FAILED
    if args.methods is not None:
        say(f"Methods of files in {args.methods} may run here, if the server has the same.")
    states = args.states.resolve()
    with (
        Stop("\nLeaving the federation.") as stop,
        Joined(address, states, config, args.key, say_when) as node,
    ):
        node.stay(lambda: stop.asked)
    return stop.code if stop.asked else OK
