"""``reproduce``: the papers' tables and figures."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from undrift.cli.output import FAILED, OK, refuse, result_as, say
from undrift.cli.parser import Parser, natural, positive
from undrift.cli.progress import status
from undrift.cli.stop import Stop
from undrift.core.params import unknown
from undrift.report.numbers import NONE, count
from undrift.report.table import Table

if TYPE_CHECKING:
    from undrift.records.rows import Row
    from undrift_papers.reproduce.cache import Cache, Want
    from undrift_papers.reproduce.items import Item, Panel
    from undrift_papers.reproduce.perform import ItemOptions

LINE = 60.0
"""Seconds between two lines about the same run."""

Chosen = list[tuple["Item", list["Panel"]]]
Asks = list[tuple["Item", "Panel", list["Want"]]]


def add(parser: Parser) -> None:
    parser.description = (
        "Run what a table or figure of the papers shows, and write a page that compares: their "
        "numbers beside ours, what the paper leaves open, and a verdict. Every run is kept and "
        "none is run twice: items share runs, an interrupted one is continued, and the same "
        "command started several times shares the work. A page that "
        "shows more than the kept runs do is left as it is. "
        "Start with: undrift reproduce --list"
    )
    text = "PAPER, PAPER/ITEM, PAPER/ITEM/PANEL or all"
    parser.add_argument("items", nargs="*", metavar="ITEM", help=text)
    parser.flag("--list", help="list the items and what each would take")
    parser.flag("--quick", help="less of everything: shows that an item runs, judges nothing")
    text = "run seeds 0 to N - 1 (default: 1)"
    parser.add_argument("--seeds", type=natural, default=1, metavar="N", help=text)
    text = "for networks: cpu, cuda, cuda:0, ... (default: cpu)"
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help=text)
    text = "of matrix products (default: bf16 on a GPU, else f32)"
    parser.add_argument("--precision", choices=("f32", "tf32", "bf16"), help=text)
    text = "stop every run after N rounds"
    parser.add_argument("--rounds", type=natural, metavar="N", help=text)
    parser.add_argument("--only", default="", metavar="LABEL,...", help="only these methods")
    text = "stop cleanly after M minutes; the same command continues"
    parser.add_argument("--minutes", type=positive, metavar="M", help=text)
    parser.folder("--out", default="reproductions", help="where runs are kept")
    parser.flag("--kept", help="run nothing: write pages from the runs that are kept")
    parser.file("--pages", metavar="FOLDER", help="where pages go (default: pages in --out)")
    parser.file("--pack", help="also add the kept runs of the items (or all) to a file of runs")
    parser.file("--unpack", help="first take in the runs of such a file")
    parser.json()


def main(args: Namespace) -> int:
    from undrift.records.folder import writable
    from undrift_papers.reproduce.cache import Cache, packed
    from undrift_papers.reproduce.perform import ItemOptions

    options = ItemOptions(
        quick=args.quick,
        seeds=args.seeds,
        device=args.device,
        precision=args.precision,
        rounds=args.rounds,
        only=[label.strip() for label in args.only.split(",") if label.strip()],
    )
    try:
        chosen = choose(args.items or (["all"] if args.list else []))
        if options.only:
            judge_labels(chosen, options.only)
        cache = Cache(args.out)
        if not chosen and not (args.pack or args.unpack):
            refuse(
                ["nothing to reproduce: give PAPER/ITEM, PAPER or all"],
                "See: undrift reproduce --list",
            )
        if args.kept and (args.only or args.rounds):
            text = "pages show every kept run whole: leave out --only and --rounds"
            refuse([f"--kept runs nothing, and {text}"])
        if args.unpack:
            if not args.unpack.is_file():
                refuse([f"--unpack {args.unpack}: there is no such file"])
            say(f"{count(cache.unpack(args.unpack), 'run')} taken in from {args.unpack}")
        if args.list:
            return listing(chosen, cache, options, args.json)
        if chosen:
            pages = args.pages or args.out
            for place in {pages} if args.kept else {pages, args.out}:
                writable(place)
        if args.pack and args.pack.exists():
            packed(args.pack)  # refuses another kind of file before anything is run
        code = run(chosen, cache, options, args) if chosen else OK
        if args.pack:
            asks = needs(chosen, options)
            own = [want for _, _, wanted in asks for want in wanted] if chosen else None
            here, besides = cache.pack(args.pack, own)
            stay = f", which keeps {besides} more" if besides else ""
            say(f"{count(here, 'run')} packed into {args.pack}{stay}")
        return code
    except ValueError as error:
        refuse([error])


def choose(wanted: Sequence[str]) -> Chosen:
    """Items and their panels, each once."""
    from undrift_papers.reproduce.items import find

    found: dict[str, tuple[Item, list[Panel]]] = {}
    for words in wanted:
        for item, panels in find(words):
            _, before = found.setdefault(item.name, (item, []))
            before += [panel for panel in panels if panel not in before]
    return list(found.values())


def run(chosen: Chosen, cache: Cache, options: ItemOptions, args: Namespace) -> int:
    """Run what is left, then write the pages."""
    from undrift_papers.reproduce.measured import measure
    from undrift_papers.reproduce.perform import perform, plan

    asks = needs(chosen, options)
    lacking = {} if args.kept else without_data(asks, cache)
    for name, keys in lacking.items():
        say(f"{name} is not there, and {count(len(keys), 'run')} cannot do without: {get(name)}")
    out = {key for keys in lacking.values() for key in keys}
    failed, due, stop = len(out), len(out), Deadline(args.minutes)
    places, told = places_of(asks), set[str]()
    for wanted in lots(asks, cache):
        groups = plan(wanted)
        total = sum(map(len, groups))
        groups = [[w for w in group if not cache.serves(w)] for group in groups]
        missing = sum(map(len, groups))
        groups = [[want for want in group if want.key not in out] for group in groups]
        left = sum(map(len, groups))
        what = f"{count(len(chosen), 'item')}, {count(total, 'run')}"
        rest = f"{missing} not run" if args.kept else f"{left} to do"
        say(f"{what}: {total - missing} kept, {rest}")
        due += left
        if args.kept or stop.asked:
            continue
        lines = RunLines(left, places)
        with stop:
            for want, why in perform(groups, cache, stop, lines):
                failed += 1
                if why not in told:
                    say(f"{lines.describe(want)}: not run: {why}")
                told.add(why)
    for item, _ in chosen:
        if not args.kept and not stop.asked:
            measure(item, options.quick, cache, say)
    if stop.asked:
        say("Stopped: what was measured is kept, and the same command continues from there.")
    pages(chosen, cache, options, args)
    if stop.number:
        return stop.code
    return FAILED if failed and failed == due else OK


def judge_labels(chosen: Chosen, only: Sequence[str]) -> None:
    """Refuse labels that no method of the items has."""
    panels = [(item, panel) for item, panels in chosen if item.runs for panel in panels]
    entries = [entry for item, panel in panels for entry in item.spec(panel).entries]
    labels = dict.fromkeys(entry.label for entry in entries)
    if unmet := [label for label in only if label not in labels]:
        refuse([unknown("method of these items", label, labels) for label in unmet])


def without_data(asks: Asks, cache: Cache) -> dict[str, set[str]]:
    """The image sets that are not there, and the runs that need them and are not kept."""
    from undrift_papers.reproduce.perform import missing

    lacking: dict[str, set[str]] = {}
    for _, _, wanted in asks:
        if wanted and missing(wanted[0].spec):
            keys = {want.key for want in wanted if not cache.serves(want)}
            lacking.setdefault(vars(wanted[0].spec.problem)["data"], set()).update(keys)
    return {name: keys for name, keys in lacking.items() if keys}


def get(name: str) -> str:
    """How to fetch an image set to where undrift looks for it."""
    from undrift.data.files import FOLDER

    if os.environ.get(FOLDER):
        return f"undrift data fetch {name}"
    return f"undrift data fetch {name} --folder FOLDER, then set {FOLDER}=FOLDER"


def needs(chosen: Chosen, options: ItemOptions) -> Asks:
    """The runs of every item and panel."""
    from undrift_papers.reproduce.perform import wants

    return [
        (item, panel, wants(item, panel, options))
        for item, panels in chosen
        if item.runs
        for panel in panels
    ]


def places_of(asks: Asks) -> dict[str, str]:
    """Key of a run -> the first panel that needs it."""
    found: dict[str, str] = {}
    for item, panel, wanted in asks:
        for want in wanted:
            found.setdefault(want.key, f"{item.name}/{panel.name}")
    return found


def lots(asks: Asks, cache: Cache) -> Iterator[list[Want]]:
    """What to run, lot by lot: everything at once, except for searches, whose next lot depends on
    the one before.
    """
    from undrift_papers.reproduce import grid as search

    plain = [want for item, _, wanted in asks if not item.grid for want in wanted]
    searches = [search.batches(wanted, cache) for item, _, wanted in asks if item.grid]
    for parts in zip_longest([plain], *searches, fillvalue=[]):
        if lot := [want for part in parts for want in part]:
            yield lot


def pages(chosen: Chosen, cache: Cache, options: ItemOptions, args: Namespace) -> None:
    from undrift_papers.reproduce.page import less, numbers, of, place, span, write, write_index
    from undrift_papers.reproduce.results import collect

    root = args.pages or args.out / "pages"
    reports = [collect(item, options, cache) for item, _ in chosen]
    for report in reports:
        if less(report, root):
            say(
                f"{place(report, root)} shows more than the runs in {args.out}, and stays as it is."
            )
            say("Take in its runs with --unpack, or remove it to have it written from these.")
        else:
            write(report, root)
    write_index(root)
    rows = []
    for report in reports:
        seeds = span(report.fewest_seeds, report.seeds) if report.seeds else NONE
        counts = [of(*report.coverage) or NONE, of(*report.agreement) or NONE, seeds]
        rows.append([report.item.name, report.verdict, *counts, report.why])
    head = ["item", "verdict", "numbers run", "agree", "seeds", "why"]
    document = [numbers(report) for report in reports]
    result_as(args.json, document, Table(head, rows, ["verdict", "why"]).text())
    say(f"\nPages: {root}")


def listing(chosen: Chosen, cache: Cache, options: ItemOptions, as_json: bool) -> int:
    """The items, their runs, and how long they take where that was measured."""
    from undrift_papers.reproduce.perform import wants

    rows: list[dict[str, object]] = []
    shown: list[list[object]] = []
    as_measured = not (options.quick or options.rounds or options.only)
    for item, panels in chosen:
        wanted = [w for panel in panels if item.runs for w in wants(item, panel, options)]
        runs = {want.key: want for want in wanted}
        takes = item.takes if as_measured and panels == item.panel else ""
        kept = sum(map(cache.serves, runs.values()))
        row = {"item": item.name, "runs": len(runs), "kept": kept}
        rows.append(row | {"takes": takes or None, "title": item.title})
        nothing = NONE if item.kind in ("computed", "heatmap") else "not known"
        shown.append([item.name, len(runs) or NONE, kept or NONE, takes or nothing, item.title])
    head = ["item", "runs", "kept", "one seed takes", "title"]
    result_as(as_json, rows, Table(head, shown, head[3:]).text())
    return OK


class Deadline(Stop):
    """Ctrl-C, or the end of the time there is."""

    def __init__(self, minutes: float | None) -> None:
        super().__init__()
        self.end = float("inf") if minutes is None else time.monotonic() + 60 * minutes

    @property
    def asked(self) -> bool:
        return super().asked or time.monotonic() >= self.end


class RunLines:
    """A line when a run begins and ends, and now and then between."""

    def __init__(self, total: int, places: Mapping[str, str]):
        self.total, self.places, self.number = total, places, 0
        self.title, self.said = "", 0.0
        self.last: Row = {}
        self.began: tuple[float, int] | None = None

    def begin(self, want: Want) -> None:
        self.number += 1
        self.title = f"[{self.number}/{self.total}] {self.describe(want)}"
        self.said, self.began = time.monotonic(), None

    def skip(self) -> None:
        self.total -= 1

    def row(self, row: Row) -> None:
        now = time.monotonic()
        if self.began is None:
            self.began = now, row["round"]
        self.last = row
        if now - self.said >= LINE:
            self.said = now
            pace = (now - self.began[0]) / max(row["round"] - self.began[1], 1)
            say(f"{self.title}  {status(row)}  {pace:.3g} s/round")

    def end(self, ended: str) -> None:
        say(f"{self.title}  {ended}: {status(self.last)}  {self.last['seconds']:.1f} s")

    def say(self, text: str) -> None:
        say(text)

    def describe(self, want: Want) -> str:
        """A run in a few words."""
        values = vars(want.spec.problem)
        parts = [values.get("data", want.spec.problem_name)]
        if split := values.get("partition"):
            parts.append(split if split == "iid" else f"{split} {values['beta']:g}")
        if clients := values.get("clients"):
            parts.append(f"{clients} clients")
        about = f"{want.entry.label} ({', '.join(parts)}) seed {want.seed}, {want.rounds} rounds"
        return f"{self.places[want.key]}: {about}"
