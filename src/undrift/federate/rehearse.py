"""What would keep this machine from taking part in a federation, found out before it joins."""

from __future__ import annotations

import socket
import ssl
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from undrift.engines.messages.packet import Packet
from undrift.federate.keys import private
from undrift.federate.node import NodeConfig
from undrift.federate.session import SuperLinkAddress
from undrift.federate.worker import ClientWorker, sent_spec


def rehearse(
    address: SuperLinkAddress, key: Path | None, config: NodeConfig, spec: str
) -> Iterator[tuple[str, bool, str]]:
    """What of it was given, whether it is right, and what was found. Nothing is left behind."""
    looks = {
        "key": key and partial(private, key),
        "server": partial(reached, address),
        "data": spec and partial(introduced, config, Path(spec)),
    }
    for name, look in [(name, look) for name, look in looks.items() if look]:
        try:
            yield name, True, look()
        except (OSError, ValueError) as error:
            yield name, False, str(error)


def reached(address: SuperLinkAddress) -> str:
    """That a SuperLink answers and, with a certificate, that it is the right one."""
    with socket.create_connection((address.host.strip("[]"), address.port), 5) as plain:
        if address.ca is None:
            return f"{address.place} answers; without a key this node speaks in plain text"
        context = ssl.create_default_context(cafile=address.ca)
        try:
            with context.wrap_socket(plain, server_hostname=address.host.strip("[]")) as secure:
                return f"{address.place} answers by {secure.version()}, with the right certificate"
        except ssl.SSLCertVerificationError:
            raise
        except ssl.SSLError as error:
            raise ValueError(f"{address.place} does not speak TLS: {error.reason}") from None


def introduced(config: NodeConfig, spec: Path) -> str:
    """What this node would say of itself and its data."""
    with tempfile.TemporaryDirectory() as states:  # where a node keeps the salt of its digest
        worker = ClientWorker(config._replace(states=Path(states)))
        worker.spec = sent_spec(spec.read_text(encoding="utf-8"), {}, None)
        about = worker.hello(Packet({"constants": False})).table
        classes = f", classes {', '.join(about['classes'])}" if about.get("classes") else ""
        return f"{about['samples']} training samples, {about['dim']} weights{classes}"
