"""What is measured: a server by URL and the API that it is asked in. One row an API; it makes bodies and reads replies.

A target is written `[NAME=][KIND+]URL[#MODEL]`, such as `ours=shoal+http://127.0.0.1:8080` or
`openai+https://api.openai.com/v1#text-embedding-3-small`. The URL is the base URL that the API's own client is given.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.bench.connection import Address, Reply, message
from shoal.errors import InternalError, InvalidRequest, Unauthorized
from shoal.types import EmbedReply, RerankReply

__all__ = ["KINDS", "Kind", "Target", "parse_targets"]

Vectors = npt.NDArray[np.float32]
Body = Callable[[Sequence[str], str], dict[str, Any]]
Read = Callable[[Reply], Vectors]
Role = Literal["", "query", "document"]


class Kind(NamedTuple):
    """An API.

    Attributes:
        operation: whether texts are embedded, or the first is a query and the rest are ranked for it.
        paths: what is added to a base URL that has no path, and to one that has.
        body: the request for texts and a model.
        read: float32 [n, dimensions], or [n, 1] scores in the order of the documents.
        tokens: how many the reply says were run; 0 where it does not say.
        roles: what is added to say that texts are a query's, or a document's, where the API has a word for it.
        is_msgpack: whether bodies are MessagePack rather than JSON.
    """

    operation: Literal["embed", "rerank"]
    paths: tuple[str, str]
    body: Body
    read: Read
    tokens: Callable[[Reply], int]
    roles: Mapping[str, Mapping[str, str]] = {}
    is_msgpack: bool = False

    def encode(self, texts: Sequence[str], model: str, role: str) -> bytes:
        """The body of a request."""
        encode = msgspec.msgpack.encode if self.is_msgpack else msgspec.json.encode
        fields = {**self.body(texts, model), **self.roles.get(role, {})}
        return encode({name: value for name, value in fields.items() if value != ""})


class Target(msgspec.Struct, frozen=True):
    """A server, an API and a model.

    Attributes:
        name: as reports call it.
        url: base URL.
        model: empty where the server knows.
        api_key: sent as a bearer token; empty for none.
    """

    name: str
    kind: str
    url: str
    model: str = ""
    api_key: str = ""

    @property
    def address(self) -> Address:
        return Address.of(self.url)

    def request(self, texts: Sequence[str], role: Role = "") -> bytes:
        """A whole HTTP request."""
        kind, address = KINDS[self.kind], self.address
        media_type = "application/msgpack" if kind.is_msgpack else "application/json"
        headers = {"content-type": media_type, "accept": media_type}
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        last = kind.paths[0].rpartition("/")[2]
        if address.path.endswith(f"/{last}"):
            path = address.path
        else:
            path = address.path + kind.paths[1] if address.path else kind.paths[0]
        return message(address, "POST", path, headers, kind.encode(texts, self.model, role))

    def check_status(self, reply: Reply) -> None:
        """Nothing where a reply is one.

        Raises:
            Unauthorized: the server does not take the key, or wants one.
            InternalError: it answers another error.
        """
        if reply.status == 200:
            return
        said = f"{self.url} answers {reply.status}: {_said(reply)}"
        if reply.status not in (401, 403):
            raise InternalError(said)
        which = "The key of" if self.api_key else "There is no key for"
        raise Unauthorized(said, hint=f"{which} {self.name!r}: --key {self.name}=VARIABLE names where a key is.")

    def read(self, reply: Reply, num_texts: int) -> Vectors:
        """Vectors, or scores, of a reply; checked.

        Raises:
            Unauthorized: it does not take the key, or wants one.
            InternalError: it is another error, or not what this API answers.
        """
        kind = KINDS[self.kind]
        self.check_status(reply)
        try:
            rows = kind.read(reply)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, IndexError) as error:
            raise InternalError(f"{self.url} answers what is no reply of {self.kind}: {error!r}") from error
        expected = num_texts - (kind.operation == "rerank")
        if len(rows) != expected or not np.isfinite(rows).all():
            raise InternalError(f"{self.url} answers {len(rows)} finite rows to {expected} items.")
        return rows


def _said(reply: Reply) -> str:
    """What an error says, in words: our MessagePack by its code and message, others as they came."""
    if b"msgpack" in reply.headers.get(b"content-type", b""):
        with contextlib.suppress(msgspec.MsgspecError, KeyError, TypeError):
            error = msgspec.msgpack.decode(reply.body)["error"]
            return f"{error['code']}: {error['message']}"
    return reply.body[:300].decode(errors="replace")


def _tokens_in_json(reply: Reply) -> int:
    """Tokens as the server counts them, without reading the vectors; 0 where it does not say."""
    found = _USAGE.search(reply.body[-600:]) or _USAGE.search(reply.body[:600])
    return int(found[1] if found else reply.headers.get(b"x-compute-tokens", b"0"))


_USAGE = re.compile(rb'"(?:total_tokens|prompt_tokens|input_tokens|num_tokens)"\s*:\s*(\d+)')


class _Counts(msgspec.Struct):
    num_tokens: list[int]


_decode_counts = msgspec.msgpack.Decoder(_Counts).decode


def _tokens_in_msgpack(reply: Reply) -> int:
    return sum(_decode_counts(reply.body).num_tokens)


def _from_json(reply: Reply) -> Any:
    return msgspec.json.decode(reply.body)


def _row(value: Any) -> Any:
    return np.frombuffer(base64.b64decode(value), "<f4") if isinstance(value, str) else value


def _openai_rows(reply: Reply) -> Vectors:
    rows = sorted(_from_json(reply)["data"], key=lambda row: int(row["index"]))
    return np.array([_row(row["embedding"]) for row in rows], np.float32)


def _cohere_rows(reply: Reply) -> Vectors:
    return _rows(_from_json(reply)["embeddings"]["float"])


def _msgpack_rows(reply: Reply) -> Vectors:
    answer = msgspec.msgpack.decode(reply.body, type=EmbedReply)
    return np.frombuffer(answer.data, "<f4").reshape(answer.shape)


def _msgpack_sums(reply: Reply) -> Vectors:
    """Of sparse vectors the sum of each: enough to see that they are there, finite, and one a text."""
    sparse = msgspec.msgpack.decode(reply.body, type=EmbedReply).sparse
    if sparse is None:
        raise ValueError("no sparse vectors")
    ends = np.cumsum([0, *sparse.lengths])
    totals = np.concatenate([[0.0], np.cumsum(np.frombuffer(sparse.values, "<f4"), dtype=np.float64)])
    sums: Vectors = np.diff(totals[ends])[:, None].astype(np.float32)
    return sums


def _rows(rows: Any) -> Vectors:
    return np.array(rows, np.float32)


def _scores(results: Any, name: str) -> Vectors:
    scores = np.full((len(results), 1), np.nan, np.float32)
    for result in results:
        scores[int(result["index"])] = float(result[name])
    return scores


def _ranking(answer: Any) -> Vectors:
    return _scores(answer["results"] if "results" in answer else answer["data"], "relevance_score")


def _msgpack_ranking(reply: Reply) -> Vectors:
    results = msgspec.msgpack.decode(reply.body, type=RerankReply).results
    return _scores([msgspec.structs.asdict(result) for result in results], "relevance_score")


def _embed_input(texts: Sequence[str], model: str) -> dict[str, Any]:
    return {"input": texts, "model": model}


def _sparse_input(texts: Sequence[str], model: str) -> dict[str, Any]:
    return {"input": texts, "model": model, "outputs": ["sparse"]}


def _base64_input(texts: Sequence[str], model: str) -> dict[str, Any]:
    return {"input": texts, "model": model, "encoding_format": "base64"}


def _cohere_texts(texts: Sequence[str], model: str) -> dict[str, Any]:
    return {"texts": texts, "model": model, "input_type": "search_document", "embedding_types": ["float"]}


def _tei_inputs(texts: Sequence[str], model: str) -> dict[str, Any]:
    return {"inputs": texts, "truncate": True}


def _rank_documents(texts: Sequence[str], model: str) -> dict[str, Any]:
    return {"query": texts[0], "documents": texts[1:], "model": model}


def _tei_documents(texts: Sequence[str], model: str) -> dict[str, Any]:
    return {"query": texts[0], "texts": texts[1:], "truncate": True}


_INPUT_TYPES = {role: {"input_type": role} for role in ("query", "document")}
_COHERE_TYPES = {role: {"input_type": f"search_{role}"} for role in ("query", "document")}


def _embed(paths: str, body: Body, read: Read, roles: Mapping[str, Mapping[str, str]] = {}) -> Kind:
    return Kind("embed", _both(paths), body, read, _tokens_in_json, roles)


def _rank(paths: str, body: Body, read: Read) -> Kind:
    return Kind("rerank", _both(paths), body, read, _tokens_in_json)


def _both(paths: str) -> tuple[str, str]:
    without, _, with_path = paths.partition(" ")
    return without, with_path or without


def _packed(operation: Literal["embed", "rerank"], path: str, body: Body, read: Read) -> Kind:
    roles = _INPUT_TYPES if operation == "embed" else {}
    return Kind(operation, (path, path), body, read, _tokens_in_msgpack, roles, is_msgpack=True)


KINDS: dict[str, Kind] = {
    "shoal": _packed("embed", "/v1/embed", _embed_input, _msgpack_rows),
    "shoal-sparse": _packed("embed", "/v1/embed", _sparse_input, _msgpack_sums),
    "shoal-json": _embed("/v1/embed", _embed_input, lambda reply: _rows(_from_json(reply)["embeddings"]), _INPUT_TYPES),
    "openai": _embed("/v1/embeddings /embeddings", _embed_input, _openai_rows),
    "openai-base64": _embed("/v1/embeddings /embeddings", _base64_input, _openai_rows),
    "voyage": _embed("/v1/embeddings /embeddings", _embed_input, _openai_rows, _INPUT_TYPES),
    "tei": _embed("/embed", _tei_inputs, lambda reply: _rows(_from_json(reply))),
    "cohere": _embed("/v2/embed", _cohere_texts, _cohere_rows, _COHERE_TYPES),
    "shoal-rerank": _packed("rerank", "/v1/rerank", _rank_documents, _msgpack_ranking),
    "rerank": _rank("/v1/rerank /rerank", _rank_documents, lambda reply: _ranking(_from_json(reply))),
    "cohere-rerank": _rank("/v2/rerank", _rank_documents, lambda reply: _ranking(_from_json(reply))),
    "tei-rerank": _rank("/rerank", _tei_documents, lambda reply: _scores(_from_json(reply), "score")),
}


_WRITTEN = re.compile(
    r"^(?:(?P<name>[\w .-]+)=)?(?:(?P<kind>[a-z0-9-]+)\+)?(?P<url>https?://[^#]+)(?:#(?P<model>.+))?$"
)


def parse_targets(written: Sequence[str], keys: dict[str, str]) -> list[Target]:
    """Targets as they are written on the command line.

    Args:
        keys: API keys by name of the target.

    Raises:
        InvalidRequest: one cannot be read, two have one name, or a key belongs to none.
    """
    targets: list[Target] = []
    for text in written:
        if not (found := _WRITTEN.match(text)):
            raise InvalidRequest(
                f"{text!r} is no target.", hint="It looks like [NAME=][KIND+]http://127.0.0.1:8080[#MODEL]."
            )
        kind = found["kind"] or "openai"
        if kind not in KINDS:
            raise InvalidRequest(f"{kind!r} in {text!r} is no API.", hint=f"There are: {', '.join(KINDS)}.")
        name = found["name"] or _free_name(kind, targets)
        if any(target.name == name for target in targets):
            raise InvalidRequest(f"Two targets are named {name!r}.")
        targets.append(Target(name, kind, found["url"], found["model"] or "", keys.get(name, "")))
    if unknown := keys.keys() - {target.name for target in targets}:
        raise InvalidRequest(f"There is a key for {', '.join(sorted(unknown))}, which is no target's name.")
    return targets


def _free_name(kind: str, targets: Sequence[Target]) -> str:
    number = sum(target.kind == kind for target in targets) + 1
    return kind if number == 1 else f"{kind}-{number}"
