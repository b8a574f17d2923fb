"""A certificate and keys for one federation: making them, and looking at one."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 365
HERE = ("127.0.0.1", "localhost")
"""Names of the SuperLink's machine that are always in its certificate."""


def make_keys(folder: Path, nodes: int, hosts: Sequence[str]) -> list[str]:
    """Write them to a folder without any; what each is for, in words.

    ``hosts`` are the names and addresses of the SuperLink's machine.
    """
    hosts = [*hosts, *(host for host in HERE if host not in hosts)]
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    server = ec.generate_private_key(ec.SECP384R1())
    _write(folder / "server.key", _private(server, PrivateFormat.PKCS8))
    certificate = _certificate(server, hosts).public_bytes(Encoding.PEM)
    # It has signed itself; who has an authority gives its certificate and one that it signed.
    _write(folder / "ca.crt", certificate)
    _write(folder / "server.pem", certificate)
    for number in range(nodes):
        key = ec.generate_private_key(ec.SECP384R1())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        _write(folder / f"node{number}", _private(key, PrivateFormat.OpenSSH))
        _write(folder / f"node{number}.pub", public + b"\n")
    return [
        f"Made in {folder}, valid for {DAYS} days:",
        f"  server.pem, server.key   for the SuperLink's machine ({', '.join(hosts)}) alone",
        "  ca.crt                   for every machine",
        f"  node0 ... node{nodes - 1}          the private key for one node each",
        "  node0.pub ...            for the SuperLink",
    ]


def _certificate(key: ec.EllipticCurvePrivateKey, hosts: Sequence[str]) -> x509.Certificate:
    """The server's, signed by itself."""
    now, public = datetime.datetime.now(datetime.UTC), key.public_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, hashes.SHA384())
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def _write(path: Path, content: bytes) -> None:
    """A new file that nobody else can read, from the beginning."""
    with open(path, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(content)


def in_force(certificate: Path) -> None:
    """Raise ``ValueError`` for one that has expired, or is not yet valid."""
    found, now = x509.load_pem_x509_certificate(certificate.read_bytes()), datetime.datetime.now()
    first, last = found.not_valid_before_utc, found.not_valid_after_utc
    if not first <= now.astimezone() <= last:
        raise ValueError(
            f"{certificate} is valid from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, and "
            f"here it is {now.astimezone(datetime.UTC):%Y-%m-%d %H:%M}: look at the clock, or make "
            "new ones by undrift federate keys"
        )


def private(key: Path) -> str:
    """That a node's key is one, and nobody else's."""
    if key.suffix == ".pub":
        raise ValueError(f"{key} is the public half: give the file without .pub")
    if key.stat().st_mode & 0o077:
        raise ValueError(f"other users can read {key}: chmod 600 {key}")
    try:
        found = load_ssh_private_key(key.read_bytes(), None)
    except TypeError:
        raise ValueError(
            f"{key} has a passphrase: take it off, ssh-keygen -p -N '' -f FILE"
        ) from None
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ValueError(
            f"{key} is of another kind: ssh-keygen -t ecdsa -b 384 makes the right one"
        )
    return f"{key} is a private key that only you can read"
