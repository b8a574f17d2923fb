"""Folders as earlier versions of undrift wrote them."""

import json
from pathlib import Path


def unseal(path: Path) -> None:
    """Take away the seals of the lines, the proofs of the outcomes, and the mark that says so."""
    for name in ("metrics.jsonl", "checkpoints/outcomes.jsonl"):
        if (file := path / name).is_file():
            entries = [json.loads(line) for line in file.read_text().splitlines()]
            file.write_text("".join(json.dumps(without(entry)) + "\n" for entry in entries))
    if (file := path / "summary.json").is_file():
        file.write_text(json.dumps([without(entry) for entry in json.loads(file.read_text())]))
    file = path / "environment.json"
    file.write_text(json.dumps(without(json.loads(file.read_text()))))


def without(entry: dict) -> dict:
    return {k: v for k, v in entry.items() if k not in ("seal", "proof", "sealed")}
