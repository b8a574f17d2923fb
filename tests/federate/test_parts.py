"""The parts of a federation on Flower, one by one."""

import datetime
import importlib
import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from undrift.cli import main as undrift
from undrift.cli.run import unfinished
from undrift.engines.messages.packet import Packet
from undrift.federate import clientapp_stub, supervise
from undrift.federate.keys import make_keys
from undrift.federate.no_sent_code import Installed
from undrift.federate.node import Joined, NodeConfig
from undrift.federate.session import Session, SuperLinkAddress, free_port
from undrift.federate.worker import sent_spec
from undrift.flower import compat
from undrift.flower.compat import NoFederation
from undrift.flower.grid_carrier import packed, unpacked


def test_packets_in_flowers_records():
    for packet in (Packet({"a": 1}, b"xyz"), Packet({"a": 1}, bytes(30)), Packet({}, b"")):
        assert unpacked(packed(packet)) == packet
    from flwr.app import ConfigRecord, RecordDict

    changed = packed(Packet({"a": 1}))
    changed["table"]["json"] = '{"a": 2}'
    for other in (RecordDict(), RecordDict({"table": ConfigRecord({"json": "[1]"})}), changed):
        with pytest.raises(ValueError, match="message of undrift"):
            unpacked(other)


@pytest.mark.parametrize(("found", "fits"), [("1.42.3", True), ("1.43.0", False)])
def test_versions_of_flower_that_are_known(found, fits, monkeypatch):
    monkeypatch.setattr(compat, "version", lambda name: found)
    assert (compat.misfit() == "") is fits


def test_modules_that_a_server_sent_are_refused(tmp_path, monkeypatch):
    sent = tmp_path / "apps" / "theirs"
    (sent / "package").mkdir(parents=True)
    (sent / "sent_by_server.py").write_text("raise SystemExit('it ran')")
    (sent / "package" / "inside.py").write_text("")
    monkeypatch.syspath_prepend(str(sent))
    monkeypatch.setattr(sys, "meta_path", [Installed(tmp_path / "apps"), *sys.meta_path])
    for name in ("sent_by_server", "package", "package.inside"):
        with pytest.raises(ImportError, match="code that was sent"):
            importlib.import_module(name)
    importlib.import_module("colorsys")


def test_small_programs_need_nothing_but_python():
    for module in (clientapp_stub, supervise):
        text = Path(module.__file__).read_text()
        assert not re.search(r"^\s*(from|import) (undrift|flwr)", text, re.MULTILINE)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys") / "keys"
    make_keys(folder, 2, ["hospital.example", "10.0.0.5"])
    return folder


def test_keys_are_private(keys):
    for name in ("server.key", "node0", "node1"):
        assert oct((keys / name).stat().st_mode)[-3:] == "600"
    assert (keys / "node0").read_bytes().startswith(b"-----BEGIN OPENSSH PRIVATE KEY")
    assert (keys / "node0.pub").read_bytes().startswith(b"ecdsa-sha2-nistp384 ")
    with pytest.raises(FileExistsError):  # and none is replaced
        make_keys(keys, 1, [])


@pytest.mark.parametrize(
    ("name", "good"),
    [("hospital.example", True), ("10.0.0.5", True), ("127.0.0.1", True), ("elsewhere", False)],
)
def test_certificates_are_good_for_the_names_they_were_made_for(keys, name, good):
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(keys / "server.pem", keys / "server.key")
    client = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    assert handshake(server, client, name) is good
    assert not handshake(server, ssl.create_default_context(), name)


def test_keys_are_not_overwritten(tmp_path, capsys):
    folder = tmp_path / "keys"
    make_keys(folder, 1, [])
    before = (folder / "ca.crt").read_bytes()
    with pytest.raises(SystemExit):
        undrift(["federate", "keys", "--keys", str(folder)])
    assert (folder / "ca.crt").read_bytes() == before and "--keys" in capsys.readouterr().err


@pytest.mark.parametrize("days", [-1, 400])
def test_a_certificate_that_is_not_in_force_is_refused_with_its_dates(
    days, tmp_path, monkeypatch, capsys
):
    real = datetime.datetime

    class Clock(real):
        @classmethod
        def now(cls, tz=None):
            return real.now(tz) + datetime.timedelta(days=days)

    keys, spec = tmp_path / "keys", tmp_path / "spec.toml"
    make_keys(keys, 1, [])
    spec.write_text(
        'name = "a"\nrounds = 1\n[problem]\nname = "quadratic"\nclients = 1\n'
        '[[method]]\nname = "FedAvg"\nlr = 0.1\n'
    )
    words = ["federate", str(spec), "--listen", f"127.0.0.1:{free_port()}", "--keys", str(keys)]
    monkeypatch.setattr("datetime.datetime", Clock)
    with pytest.raises(SystemExit) as end:
        undrift([*words, "--out", str(tmp_path / "runs")])
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert "server.pem is valid from" in said and "look at the clock" in said


