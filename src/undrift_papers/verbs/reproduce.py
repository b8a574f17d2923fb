"""``reproduce``: the papers' tables and figures."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from undrift.cli.output import FAILED, OK, refuse, result_as, say
from undrift.cli.parser import Parser, natural, positive
from undrift.cli.stop import Stop
from undrift.core.params import unknown
from undrift.report.numbers import NONE, count
from undrift.report.table import Table

if TYPE_CHECKING:
    from undrift_papers.reproduce.cache import Cache
    from undrift_papers.reproduce.items import Item, Panel
    from undrift_papers.reproduce.perform import ItemOptions

Chosen = list[tuple["Item", list["Panel"]]]
FLAGS = {
    "--list": "list the items and what each would take",
    "--quick": "less of everything: shows that an item runs, judges nothing",
    "--next": "the next runs of the queue that end within --minutes; with --list all that are left",
    "--kept": "run nothing: write pages from the runs that are kept",
}


def add(parser: Parser) -> None:
    parser.description = (
        "Run what a table or figure of the papers shows, and write a page that compares: their "
        "numbers beside ours, what the paper leaves open, and a verdict. Every run is kept and "
        "none is run twice: items share runs, an interrupted one is continued, and the same "
        "command started several times shares the work. "
        "Start with: undrift reproduce --list"
    )
    parser.add_argument(
        "items", nargs="*", metavar="ITEM", help="PAPER, PAPER/ITEM, PAPER/ITEM/PANEL or all"
    )
    for flag, text in FLAGS.items():
        parser.add_argument(flag, action="store_true", help=text)
    parser.add_argument(
        "--seeds", type=natural, default=1, metavar="N", help="run seeds 0 to N - 1 (default: 1)"
    )
    parser.add_argument(
        "--device",
        default="cpu",
        metavar="DEVICE",
        help="for networks: cpu, cuda, cuda:0, ... (default: cpu)",
    )
    parser.add_argument(
        "--precision",
        choices=("f32", "tf32", "bf16"),
        help="of matrix products (default: bf16 on a GPU, else f32)",
    )
    parser.add_argument("--rounds", type=natural, metavar="N", help="stop every run after N rounds")
    parser.add_argument("--only", default="", metavar="LABEL,...", help="only these methods")
    parser.add_argument(
        "--minutes",
        type=positive,
        metavar="M",
        help="stop cleanly after M minutes; the same command continues",
    )
    parser.folder("--out", default="reproductions", help="where runs are kept")
    parser.file("--pages", metavar="FOLDER", help="where pages go (default: pages in --out)")
    parser.file("--pack", help="write all kept runs to one file, after each run and at the end")
    parser.file("--unpack", help="first take in the runs of such a file")
    parser.json()


def main(args: Namespace) -> int:
    from undrift.records.folder import made
    from undrift_papers.reproduce.cache import Cache
    from undrift_papers.reproduce.perform import ItemOptions

    options = ItemOptions(
        quick=args.quick,
        seeds=args.seeds,
        device=args.device,
        precision=args.precision,
        rounds=args.rounds,
        only=[label.strip() for label in args.only.split(",") if label.strip()],
    )
    if args.next and (args.items or args.kept or args.only or args.rounds):
        refuse(["--next takes what the queue says: leave out ITEM, --kept, --only and --rounds"])
    cache = Cache(args.out)
    try:
        every = ["all"] if args.list and not args.next else []
        chosen = choose(args.items or every, options.only)
        if not (chosen or args.next or args.pack or args.unpack):
            refuse(
                ["nothing to reproduce: give PAPER/ITEM, PAPER or all"],
                "See: undrift reproduce --list",
            )
        if args.unpack:
            say(f"{count(cache.unpack(args.unpack), 'run')} taken in from {args.unpack}")
        if args.list:
            return (queue if args.next else listing)(chosen, cache, options, args.json)
        made(args.out)
        code = run(chosen, cache, options, args) if chosen or args.next else OK
        if args.pack:
            say(f"{count(cache.pack(args.pack), 'run')} packed into {args.pack}")
        return code
    except ValueError as error:
        refuse([error])


def choose(wanted: Sequence[str], only: Sequence[str]) -> Chosen:
    """Items and their panels, each once; refuses labels that none of their methods has."""
    from undrift_papers.reproduce.items import find

    found: dict[str, tuple[Item, list[Panel]]] = {}
    for item, panels in (each for words in wanted for each in find(words)):
        _, before = found.setdefault(item.name, (item, []))
        before += [panel for panel in panels if panel not in before]
    if only:
        specs = [item.spec(p) for item, panels in found.values() if item.runs for p in panels]
        labels = dict.fromkeys(entry.label for spec in specs for entry in spec.entries)
        if unmet := [label for label in only if label not in labels]:
            refuse([unknown("method of these items", label, labels) for label in unmet])
    return list(found.values())


def run(chosen: Chosen, cache: Cache, options: ItemOptions, args: Namespace) -> int:
    """Run what is left, then write the pages."""
    from undrift_papers.reproduce.grid import batches
    from undrift_papers.reproduce.perform import perform, plan, wants
    from undrift_papers.reproduce.queue import due, following
    from undrift_papers.reproduce.results import measure

    asked = [
        (item, wants(item, panel, options))
        for item, panels in chosen
        if item.runs and not args.kept
        for panel in panels
    ]
    if args.next:
        taken = following(cache, options, args.minutes)
        if not taken:
            refuse(
                [
                    "the queue has nothing that ends within --minutes and whose data are here",
                    *sorted({one.missing for one in due(cache, options)} - {""}),
                ],
                "See: undrift reproduce --next --list",
            )
        asked = [(one.item, one.runs) for one in taken]
        chosen = [(item, []) for item in {one.item.name: one.item for one in taken}.values()]
    todo, failed, stop = 0, list[str](), Deadline(args.minutes)
    for wanted in batches(asked, cache):
        groups = plan(wanted)
        left = [[want for want in group if not cache.serves(want)] for group in groups]
        total, missing = (sum(map(len, some)) for some in (groups, left))
        what = f"{count(len(chosen), 'item')}, {count(total, 'run')}"
        say(f"{what}: {total - missing} kept, {missing} to do")
        todo += missing
        with stop:
            for want, why in perform(left, cache, stop):
                if args.pack:  # now, for a machine that is lent may be gone before the last run
                    cache.pack(args.pack)
                if why:
                    if why not in failed:  # many runs may lack the same data
                        say(f"{want}: not run: {why}")
                    failed.append(why)
    for item, _ in chosen:
        if not (args.kept or args.quick or stop.asked):
            measure(item, cache, say)
    if stop.asked:
        say("Stopped: what was measured is kept, and the same command continues from there.")
    pages(chosen, cache, options, args)
    if stop.number:
        return stop.code
    return FAILED if failed and len(failed) == todo else OK


def pages(chosen: Chosen, cache: Cache, options: ItemOptions, args: Namespace) -> None:
    from undrift_papers.reproduce.page import numbers, of, span, write, write_index
    from undrift_papers.reproduce.results import collect

    root, document, rows = args.pages or args.out / "pages", [], []
    root = root / "quick" if options.quick else root
    for item, _ in chosen:
        report = collect(item, options, cache)
        found = numbers(report)
        document.append(found)
        seeds = span(found["fewest_seeds"], found["seeds"]) if found["seeds"] else NONE
        counts = [of(*found["coverage"]) or NONE, of(*found["agree"]) or NONE, seeds]
        rows.append([item.name, found["verdict"], *counts, found["why"]])
        if report.bare and (root / f"{item.name}.md").exists():
            say(f"Nothing of {item.name} is kept in {args.out}: its page stays as it is.")
        else:
            write(report, root)
    write_index(root)
    head = ["item", "verdict", "numbers run", "agree", "seeds", "why"]
    result_as(args.json, document, Table(head, rows, ["verdict", "why"]).text())
    say(f"\nPages: {root}")


def listing(chosen: Chosen, cache: Cache, options: ItemOptions, as_json: bool) -> int:
    """The items, their runs, and how long they take where that was measured."""
    from undrift_papers.reproduce.perform import wants

    rows: list[dict[str, object]] = []
    for item, panels in chosen:
        wanted = [w for panel in panels if item.runs for w in wants(item, panel, options)]
        runs = {want.key: want for want in wanted}
        rows.append(
            {
                "item": item.name,
                "runs": len(runs),
                "kept": sum(map(cache.serves, runs.values())),
                "takes": item.takes or None,
                "title": item.title,
            }
        )
    head = ["item", "runs", "kept", "takes", "title"]
    result_as(
        as_json,
        rows,
        Table(head, [[row[name] or NONE for name in head] for row in rows], head[3:]).text(),
    )
    return OK


def queue(chosen: Chosen, cache: Cache, options: ItemOptions, as_json: bool) -> int:
    """What is left of the queue, in its order."""
    from undrift_papers.reproduce.queue import due

    rows: list[dict[str, object]] = [
        {
            "panel": f"{one.item.name}/{one.panel.name}",
            "method": one.label,
            "rounds": one.runs[0].rounds,
            "minutes": round(one.minutes, 1),
            "data": "not here" if one.missing else "here",
        }
        for one in due(cache, options)
    ]
    head = ["panel", "method", "rounds", "minutes", "data"]
    result_as(as_json, rows, Table(head, [[row[name] for name in head] for row in rows]).text())
    return OK


class Deadline(Stop):
    """Ctrl-C, or the end of the time there is."""

    def __init__(self, minutes: float | None) -> None:
        super().__init__()
        self.end = float("inf") if minutes is None else time.monotonic() + 60 * minutes

    @property
    def asked(self) -> bool:
        return super().asked or time.monotonic() >= self.end
