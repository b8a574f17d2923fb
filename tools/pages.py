"""Write the pages of the site that are not kept in git: a card for each method, every public name
with its signature, and the help of every command. docs/conf.py calls it before each build.
"""

import ast
import contextlib
import inspect
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import undrift
from tools import choosing, public_names
from undrift.cli import VERBS, added, main
from undrift.cli.listing import explained
from undrift.cli.show import update
from undrift.core import Method, registry
from undrift.core.costs import costs, placeholder
from undrift.core.params import describe
from undrift.methods._papers import cited, reference
from undrift.theory import fedcet, steps

GROUPS = {
    "running": ("Running", public_names.RUNNING),
    "network": ("Your own network", public_names.PROBLEMS),
    "training": ("Local training", public_names.TRAINING),
    "engines": ("Engines", public_names.ENGINES),
    "contracts": ("Writing a method or a problem", public_names.CONTRACTS),
}
"""Pages of the names of ``undrift`` itself, but for methods, which have cards."""
FAMILIES = {
    "The papers' methods": "FedRecu FedCET DANE DANEPlus DANEPlusDual FedRed FedRedDual FedSpeed "
    "FedACG",
    "Averaging and momentum": "GD FedAvg FedProx FedAvgM FedAdam FedYogi FedAdagrad FedCM Mime "
    "MimeLite MimeMVR",
    "Corrections and duals": "",
}
"""Groups of the overview; the last one has every other method."""
FORMULAS = (steps, fedcet)
"""The modules of what theory prescribes."""
WRITTEN = "<!-- Written by tools/pages.py -->\n"
MEASURED = json.loads(choosing.MEASURED.read_text(encoding="utf-8"))


