"""The problem of a spec, with a network and data of the user's where it has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from undrift.core.params import fits, hints
from undrift.problems import named
from undrift.problems.by_file import OBJECTIVE, OF_IMAGES, own_images, own_problem
from undrift.spec.errors import Complaints
from undrift.spec.functions import NAMES, Unfit, UserCall, parameters
from undrift.spec.lines import Keys
from undrift.spec.schema import Values
from undrift.spec.structure import structure
from undrift.spec.user_files import Own, judge_file


@dataclasses.dataclass
class ProblemReader:
    """Reads [problem], [network] and [data]; fills in what the rest of a spec asks about them."""

    document: Values
    folder: Path
    own: Own | None
    complaints: Complaints
    kind: type[named.Named] | None = None
    clients: int | None = None

    def values(self) -> Values:
        """What a :class:`Spec` has of them; the problem is ``None`` if not loaded, or wrong."""
        calls = {key: self._call((key,), OF_IMAGES) for key in ("network", "data")}
        name, problem = self._problem(calls)
        return {"problem": problem, "problem_name": name, **calls}

    def _problem(self, calls: Mapping[str, UserCall | None]) -> tuple[str, named.Named | None]:
        """The name and the parameters of the problem, with a network and data of the user's."""
        table, names = self.document.get("problem"), ", ".join(named.registry)
        if isinstance(table, list):
            self.complaints.add(
                ("problem",), "write [problem], with one bracket: a spec has one problem"
            )
            return "", None
        if not isinstance(table, dict):
            self.complaints.add(("problem",), f"[problem] is missing; its name is one of {names}")
            return "", None
        name = table.get("name")
        if not isinstance(name, str):
            what = f"a function of {table['file']}" if "file" in table else f"one of {names}"
            self.complaints.add(("problem", "name"), f"name is missing: {what}")
            return "", None
        preset: Values = {}
        if "file" in table:
            self.kind = self._own_problem(name, table["file"])
        else:
            try:
                self.kind, preset = named.find(name)
            except ValueError as error:
                self.complaints.add(("problem", "name"), str(error))
        if self.kind is None:
            return name, None
        values = preset | {key: value for key, value in table.items() if key not in NAMES}
        if not self._completed(calls, values):
            return name, None
        clients = values.get("clients", getattr(self.kind, "clients", None))
        if "clients" in hints(self.kind) and fits(clients, hints(self.kind)["clients"]):
            self.clients = clients
        kind = f"parameter of {self.kind.name}"
        return name, structure(self.kind, values, ("problem",), self.complaints, kind=kind)

    def _own_problem(self, name: str, file: object) -> type[named.Named] | None:
        """The kind of a problem from a file; ``None`` if it is not loaded, or wrong."""
        judge_file(file, ("problem",), self.folder, self.complaints)
        if name in named.registry:
            text = f"{name} is a problem of undrift already: choose another name"
            self.complaints.add(("problem", "name"), text)
        if self.own is None:
            return None
        maker = self.own.makers[("problem",)]
        try:
            return own_problem(maker, parameters(maker, (OBJECTIVE,)))
        except ValueError as error:
            self.complaints.add(("problem", "name"), f"{file}: {error}")
            return None

    def _completed(self, calls: Mapping[str, UserCall | None], values: Values) -> bool:
        """Whether a network and data of the user's, if the spec has some, are with the problem."""
        asked = [key for key in calls if key in self.document]
        if not asked:
            return True
        if self.kind is not named.Images:
            for key in asked:
                text = f"[{key}] goes with the problem images; this one has its own {key}"
                self.complaints.add((key,), text)
            return False
        found = {key: call for key, call in calls.items() if call is not None}
        if len(found) < len(asked):
            return False
        names = {{"network": "model"}.get(key, key): call.name for key, call in found.items()}
        for field, name in names.items():
            if values.get(field, name) != name:
                text = f"{field} = {values[field]!r} is not {name}, which the spec has a file for"
                self.complaints.add(("problem", field), f"{text}: leave it out")
        self.kind = own_images(calls["network"], calls["data"], names)
        return True

    def _call(self, path: Keys, offered: Sequence[str]) -> UserCall | None:
        """A function of the user's with its parameters; ``None`` if it is not loaded, or wrong."""
        key, table = path[0], self.document.get(str(path[0]))
        if table is None:
            return None
        if not isinstance(table, dict):
            self.complaints.add(path, f"write [{key}], a table with a file and a name")
            return None
        for needed in NAMES:
            if not isinstance(table.get(needed), str):
                text = f"{needed} is missing: [{key}] has a file and a name"
                self.complaints.add((*path, needed), text)
                return None
        judge_file(table["file"], path, self.folder, self.complaints)
        maker = self.own.makers.get(path) if self.own else None
        if maker is None:
            return None
        given = {name: value for name, value in table.items() if name not in NAMES}
        try:
            declared = parameters(maker, offered)
        except Unfit as error:
            self.complaints.add((*path, "name"), f"{table['file']}: {error}")
            return None
        kind = f"parameter of {maker.__name__}"
        values = structure(declared, given, path, self.complaints, kind=kind)
        return None if values is None else UserCall(table["file"], maker.__name__, maker, values)
