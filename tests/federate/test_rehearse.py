"""undrift join --check: what would keep a node from joining is said before it joins."""

import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager, nullcontext, suppress

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from undrift.cli import main
from undrift.federate.keys import make_keys, private
from undrift.federate.session import free_port

SPEC = """\
name = "wards"
rounds = 3
[problem]
name = "logistic"
data = "wards"
clients = 3
[[method]]
name = "FedAvg"
lr = 0.05
"""


@contextmanager
def server(keys, port):
    """Who speaks TLS at a port of this machine, with the certificate of these keys."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "server.pem", keys / "server.key")

    def greet():
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with suppress(OSError), context.wrap_socket(connection, server_side=True) as secure:
                    secure.recv(1)

    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=greet)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    made = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        make_keys(made / name, 1, [])
    return made


@pytest.fixture
def check(tmp_path, monkeypatch, capsys, keys):
    """What the command prints about each thing, and its exit code."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/wards").write_text("1 1:0.5 2:1\n0 1:-1 2:0.25\n1 1:2 2:0.5\n")

    def check(*words, key="ours", listens="ours"):
        port = free_port()
        given = ["join", "--superlink", f"127.0.0.1:{port}", "--key", f"{keys / key / 'node0'}"]
        with server(keys / listens, port) if listens else nullcontext():
            code = main([*given, *words])
        lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["site", "spec.toml"]
        return code, {name: (right == "ok", said) for name, right, said in lines}

    return check


def test_a_node_that_may_join(check):
    code, found = check("--check", "spec.toml", "--data", "site")
    assert code == 0 and [*found] == ["key", "server", "data"]
    assert all(right for right, _ in found.values())
    assert found["data"][1] == "3 training samples, 2 weights, classes 0, 1"
    code, found = check("--check")
    assert code == 0 and [*found] == ["key", "server"]


def test_nobody_listens(check):
    code, found = check("--check", listens=None)
    assert code == 1 and not found["server"][0] and "refused" in found["server"][1]


def test_another_service_at_the_port(check):
    with socket.create_server(("127.0.0.1", free_port())) as other:

        def greet():
            connection, _ = other.accept()
            connection.sendall(b"220 mail\r\n" * 9)
            connection.close()

        thread = threading.Thread(target=greet)
        thread.start()
        place = f"127.0.0.1:{other.getsockname()[1]}"
        code, found = check("--superlink", place, "--check", listens=None)
        thread.join(10)
    assert code == 1 and f"{place} does not speak TLS" in found["server"][1]


def test_the_certificate_of_others(check):
    code, found = check("--check", listens="theirs")
    assert code == 1 and not found["server"][0] and "certificate" in found["server"][1]


def test_a_key_that_is_none_or_that_others_can_read(check, keys, tmp_path):
    key = keys / "ours/node0"
    right = key.read_bytes()
    try:
        key.chmod(0o644)
        code, found = check("--check")
        assert code == 1 and f"chmod 600 {key}" in found["key"][1]
        key.chmod(0o600)
        key.write_bytes(b"nonsense")
        code, found = check("--check")
        assert code == 1 and not found["key"][0] and found["server"][0]
        other = ed25519.Ed25519PrivateKey.generate()
        key.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        assert "of another kind" in check("--check")[1]["key"][1]
    finally:
        key.chmod(0o600)
        key.write_bytes(right)


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="there is no ssh-keygen")
def test_a_key_with_a_passphrase(tmp_path, capsys):
    file = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-qt", "ecdsa", "-b", "384", "-N", "secret", "-f", file])
    (tmp_path / "ca.crt").touch()
    with pytest.raises(ValueError, match="has a passphrase: take it off"):
        private(file)
    with pytest.raises(ValueError, match="public half"):
        private(file.with_suffix(".pub"))
    with pytest.raises(SystemExit):  # joining looks at it too
        main(["join", "--superlink", "127.0.0.1:9", "--key", str(file), "--part", "0"])
    assert "has a passphrase" in capsys.readouterr().err


def test_data_that_cannot_be_read(check, tmp_path):
    (tmp_path / "site/wards").write_text("1 1:0.5\n1 1:x\n")
    code, found = check("--check", "spec.toml", "--data", "site")
    assert code == 1 and not found["data"][0] and found["key"][0]
    (tmp_path / "site/wards").unlink()
    code, found = check("--check", "spec.toml", "--data", "site")
    assert code == 1 and "wards" in found["data"][1]


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        ([], [{"--part": "0"}, {"--part": "1"}]),
        (["a"], [{"--part": "0", "--data": "a"}, {"--part": "1", "--data": "a"}]),
        (["a", "b"], [{"--data": "a"}, {"--data": "b"}]),
    ],
)
def test_nodes_of_this_machine_have_one_folder_or_their_own(
    tmp_path, monkeypatch, folders, expected
):
    from undrift.federate import session

    started = []
    monkeypatch.setattr(session, "Process", lambda command, *_: started.append(command))
    monkeypatch.setattr(session, "end_all", lambda _: None)
    address = session.SuperLinkAddress("127.0.0.1", 1)
    with session.local_nodes(tmp_path, address, 2, [tmp_path / name for name in folders]):
        options = [dict(zip(c[4::2], c[5::2], strict=True)) for c in started]
    own = [{k: v for k, v in o.items() if k in ("--part", "--data")} for o in options]
    assert own == [
        {k: v if k == "--part" else f"{tmp_path / v}" for k, v in e.items()} for e in expected
    ]
    assert len({o["--states"] for o in options}) == 2


def test_folders_for_other_nodes_than_there_are_refused(capsys):
    with pytest.raises(SystemExit) as end:
        main(["federate", "spec.toml", "--local", "3", "--data", "a", "b"])
    assert end.value.code == 2 and "one folder for all nodes, or 3" in capsys.readouterr().err