def write(docs: Path, source: str, release: str) -> None:
    """All pages, into the folder of the others; a page that is as it was keeps its time."""
    made = {f"methods/{name}.md": card(cls, source, release) for name, cls in shipped().items()}
    made |= {"methods/index.md": overview(), "cli.md": commands()}
    made |= {f"api/{name}.md": page(*group) for name, group in GROUPS.items()}
    made |= {f"api/undrift.{name}.md": package(name) for name in public_names.PACKAGES}
    for name, text in made.items():
        file = docs / name
        file.parent.mkdir(exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != WRITTEN + text:
            file.write_text(WRITTEN + text, encoding="utf-8")
    for folder in ("methods", "api"):
        for file in (docs / folder).glob("*.md"):
            if f"{folder}/{file.name}" not in made:
                file.unlink()


def shipped() -> dict[str, type[Method]]:
    names = sorted(public_names.methods(), key=str.casefold)
    return {name: registry[name] for name in names}


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    lines = [[*head], *map(list, rows)]
    cells = [[plain(cell) for cell in line] for line in lines]
    cells.insert(1, ["---"] * len(cells[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def plain(text: object) -> str:
    """What a cell of a table shows: roles of docstrings as code."""
    return re.sub(r":\w+:`([^`]*)`", r"`\1`", str(text)).replace("|", "\\|").replace("``", "`")


def escaped(text: str) -> str:
    """Text in which bars and stars mean themselves; formulas and code stay as they are."""
    kept = r"^ *\.\. math::\n(?:\n|    [^\n]*\n?)*|``.+?``|`[^`]+`"
    pattern = re.compile(rf"({kept})|([|*])", re.DOTALL | re.MULTILINE)
    return pattern.sub(lambda found: found[1] or "\\" + found[2], text)


def rst(text: str) -> str:
    return f"```{{eval-rst}}\n{text.rstrip()}\n```\n"


# Cards of methods


def card(cls: type[Method], source: str, release: str) -> str:
    """A method as it declares and documents itself, and as it was measured."""
    name, row = cls.__name__, choosing.Row(cls, costs(placeholder(cls)))
    head, _, rest = update(cls).partition("\n\n")
    full = inspect.signature(cls)
    bare = [one.replace(annotation=one.empty) for one in full.parameters.values()]
    signature = full.replace(parameters=bare, return_annotation=full.empty)
    file = str(inspect.getsourcefile(cls)).split("/src/")[-1]
    line = inspect.getsourcelines(cls)[1]
    parts = [
        f"# {name}",
        f"*{cls.title}. {cls.paper}.*",
        rst(escaped(head + "\n\n" + rest)),
        *([f"```{{note}}\nProvisional: {cls.provisional}\n```"] if cls.provisional else []),
        "## When to use it",
        bullets(good(row)),
        "## When not",
        bullets(bad(row)),
        "## Parameters",
        parameters(cls),
        "## What it costs",
        "Vectors of the model's size, for a client that takes part in a round. " + exchanges(row),
        table(
            (
                "sent by a client",
                "sent to a client",
                "exchanges",
                "kept by a client",
                "kept by the server",
            ),
            [(row.costs.up, row.costs.down, row.costs.syncs, row.costs.client, row.costs.server)],
        ),
        "## Measured",
        measured(name),
        "## In Python and in a spec",
        rst(f".. py:class:: undrift.{name}{signature}\n\n   {cls.title}."),
        spec(cls),
        f"Its code: [{file.split('/')[-1]}]({source}/blob/v{release}/src/{file}#L{line}), or "
        f"`undrift show {name}`.",
        "## Reference",
        plain(reference(cls)),
        "```bibtex\n" + "\n\n".join(cited(cls).values()) + "\n```",
        f"On the command line: `undrift cite {name}`.",
    ]
    return "\n\n".join(parts) + "\n"


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


def good(row: choosing.Row) -> list[str]:
    """What speaks for a method, from what it declares."""
    cls = row.method
    kept = "with a constant step and clients that are unlike"
    absent = ", if none is absent" if row.some else ""
    absent = ", also while clients are absent" if row.name in choosing.ABSENT else absent
    given = ", ".join(f"`{k} = {v}`" for k, v in choosing.ABSENT.get(row.name, {}).items())
    found = {
        f"It reaches the minimiser {kept}{absent}{f' ({given})' * bool(given)}.": cls.exact,
        "Any number of clients may take part in a round.": row.some,
        "One vector travels each way in a round: the least that there is.": row.light,
        "Clients keep nothing between rounds.": not row.costs.client,
        f'Theory sets its step (`lr = "theory"`) on {row.theory} problems.'.replace(
            "any problems", "any smooth problem"
        ): row.theory != "none" and not row.tuned,
        "A robust reduction may take the place of the mean.": cls.robust,
        "Any local optimiser may take its local steps.": not placeholder(cls).needs_sgd,
    }
    return [text for text, holds in found.items() if holds]


def bad(row: choosing.Row) -> list[str]:
    """What it does not do, or needs."""
    cls = row.method
    sgd = placeholder(cls).needs_sgd
    found = {
        "Its bias stays where clients are unlike and take several local steps: with a constant "
        "step it does not reach the minimiser.": not cls.exact,
        "Every client must take part in every round.": not row.some,
        "Where clients are absent from rounds, it does not reach the minimiser.": cls.exact
        and row.some
        and row.name not in choosing.ABSENT,
        "A client must keep its state from round to round: those that are seen once or twice "
        "gain little.": row.some and row.costs.client > 0,
        f"A round waits for the clients {row.costs.syncs} times: it has as many exchanges.": (
            row.costs.syncs > 1
        ),
        "Every client must take the same number of local steps.": cls.equal_steps,
        "Each client must minimise its regularised problem exactly; networks cannot.": cls.solves,
        f"No robust reduction: {cls.needs_mean}.": not cls.robust and bool(cls.needs_mean),
        f"No other local optimiser than gradient steps: {sgd}.": bool(sgd),
        f"You must choose {' and '.join(f'`{name}`' for name in row.tuned)}.": bool(row.tuned),
    }
    return [text for text, holds in found.items() if holds] or ["Nothing that it declares."]


def parameters(cls: type[Method]) -> str:
    if not (rows := explained(cls)):
        return "None."
    cells = []
    for one in rows:
        takes = f'{one.takes}, or `"theory"`' if one.theory else one.takes
        default = "required" if one.required else f"`{json.dumps(one.default)}`"
        cells.append((f"`{one.name}`", takes, default, one.meaning))
    found = table(("name", "takes", "default", "meaning"), cells)
    return "\n\n".join([found, *prescriptions(cls)])


def prescriptions(cls: type[Method]) -> list[str]:
    """What theory gives its hyper-parameters, in the words of the formulas that its rules use."""
    lines = []
    for name, rule in cls.prescribed.items():
        said = [" ".join((formula.__doc__ or "").split()) for formula in formulas(rule)]
        lines += [f"`{name}`: {plain(text)}" for text in said]
    if not lines:
        return []
    letters = inspect.cleandoc(steps.__doc__ or "").split("\n\n")[1]
    return [
        "### What theory prescribes",
        bullets(lines),
        f"{plain(' '.join(letters.split()))} When to choose otherwise: [Step "
        "sizes](../step-sizes.md).",
    ]


def formulas(rule: Any) -> list[Any]:
    """The functions of ``undrift.theory`` that a rule, or what it calls, takes its value from."""
    found = []
    for name in rule.__code__.co_names:
        places = (rule.__globals__, *map(vars, FORMULAS))
        thing = next((place[name] for place in places if name in place), None)
        if inspect.isfunction(thing):
            ours = sys.modules[thing.__module__] in FORMULAS
            found += [thing] if ours else formulas(thing)
    return found


def exchanges(row: choosing.Row) -> str:
    """Which vectors travel and stay, by their names in the code."""
    method = placeholder(row.method)
    lines = []
    for number, phase in enumerate(method.exchanges(), 1):
        which = f"In exchange {number} the" if row.costs.syncs > 1 else "The"
        lines.append(f"{which} server sends {named(phase.Down)}, clients send {named(phase.Up)}.")
    lines.append(f"A client keeps {named(method.Client)}, the server {named(method.Server)}.")
    return " ".join(lines)


def named(kind: Any) -> str:
    return ", ".join(f"`{name}`" for name in kind.vectors) or "nothing"


def measured(name: str) -> str:
    """Its rows of the measurements behind the page about choosing."""
    rows = []
    for key, about in MEASURED["situations"].items():
        of = [one for one in MEASURED["found"] if one["situation"] == key]
        mine = next((one for one in of if one["method"] == name), None)
        reached = sorted(one["round"] for one in of if "round" in one)
        if mine is None:
            cells = ["not measured", "", "", ""]
        elif "round" not in mine:
            cells = [str(mine.get("refused", "target not reached")), "", "", ""]
        else:
            place = f"{reached.index(mine['round']) + 1} of {len(reached)}"
            cells = [mine["round"], mine["vectors"], f"{mine['gradients']:,}", place]
        rows.append((about["title"], *cells))
    head = ("situation", "rounds", "vectors", "gradients", "place by rounds")
    return (
        "Until the target of five situations, with the best of ten steps, as on the page about "
        f"[choosing](../choosing.md#measured):\n\n{table(head, rows)}"
    )


def spec(cls: type[Method]) -> str:
    """The table that names it in a spec, with what has no default."""
    needed = [one.name for one in explained(cls) if one.required]
    lines = [f'name = "{cls.__name__}"']
    for name in needed:
        said = 'lr = "auto"          # or a number' if name == "lr" else f"{name} = 0.5"
        said = "k_server = 5" if name == "k_server" else said
        lines.append(f'{name} = "theory"' if choosing.has_rule(cls, name) else said)
    return "```toml\n[[method]]\n" + "\n".join(lines) + "\n```"


def overview() -> str:
    """All cards, grouped."""
    known = shipped()
    parts = [
        "# All methods",
        "*For researchers who look for a method, or for what one of them does.* Not sure which? "
        "Begin with [Which method](../choosing.md).",
    ]
    for title, names in FAMILIES.items():
        some = [known.pop(name) for name in names.split()] if names else [*known.values()]
        rows = []
        for cls in some:
            row = choosing.Row(cls, costs(placeholder(cls)))
            link = f"[{row.name}]({row.name}.md)"
            some_absent = "some" if row.some else "all"
            cells = (row.costs.up, row.costs.down, row.costs.client)
            rows.append((link, cls.title, some_absent, row.exact, *cells))
        head = ("method", "what it is", "clients", "exact", "up", "down", "kept by a client")
        parts += [f"## {title}", table(head, rows)]
    parts.append(
        "*clients*: whether all must take part in every round. *exact*: whether it reaches the "
        "minimiser on unlike clients with a constant step. *up*, *down*, *kept*: vectors of the "
        "model's size, per client and round."
    )
    hidden = "\n".join(shipped())
    parts.append(f"```{{toctree}}\n:hidden:\n\n{hidden}\n```")
    return "\n\n".join(parts) + "\n"


# Every public name


def page(title: str, names: Iterable[str]) -> str:
    """Names of ``undrift`` itself, with signatures."""
    return f"# {title}\n\n" + "\n".join(documented(undrift, name) for name in names)


def package(name: str) -> str:
    """A package: what it is for, and its names."""
    home = import_module(f"undrift.{name}")
    about = escaped(inspect.cleandoc(home.__doc__ or ""))
    parts = [f"# undrift.{name}\n", rst(f".. py:module:: undrift.{name}\n\n{about}")]
    return "\n".join([*parts, *(documented(home, one) for one in getattr(home, "__all__", []))])


def documented(home: ModuleType, name: str) -> str:
    """A directive for one name, or a link where it is one of ``undrift`` itself."""
    if home is not undrift and name in undrift.__all__:
        return f"* {{py:obj}}`undrift.{name}`\n"
    thing, full = getattr(home, name), f"{home.__name__}.{name}"
    if inspect.ismodule(thing):
        title = f".. py:module:: {full}\n   :no-index-entry:\n\n" if full != thing.__name__ else ""
        return f"## {name}\n\n" + rst(f"{title}.. automodule:: {thing.__name__}\n   :members:")
    if inspect.isclass(thing):
        return rst(
            f".. autoclass:: {full}\n   :members:"
            "\n   :exclude-members: Client, Server, Down, Up, set_fit_request, set_score_request"
            "\n   :inherited-members: BaseEstimator, BaseException, ClassifierMixin, Exception, "
            "Executor, Module, _MetadataRequester"
        )
    if inspect.isroutine(thing):
        return rst(f".. autofunction:: {full}")
    text = indented(meaning(home, name))
    return rst(f".. py:data:: {name}\n   :module: {home.__name__}\n\n{text}")


def indented(text: str) -> str:
    return "\n".join(f"   {line}" if line else "" for line in text.splitlines())


def meaning(home: ModuleType, name: str) -> str:
    """The text below an assignment, in the module that makes it; else what values are allowed."""
    thing = getattr(home, name)
    for module in [home, *modules(home)]:
        text = texts(module).get(name)
        if text and getattr(module, name) is thing:
            return text
    return "" if isinstance(thing, dict) else describe(thing).capitalize() + "."


def modules(home: ModuleType) -> list[ModuleType]:
    root = home.__name__
    found = {module for name, module in sorted(sys.modules.items()) if name.startswith(root + ".")}
    return sorted(found, key=lambda module: module.__name__)


@cache
def texts(module: ModuleType) -> Mapping[str, str]:
    """Name -> the string that follows its assignment."""
    if not module.__file__ or not module.__file__.endswith(".py"):
        return {}
    body = ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
    found = {}
    for node, after in pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            for target in targets:
                if isinstance(target, ast.Name):
                    found[target.id] = inspect.cleandoc(str(after.value.value))
    return found


@cache
def public() -> Mapping[str, str]:
    """The full name of each public thing where it is defined -> its public name."""
    found = {}
    for name in undrift.__all__:
        thing = getattr(undrift, name)
        if not inspect.ismodule(thing):
            found[f"{thing.__module__}.{getattr(thing, '__qualname__', name)}"] = f"undrift.{name}"
    for name in public_names.PACKAGES:
        home = import_module(f"undrift.{name}")
        for one in getattr(home, "__all__", []):
            thing = getattr(home, one)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                found.setdefault(
                    f"{thing.__module__}.{thing.__qualname__}", f"{home.__name__}.{one}"
                )
    return found


def public_name(name: str) -> str | None:
    """Of a type as a signature names it."""
    if name in public():
        return public()[name]
    last = {full.rpartition(".")[2]: name for full, name in public().items()}
    return (
        last.get(name.rpartition(".")[2]) if name.startswith("undrift") or "." not in name else None
    )


def linked(index: str) -> str:
    """docs/api.md with its names as links."""
    index = re.sub(r"^\| `(\w+)` \|", r"| {py:obj}`\1 <undrift.\1>` |", index, flags=re.MULTILINE)
    tree = "\n".join(f"api/{name}" for name in GROUPS)
    more = "\n".join(f"api/undrift.{name}" for name in public_names.PACKAGES)
    return f"{index}\n```{{toctree}}\n:hidden:\n\n{tree}\n{more}\n```\n"


# Commands


def commands() -> str:
    """What every verb says of itself."""
    parts = [
        "# Commands",
        "*For everyone who types `undrift`.* Every command says this with `--help`.",
    ]
    for verb in [*VERBS, *added()]:
        parts.append(f"## undrift {verb}\n\n```text\n{helped(verb).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def helped(verb: str) -> str:
    os.environ["COLUMNS"] = "90"
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([verb, "--help"])
    return out.getvalue()
