"""All that undrift knows of Flower's insides: commands, files, environment, codes, words of logs.

Known to work with the versions in ``KNOWN``. For another one: run ``tests/federate`` and
``tests/flower`` with ``-m slow``, and mend what differs here. Loads neither Flower nor torch.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from undrift import __version__

KNOWN = ("1.41", "1.42")
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
EAGER = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}
"""For a SuperNode: how often it looks for work, which is added to every message."""
CONNECTION = "undrift"
"""The name of the SuperLink in Flower's configuration."""
SERVER_APP, CLIENT_APP = "flwr-serverapp", "flwr-clientapp"
"""The commands that Flower's executor and SuperNode look for on the search path."""
LET_IN = "SuperNode ID:"
"""What a SuperNode logs when the SuperLink has let it in."""
HOPELESS = "[code: 2001]"
"""What a SuperNode logs without a key."""
RETRYING = "Connection attempt failed"
"""What it logs while it cannot reach the SuperLink."""
OTHER_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"
"""What it logs about a certificate that others signed, and then may wait for ever."""
UNKNOWN_KEY = "[code: 2004]"
"""What it logs with a key that is not registered, and if it was killed a moment ago."""
LASTING = {
    1: "its ClientApp cannot be loaded",
    2: "its ClientApp failed outside undrift.flower.train",
    6: "its ClientApp has a mod",
    7: "its ClientApp is not valid",
}
"""Codes of errors that come again however often a message is sent, where the app is the user's."""
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
serverapp = "undrift.federate.apps:server"
clientapp = "undrift.federate.apps:client"

[tool.flwr.app.config]
"""


class NoFederation(RuntimeError):
    """There is no SuperLink, or it does not do what is needed; the message says what to do."""


class Lost(ConnectionError):
    """The Flower run has ended: its messages are gone."""


def misfit() -> str:
    """Why the installed Flower cannot be used; empty if it can."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        return 'a federation needs Flower: pip install "undrift[flower]"'
    if found.rpartition(".")[0] in KNOWN:
        return ""
    return f"flwr {found} is not known to work: install one of {', '.join(KNOWN)}"


def tool(name: str) -> str:
    """A command of Flower's, beside this Python or on the path."""
    if (found := shutil.which(name, path=_places())) is None:
        raise FileNotFoundError(2, "there is no such command; install undrift[flower]", name)
    return found


def environment(home: Path, *commands: Path) -> dict[str, str]:
    """For a process of Flower's: its home, and a search path that begins with ``commands``."""
    return {**QUIET, "FLWR_HOME": str(home), "PATH": _places(*commands)}


def _places(*first: Path) -> str:
    """The search path, which goes on with the commands beside this Python."""
    here, usual = Path(sys.executable).parent, os.environ.get("PATH", os.defpath)
    return os.pathsep.join([*map(str, (*first, here)), usual])


def write_app(folder: Path) -> None:
    """The Flower app of a federation, as ``flwr run`` takes it: two names of installed modules."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(version=__version__), encoding="utf-8")


def write_connection(home: Path, place: str, ca: Path | None) -> None:
    """Where Flower's commands find the SuperLink, in a home of their own."""
    home.mkdir(parents=True, exist_ok=True)
    security = (
        "insecure = true" if ca is None else f"root-certificates = {json.dumps(str(ca.resolve()))}"
    )
    (home / "config.toml").write_text(
        f"[superlink]\ndefault = {json.dumps(CONNECTION)}\n\n"
        f"[superlink.{CONNECTION}]\naddress = {json.dumps(place)}\n{security}\n",
        encoding="utf-8",
    )


def superlink(host: str, port: int, home: Path, keys: Path | None) -> list[str]:
    """A SuperLink that leaves ServerApps to others; its database lies in ``home``."""
    command = [
        tool("flower-superlink"),
        "--isolation=process",
        "--disable-runtime-dependency-installation",
        f"--host={host}",
        f"--port={port}",
        f"--database={home / 'superlink.db'}",
        f"--superexec-auth-secret-file={home / 'secret'}",
    ]
    if keys is None:
        return [*command, "--insecure"]
    return [
        *command,
        f"--ssl-ca-certfile={keys / 'ca.crt'}",
        f"--ssl-certfile={keys / 'server.pem'}",
        f"--ssl-keyfile={keys / 'server.key'}",
        "--enable-supernode-auth",
    ]


def supernode(place: str, ca: Path | None, key: Path | None, port: int) -> list[str]:
    """A SuperNode that listens to its own ClientApps at ``port`` of this machine."""
    mine = [] if key is None else [f"--auth-supernode-private-key={key}"]
    here = ["--host=127.0.0.1", f"--port={port}", *mine]
    return [tool("flower-supernode"), *_security(ca), "--superlink", place, *here]


def executor(place: str, ca: Path | None, home: Path) -> list[str]:
    """What runs the ServerApps of a SuperLink."""
    return [
        tool("flower-superexec"),
        *_security(ca),
        "--runtime-api-address",
        place,
        "--superexec-auth-secret-file",
        str(home / "secret"),
    ]


def _security(ca: Path | None) -> list[str]:
    return ["--insecure"] if ca is None else ["--root-certificates", str(ca)]


def run(app: Path) -> list[str]:
    """Have the SuperLink begin a run of an app; prints a table with ``run-id``."""
    return [tool("flwr"), "run", str(app), CONNECTION, "--format", "json"]


def register(key: Path) -> list[str]:
    """Have the SuperLink let in the node with a public key; prints a table with ``node-id``."""
    return [tool("flwr"), "supernode", "register", str(key), CONNECTION, "--format", "json"]
