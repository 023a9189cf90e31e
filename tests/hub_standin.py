"""A hub on 127.0.0.1 that speaks just enough of the hub's protocol for `huggingface_hub` to download from it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["COMMIT", "HubStandin", "lay_out_cache", "serve_hub"]

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubStandin:
    """One repository, served from a directory.

    Attributes:
        url: for HF_ENDPOINT.
        requests: (method, path) of what was asked, in order.
    """

    def __init__(self, repository: str, directory: Path, port: int) -> None:
        self.repository = repository
        self.directory = directory
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[tuple[str, str]] = []

    @property
    def files_fetched(self) -> set[str]:
        marker = f"/{self.repository}/resolve/{COMMIT}/"
        return {path.removeprefix(marker) for method, path in self.requests if method == "GET" and marker in path}

    def answer(self, path: str) -> bytes | Path | None:
        """A JSON body, a file, or None for a 404."""
        if path == f"/api/models/{self.repository}/revision/main":
            return json.dumps({"id": self.repository, "sha": COMMIT, "siblings": [], "tags": []}).encode()
        if path == f"/api/models/{self.repository}/tree/{COMMIT}":
            files = [file for file in sorted(self.directory.rglob("*")) if file.is_file()]
            return json.dumps(
                [
                    {
                        "type": "file",
                        "path": str(file.relative_to(self.directory)),
                        "size": file.stat().st_size,
                        "oid": git_hash(file),
                    }
                    for file in files
                ]
            ).encode()
        file = self.directory / path.removeprefix(f"/{self.repository}/resolve/{COMMIT}/")
        return file if "/resolve/" in path and file.is_file() else None


@contextmanager
def serve_hub(repository: str, directory: Path) -> Iterator[HubStandin]:
    """Serve until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append((self.command, path))
            found = hub.answer(path)
            content = found.read_bytes() if isinstance(found, Path) else found
            self.send_response(200 if content is not None else 404)
            if content is None:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", str(len(content or b"")))
            self.send_header("Content-Type", "application/json")
            self.send_header("X-Repo-Commit", COMMIT)
            if isinstance(found, Path):
                self.send_header("ETag", f'"{git_hash(found)}"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content or b"")

        do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = HubStandin(repository, directory, server.server_port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def lay_out_cache(cache: Path, repository: str, directory: Path) -> Path:
    """Put a model into a hub cache as the hub's own library does: blobs, links to them, refs. Returns the snapshot."""
    storage = cache / f"models--{repository.replace('/', '--')}"
    snapshot = storage / "snapshots" / COMMIT
    (storage / "blobs").mkdir(parents=True)
    (storage / "refs").mkdir()
    (storage / "refs" / "main").write_text(COMMIT)
    for file in (file for file in directory.rglob("*") if file.is_file()):
        blob = storage / "blobs" / git_hash(file)
        blob.write_bytes(file.read_bytes())
        link = snapshot / file.relative_to(directory)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    return snapshot


def git_hash(file: Path) -> str:
    content = file.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
