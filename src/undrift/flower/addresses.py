"""Addresses of SuperLinks as people give them, and what they need to be safe."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from undrift.flower.join import loopback
from undrift.flower.session import Address, NoFederation


def checked(text: str) -> Address:
    """HOST:PORT. Raises :class:`NoFederation`."""
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 65536) or "/" in host:
        raise NoFederation(f"{text!r} is no address: HOST:PORT, as 10.0.0.5:8000")
    return Address(text)


def tls(address: Address, key: Path | None, ca: Path | None, secret: Path | None = None) -> Address:
    """The address with the certificate that it is checked by; refused in plain text from afar."""
    if ca is None and key is not None:
        ca = key.with_name("ca.crt")
    for file in (key, ca, secret):
        if file is not None and not file.is_file():
            raise NoFederation(f"{file}: there is no such file; undrift federate keys makes one")
    if not loopback(address) and (ca is None or key is None):
        raise NoFederation(
            f"{address.place} is not of this machine alone, so that others could listen or pose as "
            "a client: undrift federate keys makes certificates and keys; give them to federate "
            "with --keys FOLDER, to join with --key FILE"
        )
    return dataclasses.replace(address, ca=ca, secret=secret)
