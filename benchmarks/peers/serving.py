"""A minimal HTTP server of ours over a library's own `encode`, run inside of that library's environment.

    python -P serving.py LIBRARY DIRECTORY PORT        POST /v1/embeddings, base64 or numbers
    python -P serving.py LIBRARY DIRECTORY --library   times encode itself: {"texts": [...]} a line in, {"seconds"} out

Requests are encoded one after another in a thread, as a first service around such a library does; nothing is batched
across requests. It imports nothing of Shoal.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import importlib
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
Encode = Callable[[list[str]], Any]


def open_sentence_transformers(directory: str, backend: str) -> Encode:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(directory, device="cpu", backend=backend)  # type: ignore[arg-type]
    return lambda texts: model.encode(texts)


def open_fastembed(directory: str) -> Encode:
    fastembed = importlib.import_module("fastembed")
    model = fastembed.TextEmbedding(MODEL, specific_model_path=directory)
    return lambda texts: np.stack(list(model.embed(texts)))


def open_embed_anything(directory: str) -> Encode:
    embed_anything = importlib.import_module("embed_anything")
    model = embed_anything.EmbeddingModel.from_pretrained_hf(model_id=MODEL)
    config = embed_anything.TextEmbedConfig(batch_size=32)
    return lambda texts: np.array([one.embedding for one in embed_anything.embed_query(texts, model, config)], "<f4")


OPENERS: dict[str, Callable[[str], Encode]] = {
    "torch": lambda directory: open_sentence_transformers(directory, "torch"),
    "openvino": lambda directory: open_sentence_transformers(directory, "openvino"),
    "onnx": lambda directory: open_sentence_transformers(directory, "onnx"),
    "fastembed": open_fastembed,
    "embed-anything": open_embed_anything,
}


class Server:
    """An ASGI application."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._thread = ThreadPoolExecutor(1)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        answer = await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, body)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _answer(self, body: bytes) -> bytes:
        request = json.loads(body)
        texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
        vectors = np.asarray(self._encode(texts), "<f4")
        if request.get("encoding_format") == "base64":
            rows: list[Any] = [base64.b64encode(row.tobytes()).decode() for row in vectors]
        else:
            rows = vectors.tolist()
        entries = [{"object": "embedding", "index": place, "embedding": row} for place, row in enumerate(rows)]
        return json.dumps({"object": "list", "data": entries, "model": MODEL, "usage": {}}).encode()


def time_library(encode: Encode) -> None:
    """Answer each line of standard input with the seconds that its texts took."""
    for line in sys.stdin:
        texts = json.loads(line)["texts"]
        start = time.perf_counter()
        encode(texts)
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=list(OPENERS))
    parser.add_argument("directory")
    parser.add_argument("port", type=int, nargs="?")
    parser.add_argument("--library", action="store_true", dest="is_library")
    options = parser.parse_args()
    encode = OPENERS[options.library](options.directory)
    if options.is_library:
        time_library(encode)
        return
    import uvicorn

    app: Any = Server(encode)
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False, lifespan="off")


if __name__ == "__main__":
    main()
