"""A parsed document with the flags of the command line laid over it; complaints gather."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from undrift import methods
from undrift.core.method import Method
from undrift.core.params import hints, unknown
from undrift.spec.lines import Path
from undrift.spec.schema import SETTINGS, TRAINING, Complaint, Origin

WORD = re.compile(r"[A-Za-z][\w.+-]*")
SHORT = {"cohort": "size", "objective": "name"}
"""Tables that may be given by this one value alone."""

Values = dict[str, Any]


class Document:
    """``tables`` are its [[method]]s, ``waiting`` flags that may be for a method whose file is not
    loaded yet.
    """

    def __init__(self, document: Values, origin: Origin):
        self.document, self.origin = document, origin
        self.complaints: list[Complaint] = []
        self.waiting: dict[str, tuple[str, Any]] = {}
        self.tables = _tables(document.get("method"))

    def complain(self, path: Path, text: str) -> None:
        self.complaints.append(self.origin.complaint(path, text))

    def known(self, i: int) -> type[Method] | None:
        """The class of the i-th method, unless it is in a file or nowhere."""
        name = self.tables[i].get("name")
        return (
            methods.find(name) if isinstance(name, str) and "file" not in self.tables[i] else None
        )

    def override(self, flag: str) -> None:
        key, equals, value = flag.partition("=")
        path = tuple(part.strip() for part in key.split("."))
        value = value.strip()
        try:
            parsed = tomllib.loads(f"value = {value}")
            if not equals or len(parsed) != 1:
                raise ValueError
        except (ValueError, RecursionError):
            parsed = {"value": value}
            if not WORD.fullmatch(value):
                text = f"not KEY=VALUE with a TOML value, such as {key.strip() or 'rounds'}=50"
                self.complaints.append(Complaint(f"-s {flag}", text))
                return
        for target in self.targets(path, flag, parsed["value"]):
            self.put(target, parsed["value"], flag)

    def put(self, target: Path, value: Any, flag: str) -> None:
        table: Any = self.document
        *parents, last = target
        for part in parents:
            if (
                isinstance(part, str)
                and part in SHORT
                and not isinstance(table.get(part, {}), dict)
            ):
                table[part] = {SHORT[part]: table[part]}
            table = table.setdefault(part, {}) if isinstance(table, dict) else table[part]
        table[last] = value
        self.origin.flags[target] = flag

    def targets(self, path: tuple[str, ...], flag: str, value: Any) -> list[Path]:
        """The places a flag speaks of: one, or a field of every method that has it."""
        top = path[0]
        if len(path) == 2 and (
            top in SHORT or (top == "problem" and isinstance(self.document.get(top, {}), dict))
        ):
            return [path]
        if len(path) == 2 and top == "method":
            name = path[1]
            found = [i for i in range(len(self.tables)) if name in self.fields(i)]
            if any("file" in table for table in self.tables):
                self.waiting[flag] = (
                    name,
                    value,
                )  # whether those have it is known once they are loaded
            elif not found:
                self.untaken(flag, name)
            return [("method", i, name) for i in found]
        if len(path) == 3 and top == "method":
            labels = [str(table.get("label", table.get("name"))) for table in self.tables]
            if path[1] in labels:
                return [("method", labels.index(path[1]), path[2])]
            self.complaints.append(
                Complaint(f"-s {flag}", unknown("label of a method", path[1], labels))
            )
            return []
        if len(path) == 1 and top not in ("problem", "method"):
            return [path]
        allowed = [
            "method.FIELD",
            "method.LABEL.FIELD",
            "problem.PARAMETER",
            "cohort.FIELD",
            "objective.FIELD",
            *SETTINGS,
        ]
        self.complaints.append(Complaint(f"-s {flag}", unknown("key", ".".join(path), allowed)))
        return []

    def fields(self, i: int) -> list[str]:
        """What can be set of the i-th method, as far as it is known."""
        cls = self.known(i)
        return (
            [*hints(cls), *TRAINING] if cls else list(TRAINING) if "file" in self.tables[i] else []
        )

    def lay(self, i: int, cls: type[Method]) -> None:
        """Hand the i-th method, now that its file is loaded, what flags say of it."""
        for flag, (name, value) in self.waiting.items():
            if name in hints(cls):
                self.put(("method", i, name), value, flag)

    def untaken(self, flag: str, name: str) -> None:
        """Complain of a flag that no method has a field for."""
        known = dict.fromkeys(field for i in range(len(self.tables)) for field in self.fields(i))
        taken = any(text == flag for text in self.origin.flags.values())
        if not taken:
            self.complaints.append(
                Complaint(f"-s {flag}", unknown("parameter of the methods", name, known))
            )


def _tables(found: Any) -> list[Values]:
    return (
        found if isinstance(found, list) and all(isinstance(table, dict) for table in found) else []
    )
