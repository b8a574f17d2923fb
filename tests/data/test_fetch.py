"""Downloads from a local server: kept when right, refused and removed when not."""

import dataclasses
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.data.image_files import write_cifar10

from undrift.data.cards import CARDS, info
from undrift.data.fetch import fetch
from undrift.data.files import BadData
from undrift.data.images import load_images

FILE = "cifar-10-binary.tar.gz"


class Server(ThreadingHTTPServer):
    """Serves ``content``; ``fault`` says what goes wrong."""

    daemon_threads = True
    content, fault, asked = b"", "", 0

    @property
    def base(self):
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.asked += 1
        content, fault = self.server.content, self.server.fault
        if fault == "missing":
            return self.send_error(404)
        if fault == "gibberish":
            return self.wfile.write(b"nonsense\r\n\r\n")
        self.send_response(200)
        if fault != "no length":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(
            content[: len(content) // 2] if fault in ("truncated", "stalls") else content
        )
        if fault == "stalls":
            self.server.released.wait(10)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server(("127.0.0.1", 0), Handler) as running:
        running.released = threading.Event()
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.released.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def serve(server, tmp_path_factory, monkeypatch):
    """Put a small CIFAR-10 on the server, with its hash as the official one."""

    def put(**changes):
        folder = tmp_path_factory.mktemp("made")
        write_cifar10(folder, **changes)
        server.content = (folder / FILE).read_bytes()
        card = dataclasses.replace(
            info("cifar10"), files={FILE: hashlib.md5(server.content).hexdigest()}
        )
        monkeypatch.setitem(CARDS, "cifar10", card)
        return server

    return put


def left(folder):
    return [path.name for path in folder.iterdir()] if folder.exists() else []


@pytest.mark.parametrize("fault", ["", "no length"])
def test_good_file(serve, tmp_path, fault):
    server, told = serve(), []
    server.fault = fault
    folder = tmp_path / "new" / "folder"
    assert fetch("cifar10", folder, base=server.base, progress=lambda *news: told.append(news)) == [
        folder / FILE
    ]
    size = len(server.content)
    assert told[-1] == (FILE, size, None if fault else size)
    assert left(folder) == [FILE]
    assert len(load_images("cifar10", folder).images) == 10


def test_right_file_is_not_downloaded_again(serve, tmp_path):
    server = serve()
    fetch("cifar10", tmp_path, base=server.base)
    fetch("cifar10", tmp_path, base=server.base.rstrip("/"))
    assert server.asked == 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("truncated", "but the official file has"),
        ("missing", "could not be downloaded .*404"),
        ("gibberish", "could not be downloaded"),
        ("stalls", "could not be downloaded .*timed out"),
        ("hash", "with MD5 [0-9a-f]{32}, but the official file has [0-9a-f]{32}; it was not kept"),
    ],
)
@pytest.mark.parametrize("old", [None, b"old"])
def test_failures_leave_what_was_there(serve, tmp_path, fault, words, old):
    server = serve()
    server.fault = fault
    if fault == "hash":
        server.content = server.content[:-1] + b"!"
    if old:
        (tmp_path / FILE).write_bytes(old)
    with pytest.raises(BadData, match=words) as caught:
        fetch("cifar10", tmp_path, base=server.base, timeout=0.3)
    assert "\n" not in str(caught.value)
    assert left(tmp_path) == ([FILE] if old else [])
    if old:
        assert (tmp_path / FILE).read_bytes() == old
    if fault in ("truncated", "missing", "gibberish", "stalls"):
        server.fault = ""
        fetch("cifar10", tmp_path, base=server.base)
        assert (tmp_path / FILE).read_bytes() == server.content


def test_interrupted_download_leaves_nothing(serve, tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("cifar10", tmp_path, base=serve().base, progress=stop)
    assert left(tmp_path) == []


def test_fetched_archives_are_checked_when_read(serve, tmp_path):
    folder = tmp_path / "data"
    fetch("cifar10", folder, base=serve(files={"test_batch.bin": bytes(100)}).base)
    with pytest.raises(BadData, match="not a whole number"):
        load_images("cifar10", folder)
    assert left(folder) == [FILE] and left(tmp_path) == ["data"]


def test_names_and_addresses(tmp_path):
    with pytest.raises(ValueError, match="did you mean cifar100"):
        fetch("cifar1000", tmp_path)
    with pytest.raises(ValueError, match="digits needs no download"):
        fetch("digits", tmp_path)
    with pytest.raises(ValueError, match="must start with https"):
        fetch("cifar10", tmp_path, base="file:///etc")
