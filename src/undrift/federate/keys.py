"""Certificates and keys for a federation: a certificate authority of its own, to try one safely."""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
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
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 365
HERE = ("127.0.0.1", "localhost")
"""Names of the SuperLink's machine that are always in its certificate."""


def make_keys(folder: Path, nodes: int, hosts: Sequence[str]) -> list[str]:
    """Write them to an empty folder; what each is for, in words.

    ``hosts`` are the names and addresses of the SuperLink's machine.
    """
    hosts = [*hosts, *(host for host in HERE if host not in hosts)]
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    authority = ec.generate_private_key(ec.SECP384R1())
    ca = _signed("undrift test CA", authority, "undrift test CA", authority, None)
    server = ec.generate_private_key(ec.SECP384R1())
    certificate = _signed(hosts[0], server, "undrift test CA", authority, hosts)
    _private(folder / "ca.key", _pem(authority))
    (folder / "ca.crt").write_bytes(ca.public_bytes(Encoding.PEM))
    _private(folder / "server.key", _pem(server))
    (folder / "server.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    _private(folder / "secret", secrets.token_bytes(32))
    for number in range(nodes):
        key = ec.generate_private_key(ec.SECP384R1())
        kind = PrivateFormat.OpenSSH
        _private(folder / f"node{number}", key.private_bytes(Encoding.PEM, kind, NoEncryption()))
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        (folder / f"node{number}.pub").write_bytes(public + b"\n")
    machines = ", ".join(hosts)
    return [
        f"Made in {folder}, valid for {DAYS} days:",
        f"  server.pem, server.key, secret   for the SuperLink's machine ({machines}) alone",
        "  ca.crt                           for every machine",
        f"  node0 ... node{nodes - 1}, each with .pub   the private key for one node, the .pub for "
        "the SuperLink",
        "  ca.key                           signs further certificates: keep it off the network",
    ]


def _signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    hosts: Sequence[str] | None,
) -> x509.Certificate:
    """A certificate: of a server with these ``hosts``, or of an authority."""
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=hosts is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    usage = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    signs = hosts is None
    usage |= {"digital_signature": True, "key_cert_sign": signs, "crl_sign": signs}
    builder = builder.add_extension(x509.KeyUsage(**usage), critical=True)
    if hosts is not None:
        names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(purpose, critical=False)
    return builder.sign(signer, hashes.SHA384())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _private(path: Path, content: bytes) -> None:
    """A file that nobody else can read, from the beginning."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