def test_keys_for_too_few_nodes_are_refused_before_anybody_is_waited_for(keys, tmp_path, capsys):
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'name = "a"\nrounds = 1\n[problem]\nname = "quadratic"\nclients = 3\n'
        '[[method]]\nname = "FedAvg"\nlr = 0.1\n'
    )
    with pytest.raises(SystemExit) as end:
        undrift(["federate", str(spec), "--listen", "127.0.0.1:9", "--keys", str(keys)])
    said = capsys.readouterr().err
    assert end.value.code == 2 and f"3 clients need as many keys, and {keys} has 2" in said
    assert "a .pub of every node" in said


def handshake(server, client, name):
    here, there = socket.socketpair()

    def serve():
        try:
            with server.wrap_socket(there, server_side=True) as one:
                one.recv(1)
        except OSError:
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=name) as one:
            one.send(b"x")
            return True
    except ssl.SSLError:
        here.close()
        return False
    finally:
        thread.join()


@pytest.mark.parametrize("text", ["", "here", "here:", ":80", "here:x", "here:0", "http://h:80"])
def test_addresses(text):
    with pytest.raises(NoFederation, match="HOST:PORT"):
        SuperLinkAddress.read(text, None)


def test_plain_text_only_on_this_machine(keys):
    assert SuperLinkAddress.read("127.0.0.1:80", None).ca is None
    with pytest.raises(NoFederation, match="undrift federate keys"):
        SuperLinkAddress.read("10.0.0.5:80", None)
    assert SuperLinkAddress.read("10.0.0.5:80", keys / "node0").ca == keys / "ca.crt"
    with pytest.raises(NoFederation, match="no such file"):
        SuperLinkAddress.read("10.0.0.5:80", keys / "node7")


@pytest.mark.thorough
@pytest.mark.parametrize(("code", "waits"), [(2004, True), (2001, False)])
def test_a_node_is_patient_unless_it_has_no_key(tmp_path, monkeypatch, code, waits):
    """Flower says 2004 to keys that are not registered yet and to nodes that were just killed."""
    refused = tmp_path / "refused"
    refused.write_text(f"#!/bin/sh\necho 'ERROR : [code: {code}] No'\n")
    refused.chmod(0o700)
    monkeypatch.setattr(compat, "tool", lambda name: str(refused))
    told, address = [], SuperLinkAddress("127.0.0.1", free_port())
    with Joined(address, tmp_path, NodeConfig(part=0), None, told.append) as node:
        while node._processes["supernode"].code is None:
            time.sleep(0.05)
        if waits:
            node.look()
            assert "Trying again" in told[-1]
            return
        with pytest.raises(NoFederation, match=f"did not let this node in.*{code}"):
            node.look()


@pytest.mark.thorough
def test_an_owner_hears_that_the_server_is_away_and_back(tmp_path, monkeypatch):
    flower = tmp_path / "flower"
    flower.write_text(
        f"""#!/bin/sh
        said() {{ while [ ! -e {tmp_path}/$1 ]; do sleep 0.05; done; echo "$2"; }}
        echo 'INFO : SuperNode ID: 7'
        said away 'WARNING : Connection attempt failed, retrying in 0.1 seconds'
        said back 'INFO : Connection successful after 0.1 seconds'
        said never ''
        """
    )
    flower.chmod(0o700)
    monkeypatch.setattr(compat, "tool", lambda name: str(flower))
    told, address = [], SuperLinkAddress("127.0.0.1", free_port())
    with Joined(address, tmp_path / "states", NodeConfig(part=0), None, told.append) as node:

        def heard(word):
            node.look()
            return word in told[-1]

        assert supervise.within(10, lambda: heard("Joined"))
        (tmp_path / "away").touch()
        assert supervise.within(10, lambda: heard("cannot be reached"))
        (tmp_path / "back").touch()
        assert supervise.within(10, lambda: heard("Reached"))
        node.look()
    place = address.place
    assert told[2:] == [f"{place} cannot be reached; trying on.", f"Reached {place} again."]


