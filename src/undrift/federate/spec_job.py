"""What a message says of its run: the spec, which of its methods, and with which values."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from undrift.spec.reader import parse
from undrift.spec.schema import Spec

ONCE = ("spec", "sources", "samples")
"""What a node is told once, and remembers: the samples are as many numbers as there are nodes."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One method with one seed, for one client."""

    spec: str
    """The spec, as TOML."""
    sources: Mapping[str, str]
    """The SHA-256 of the users' files, by their place relative to the spec."""
    label: str = ""
    """Of the method in the spec."""
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The method's hyper-parameters, with what theory prescribed."""
    draws: int = 0
    """The seed of cohorts, batches and coins."""
    samples: Sequence[int] = ()
    """Of every client."""
    client: int = 0

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Job:
        """From a message."""
        return cls(**{field.name: table[field.name] for field in dataclasses.fields(cls)})

    def once(self) -> dict[str, Any]:
        """What a node has to be told once."""
        return {name: getattr(self, name) for name in ONCE}

    def short(self) -> dict[str, Any]:
        """For a message to a node that was told; it has the digest of that in its place."""
        table = {name: value for name, value in vars(self).items() if name not in ONCE}
        return {**table, "told": digest(self.once())}

    def parsed(self, methods: Path | None) -> Spec:
        """The spec; its files are looked for in ``methods``, and must be those of the server."""
        for name, digest in self.sources.items():
            if methods is None:
                raise ValueError(
                    f"the spec has code of its own ({name}), and this node runs none: give the "
                    "folder that has the file, undrift join --methods FOLDER"
                )
            path = methods / name
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                raise ValueError(f"{path} is not the file of the server (SHA-256 {digest[:16]}...)")
        folder = Path("federation.toml") if methods is None else methods / "federation.toml"
        return parse(self.spec, str(folder), code=self._known)

    def _known(self, name: str) -> None:
        """Refuse a file that the server did not give the digest of."""
        if name not in self.sources:
            raise ValueError(f"the spec names {name}, and the server gave no digest of it")


def digest(table: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()
