"""The Flower app of a federation: two names of installed modules, and no code."""

from __future__ import annotations

import json
from pathlib import Path

from undrift import __version__

PROJECT = """\
[project]
name = "undrift-federation"
version = "{version}"
description = "A federation of undrift: it brings no code"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "undrift"

[tool.flwr.app.components]
serverapp = "undrift.federate.server_app:app"
clientapp = "undrift.federate.client_app:app"

[tool.flwr.app.config]
"""
CONNECTION = "undrift"
"""The name of the SuperLink in Flower's configuration."""


def write_app(folder: Path) -> None:
    """The app in a folder, as ``flwr run`` takes it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(version=__version__), encoding="utf-8")


def write_connection(home: Path, address: str, ca: Path | None) -> None:
    """Where Flower's commands find the SuperLink, in a home of their own."""
    home.mkdir(parents=True, exist_ok=True)
    security = "insecure = true"
    if ca is not None:
        security = f"root-certificates = {json.dumps(str(ca.resolve()))}"
    text = (
        f"[superlink]\ndefault = {json.dumps(CONNECTION)}\n\n"
        f"[superlink.{CONNECTION}]\naddress = {json.dumps(address)}\n{security}\n"
    )
    (home / "config.toml").write_text(text, encoding="utf-8")
