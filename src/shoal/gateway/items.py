"""Cuts the value of `input` into items, in JSON and in MessagePack, each still the bytes that were sent.

Texts are found by their delimiters and never decoded or looked into; the worker reads them. Work and memory are bounded
by the limits whatever the body holds: 32 MiB of `"",` would be eleven million items.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from shoal.errors import InvalidRequest, TooLarge
from shoal.gateway.formats import Format

__all__ = ["Items", "find_lone_surrogate", "split_documents", "split_items"]


class Items(msgspec.Struct):
    """The items of a request, each still as it was sent.

    Attributes:
        format: what the items are written in.
        raw: an entry an item, all texts or all lists of token ids.
        are_tokens: which of the two.
    """

    format: Format
    raw: list[bytes]
    are_tokens: bool

    def pack(self, start: int, stop: int) -> bytes:
        """Items `start` to `stop` as one array in `format`."""
        if self.format == "json":
            return b"[" + b",".join(self.raw[start:stop]) + b"]"
        return _encode_msgpack([msgspec.Raw(item) for item in self.raw[start:stop]])

    def value(self, index: int, wanted: Format) -> msgspec.Raw | str:
        """An item to be put into a reply in the format `wanted`: as it was sent, where that is its own."""
        if wanted == self.format:
            return msgspec.Raw(self.raw[index])
        decode = msgspec.json.decode if self.format == "json" else msgspec.msgpack.decode
        return decode(self.raw[index], type=str)


_encode_msgpack = msgspec.msgpack.Encoder().encode


def split_items(raw: msgspec.Raw, input_format: Format, *, max_items: int, max_item_bytes: int) -> Items:
    """What stands in `input`: one text, texts, one list of token ids, or lists of token ids.

    Sizes are those of the items as sent, escapes included.

    Raises:
        InvalidRequest: something else, or nothing; `param` is `input` or `input[i]`.
        TooLarge: beyond a limit.
    """
    split = _split_json if input_format == "json" else _split_msgpack
    try:
        items = split(_present(raw), max_items, max_item_bytes)
    except RecursionError:
        raise InvalidRequest("input is nested too deeply.", param="input") from None
    if len(items.raw) > max_items:
        raise _too_many(max_items)
    if max(map(len, items.raw)) > max_item_bytes:
        index = next(index for index, item in enumerate(items.raw) if len(item) > max_item_bytes)
        raise _item_too_large(index, len(items.raw[index]), max_item_bytes)
    return items


def _present(raw: msgspec.Raw) -> bytes:
    value = bytes(raw)
    if not value:
        raise InvalidRequest("The field input is missing.", param="input")
    return value


class _Document(msgspec.Struct):
    text: msgspec.Raw


_decode_documents = {
    "json": msgspec.json.Decoder(list[_Document]).decode,
    "msgpack": msgspec.msgpack.Decoder(list[_Document]).decode,
}


def split_documents(raw: msgspec.Raw, input_format: Format, *, max_items: int, max_item_bytes: int) -> Items:
    """Texts, or objects that hold one in `text` (all alike); the items are the texts.

    Raises:
        InvalidRequest, TooLarge: as in `split_items`.
    """
    value = _present(raw)
    kind_of = _json_kind if input_format == "json" else _msgpack_kind
    if (kind := kind_of(value)) != "a list":
        raise InvalidRequest(f"input is {kind}; it must be a list of texts or of objects with a text.", param="input")
    if not _are_objects(value, input_format):
        items = split_items(raw, input_format, max_items=max_items, max_item_bytes=max_item_bytes)
        if items.are_tokens:
            raise InvalidRequest("input holds token ids; it must hold texts or objects with a text.", param="input")
        return items
    # Half of them may be a text that reads "text".
    if input_format == "json" and value.count(b'"text"') > 2 * max_items:
        raise _too_many(max_items)
    if input_format == "msgpack" and _msgpack_array_length(value) > max_items:
        raise _too_many(max_items)
    try:
        documents = _decode_documents[input_format](value)
    except msgspec.ValidationError as error:
        raise _wrong_document(str(error)) from None
    texts = [bytes(document.text) for document in documents]
    for index, text in enumerate(texts):
        if (kind := kind_of(text)) != "a text":
            raise InvalidRequest(f"input[{index}].text is {kind}; it must be a text.", param=f"input[{index}].text")
        if len(text) > max_item_bytes:
            raise _item_too_large(index, len(text), max_item_bytes)
    if len(texts) > max_items:
        raise _too_many(max_items)
    return Items(input_format, texts, False)


def _are_objects(value: bytes, input_format: Format) -> bool:
    if input_format == "json":
        return value.startswith(b"[") and value[1:].lstrip(_BLANKS).startswith(b"{")
    return _msgpack_kind(value[_msgpack_head_bytes(value) :]) == "an object"


def _wrong_document(message: str) -> InvalidRequest:
    what, _, path = message.partition(" - at `$")
    param = "input" + path.rstrip("`").replace("[...]", "")
    return InvalidRequest(f"{param}: {what}.", param=param, hint='All documents are texts, or all are {"text": ...}.')


def _too_many(max_items: int) -> TooLarge:
    return TooLarge(f"input has more than {max_items} items, the limit.", param="input", hint="Send several requests.")


_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_MARK = b"\x7flone\x7f"


def find_lone_surrogate(body: bytes, field: str) -> int | None:
    """Which item of a malformed JSON body holds half of a surrogate pair; None if that is not its fault.

    The JSON decoder refuses such an escape without saying where it stands, so mark it and look for the mark.
    """
    marked = _ESCAPES.sub(lambda match: _MARK if match[1] else match[0], body)
    try:
        raw = msgspec.json.decode(marked, type=dict[str, msgspec.Raw])[field]
        split = split_documents if _are_objects(bytes(raw), "json") else split_items
        items = split(raw, "json", max_items=100_000, max_item_bytes=len(marked))
    except (msgspec.MsgspecError, KeyError, InvalidRequest, TooLarge, RecursionError):
        return None
    return next((index for index, item in enumerate(items.raw) if _MARK in item), None)


def _item_too_large(index: int, size_bytes: int, limit_bytes: int) -> TooLarge:
    return TooLarge(
        f"input[{index}] is {size_bytes} bytes as sent; the limit is {limit_bytes} bytes.", param=f"input[{index}]"
    )


def _wrong_kind(param: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"{param} is {what}; it must be a text or a list of token ids.", param=param)


def _wrong_id(param: str, says: str) -> InvalidRequest:
    return InvalidRequest(f"{param} {says}; token ids are integers, none below 0.", param=param)


def _is_empty() -> InvalidRequest:
    return InvalidRequest("input is an empty list; it must hold at least one text.", param="input")


# --- JSON. The decoder that skipped over the value has found it well-formed.

_BLANKS = b" \t\r\n"
_TOKEN_IDS = re.compile(rb"\[[\d\s,]*+\]")
_LEADING_IDS = re.compile(rb"\[\s*+(?:\d++\s*+,\s*+)*+")
_NEXT = re.compile(rb"\s*+,\s*+")


def _split_json(value: bytes, max_items: int, max_item_bytes: int) -> Items:
    if value.startswith(b'"'):
        return Items("json", [value], False)
    if not value.startswith(b"["):
        raise _wrong_kind("input", _json_kind(value))
    inner = value[1:65].lstrip(_BLANKS) or value[1:].lstrip(_BLANKS)
    if inner.startswith(b"]"):
        raise _is_empty()
    if inner.startswith(b'"'):
        return Items("json", _json_texts(value, max_items), False)
    if inner.startswith(b"["):
        return Items("json", _json_token_lists(value, max_items), True)
    if inner[:1] not in b"-0123456789":
        raise _wrong_kind("input[0]", _json_kind(inner))
    if len(value) > max_item_bytes:
        raise _item_too_large(0, len(value), max_item_bytes)
    _check_token_ids(value)
    return Items("json", [value], True)


def _json_texts(array: bytes, max_items: int) -> list[bytes]:
    """The strings of an array, found by their quotes; stops one after `max_items`."""
    # Escapes make way for as many plain bytes, so that every quote left is a delimiter and offsets hold.
    plain = array.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    pieces = plain.split(b'"', 2 * (max_items + 1))
    texts = []
    offset = len(pieces[0])
    for index in range(1, len(pieces) - 1, 2):
        end = offset + len(pieces[index]) + 2
        texts.append(array[offset:end])
        between = pieces[index + 1]
        if len(between) != 1 and (rest := between.strip(_BLANKS)) != b"," and rest != b"]":
            _explain_mixture(rest.lstrip(b"," + _BLANKS), len(texts), max_items)
        offset = end + len(between)
    return texts


def _explain_mixture(rest: bytes, index: int, max_items: int) -> None:
    """Refuse what follows item `index - 1` unless the items are too many anyway."""
    if index <= max_items:
        raise _wrong_kind(f"input[{index}]", f"{_json_kind(rest)} among texts")


def _json_token_lists(array: bytes, max_items: int) -> list[bytes]:
    """The lists of ids in an array of such lists; stops one after `max_items`."""
    lists: list[bytes] = []
    position = len(array) - len(array[1:].lstrip(_BLANKS))
    while len(lists) <= max_items:
        match = _TOKEN_IDS.match(array, position)
        if match is None:
            param = f"input[{len(lists)}]"
            if array[position : position + 1] == b"[":
                raise _wrong_id(param, f"holds {_first_that_is_no_id(array, position)[1]} among token ids")
            raise _wrong_kind(param, f"{_json_kind(array[position : position + 1])} among lists of token ids")
        if not match[0][1:-1].strip(_BLANKS):
            raise InvalidRequest(f"input[{len(lists)}] is an empty list of token ids.", param=f"input[{len(lists)}]")
        lists.append(match[0])
        comma = _NEXT.match(array, match.end())
        if comma is None:
            break
        position = comma.end()
    return lists


def _check_token_ids(value: bytes) -> None:
    if not _TOKEN_IDS.fullmatch(value):
        index, kind = _first_that_is_no_id(value, 0)
        raise _wrong_id(f"input[{index}]", f"is {kind}" + (" among token ids" if index else ""))


def _first_that_is_no_id(array: bytes, position: int) -> tuple[int, str]:
    """Place and kind of the first element, of the list that starts at `position`, that is no token id."""
    ids = _LEADING_IDS.match(array, position)
    leading = ids[0] if ids else b""
    culprit = array[position + len(leading) : position + len(leading) + 1]
    kind = _json_kind(culprit)
    if kind == "a number":
        kind = "a negative number" if culprit == b"-" else "a number that is no integer"
    return leading.count(b","), kind


def _json_kind(value: bytes) -> str:
    kinds = {b'"': "a text", b"[": "a list", b"{": "an object", b"n": "null", b"t": "a boolean", b"f": "a boolean"}
    return kinds.get(value[:1], "a number")


# --- MessagePack: lengths stand in front.


def _split_msgpack(value: bytes, max_items: int, max_item_bytes: int) -> Items:
    kind = _msgpack_kind(value)
    if kind == "a text":
        return Items("msgpack", [value], False)
    if kind != "a list":
        raise _wrong_kind("input", kind)
    length = _msgpack_array_length(value)
    if length == 0:
        raise _is_empty()
    first = _msgpack_kind(value[_msgpack_head_bytes(value) :])
    if first == "a number":
        if len(value) > max_item_bytes:
            raise _item_too_large(0, len(value), max_item_bytes)
        _check_msgpack_ids(value, "input[{}]", "is")
        return Items("msgpack", [value], True)
    if length > max_items:
        raise TooLarge(
            f"input has {length} items; the limit is {max_items}.", param="input", hint="Send several requests."
        )
    raws = [bytes(item) for item in msgspec.msgpack.decode(value, type=list[msgspec.Raw])]
    for index, item in enumerate(raws):
        kind = _msgpack_kind(item)
        if kind != first or kind not in ("a text", "a list"):
            others = "texts" if first == "a text" else "lists of token ids"
            raise _wrong_kind(f"input[{index}]", kind if index == 0 else f"{kind} among {others}")
        if kind == "a list":
            if len(item) > max_item_bytes:
                raise _item_too_large(index, len(item), max_item_bytes)
            _check_msgpack_ids(item, f"input[{index}]", "holds")
    return Items("msgpack", raws, first == "a list")


_decode_ids = msgspec.msgpack.Decoder(list[Annotated[int, msgspec.Meta(ge=0)]]).decode


def _check_msgpack_ids(value: bytes, param: str, verb: str) -> None:
    """Args: `param` with braces for the place of an id, where an id is an item of its own."""
    try:
        ids = _decode_ids(value)
    except msgspec.ValidationError:
        for index, raw in enumerate(msgspec.msgpack.decode(value, type=list[msgspec.Raw])):
            if (kind := _msgpack_id_kind(bytes(raw))) is not None:
                raise _wrong_id(param.format(index), f"{verb} {kind} among token ids") from None
        raise
    if not ids:
        raise InvalidRequest(f"{param} is an empty list of token ids.", param=param)


def _msgpack_id_kind(value: bytes) -> str | None:
    """What an element is, unless it is a token id."""
    kind = _msgpack_kind(value)
    if kind != "a number":
        return kind
    if value[0] in (0xCA, 0xCB):
        return "a number that is no integer"
    return "a negative number" if msgspec.msgpack.decode(value) < 0 else None


def _msgpack_kind(value: bytes) -> str:
    lead = value[0] if value else 0xC1
    if 0xA0 <= lead <= 0xBF or lead in (0xD9, 0xDA, 0xDB):
        return "a text"
    if 0x90 <= lead <= 0x9F or lead in (0xDC, 0xDD):
        return "a list"
    if lead <= 0x7F or lead >= 0xE0 or 0xCA <= lead <= 0xD3:
        return "a number"
    if 0x80 <= lead <= 0x8F or lead in (0xDE, 0xDF):
        return "an object"
    return {0xC0: "null", 0xC2: "a boolean", 0xC3: "a boolean"}.get(lead, "bytes")


def _msgpack_head_bytes(value: bytes) -> int:
    """Bytes in front of an array's first element."""
    return 5 if value[0] == 0xDD else 3 if value[0] == 0xDC else 1


def _msgpack_array_length(value: bytes) -> int:
    if value[0] <= 0x9F:
        return value[0] & 0x0F
    return int.from_bytes(value[1 : 3 if value[0] == 0xDC else 5], "big")
