"""Nodes that a SuperLink does not let in say why; real parts on this machine."""

import time

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from undrift.federate.keys import make_keys
from undrift.federate.node import Joined, NodeConfig
from undrift.federate.session import Session, SuperLinkAddress, free_port
from undrift.flower.compat import NoFederation

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A SuperLink with TLS and keys; the keys of two nodes, and those of strangers."""
    folder = tmp_path_factory.mktemp("guarded")
    keys, strangers = folder / "keys", folder / "strangers"
    make_keys(keys, 2, [])
    make_keys(strangers, 1, [])
    address = SuperLinkAddress("127.0.0.1", free_port(), keys / "ca.crt")
    with Session(folder / "link", address, keys, print) as session:
        session.open()
        assert {*session.key_names.values()} == {"node0", "node1"}
        yield address, keys


CASES = {
    "no key": (None, "keys", "registered"),
    "a key that is not registered": ("strangers/node0", "keys", "not registered"),
    "a certificate that others signed": ("keys/node1", "strangers", "CERTIFICATE_VERIFY_FAILED"),
}


@pytest.mark.parametrize("case", CASES)
def test_who_is_not_let_in(guarded, case, tmp_path):
    address, keys = guarded
    key, ca, word = CASES[case]
    folder = keys.parent
    address = address._replace(ca=folder / ca / "ca.crt")
    kept = tmp_path / "states"
    kept.mkdir()
    (kept / "mine.safetensors").write_bytes(b"as it was")
    told = []
    key = None if key is None else folder / key
    with Joined(address, tmp_path, NodeConfig(part=0), key, told.append) as node:
        until = time.monotonic() + 180
        try:
            while word not in told[-1] and time.monotonic() < until:
                node.look()
                time.sleep(0.2)
        except NoFederation as error:
            told.append(str(error))
    assert word in told[-1]
    assert (kept / "mine.safetensors").read_bytes() == b"as it was"
    assert not any("Joined" in text for text in told)


def test_who_is_let_in(guarded, tmp_path):
    address, keys = guarded
    told = []
    with Joined(address, tmp_path, NodeConfig(part=0), keys / "node0", told.append) as node:
        until = time.monotonic() + 120
        while not any("Joined" in text for text in told) and time.monotonic() < until:
            node.look()
            time.sleep(0.2)
    assert any("Joined" in text for text in told)


def test_a_node_that_was_in_notices_a_renewed_certificate(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for keys in (old, new):
        make_keys(keys, 1, [])
    address, told = SuperLinkAddress("127.0.0.1", free_port(), old / "ca.crt"), []
    until = time.monotonic() + 400

    def look(node, done):
        while not done() and time.monotonic() < until:
            node.look()
            time.sleep(0.2)

    states = NodeConfig(part=0)
    with Session(tmp_path / "first", address, old, print) as session:
        session.open()
        node = Joined(address, tmp_path / "states", states, old / "node0", told.append)
        look(node, lambda: any("Joined" in text for text in told))
    renewed = address._replace(ca=new / "ca.crt")
    with node, Session(tmp_path / "second", renewed, new, print) as session:
        session.open()
        with pytest.raises(NoFederation, match=r"another certificate than .*start this node again"):
            look(node, lambda: False)