def test_a_superlink_has_its_port_alone(tmp_path, monkeypatch):
    """Nodes and runs of whoever listens there would be taken for those of this federation."""
    monkeypatch.setattr("undrift.federate.session.ENDING", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = SuperLinkAddress("127.0.0.1", other.getsockname()[1])
        with pytest.raises(NoFederation, match=f"something listens at {address.place} already"):
            Session(tmp_path, address, None, print)
    assert not (tmp_path / "superlink.log").exists()


def test_a_folder_of_states_has_one_node(tmp_path, monkeypatch):
    monkeypatch.setattr("undrift.federate.node.ENDING", 0.5)
    place = NodeConfig(part=0)
    address = SuperLinkAddress("127.0.0.1", free_port())
    with (
        Joined(address, tmp_path, place, None, print),
        pytest.raises(NoFederation, match="in use by another node"),
    ):
        Joined(address, tmp_path, place, None, print)
    (tmp_path / "file").write_text("")
    with pytest.raises(NoFederation, match="no states can be kept there"):
        Joined(address, tmp_path / "file", place, None, print)


SPEC = """\
name = "mine"
rounds = 2
[problem]
name = "least-squares"
clients = 3
[[method]]
name = "FedAvg"
lr = 0.001
"""


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return str(path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["federate", "SPEC"], "one of --listen and --local"),
        (["federate", "SPEC", "--local", "3", "--listen", "h:1"], "one of --listen"),
        (["federate", "SPEC", "--local", "0"], "whole number >= 1"),
        (["federate", "SPEC", "--local", "3", "--jobs", "2"], "one method after another"),
        (["federate", "SPEC", "--local", "3", "-s", "engine.deadline=0"], "deadline"),
        (["federate", "missing.toml", "--local", "3"], "No such file"),
        (["join", "--superlink", "10.0.0.5:8000", "--part", "0"], "undrift federate keys"),
        (["join", "--superlink", "127.0.0.1:1"], "--data FOLDER"),
        (["join", "--superlink", "127.0.0.1:1", "--data", "nowhere"], "is not a folder"),
        (["join", "--superlink", "127.0.0.1:1", "--part", "-1"], "whole number >= 0"),
        (["run", "SPEC", "-s", "engine=flower"], "undrift federate"),
    ],
)
def test_bad_input_is_one_line(spec, words, said, capsys):
    with pytest.raises(SystemExit) as end:
        undrift([spec if word == "SPEC" else word for word in words])
    assert end.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert said in lines[0] and len(lines) <= 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["federate", "SPEC", "--listen", "nonsense"], "HOST:PORT"),
        (["federate", "SPEC", "--listen", "0.0.0.0:8000"], "undrift federate keys"),
    ],
)
def test_no_federation_is_one_line(spec, words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert undrift([spec if word == "SPEC" else word for word in words]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and said in lines[0]


@pytest.mark.parametrize("words", [["federate", "SPEC", "--local", "3"], ["join", "--part", "0"]])
def test_without_flower(spec, words, capsys, monkeypatch):
    def missing(name):
        raise PackageNotFoundError

    monkeypatch.setattr(compat, "version", missing)
    more = ["--superlink", "h:1"] if words[0] == "join" else []
    with pytest.raises(SystemExit):
        undrift([spec if word == "SPEC" else word for word in [*words, *more]])
    assert "undrift[flower]" in capsys.readouterr().err


@pytest.mark.parametrize("why", ["interrupted", ""])
def test_a_run_that_broke_off_names_the_command(tmp_path, spec, capsys, why):
    from undrift.records.folder import Folder
    from undrift.spec.reader import load

    chosen = load(spec, ["engine.name=flower"])
    folder = Folder(tmp_path / "mine")
    folder.start(chosen, {})
    unfinished(folder, chosen, why)
    folder.close()
    said = capsys.readouterr().err
    assert "the same undrift federate command" in said and "undrift resume" not in said


def test_no_torch_in_what_flower_loads():
    code = (
        "import sys, json\n"
        "from undrift.federate import apps, no_sent_code, node\n"
        "print(json.dumps([name for name in ('torch', 'numpy') if name in sys.modules]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert "torch" not in json.loads(found.stdout)


def test_a_file_that_the_server_gave_no_digest_of_is_not_executed(tmp_path, monkeypatch):
    """Even if one of that name lies where the node was started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text('from pathlib import Path\nPath("executed").touch()\n')
    spec = (
        'name = "a"\nrounds = 1\n[problem]\nname = "mine"\nfile = "mine.py"\n'
        '[[method]]\nname = "FedAvg"\nlr = 0.1\n'
    )
    for methods in (None, tmp_path):
        with pytest.raises(ValueError):
            sent_spec(spec, {}, methods)
    assert not (tmp_path / "executed").exists()
