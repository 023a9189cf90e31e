"""What is written around a query and a document for a decoder that ranks: its own chat template, or a stated text.

A chat template is a program, so it is run here and once, in jinja's sandbox, on marks instead of texts; what stands
around the marks is the frame. A template that does anything else with a text than to put it somewhere is refused.
"""

from __future__ import annotations

import re
from typing import Any

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from shoal.catalog.files import ModelFiles, refusal
from shoal.catalog.spec import Frame

__all__ = ["read_frame", "stated_frame"]

_TEMPLATE, _TOKENIZER, _SETTINGS = "chat_template.jinja", "tokenizer_config.json", "sentence_bert_config.json"
_HINT = "State `reranker` in a shoal.yaml beside the model's files, with the frame that it was trained with."

Json = dict[str, Any]


def stated_frame(text: str, instruction: str, file: str) -> Frame:
    """A frame from a text that holds {query}, {document} and, if the model is told one, {instruction}.

    Raises:
        ModelRefused: the query is missing, or the document does not come last and once.
    """
    parts = _parts(re.split(r"(\{instruction\}|\{query\}|\{document\})", text), file, "reranker.frame")
    plain = tuple(instruction if part == "{instruction}" else part for part in parts)
    return Frame(plain, parts if "{instruction}" in parts else ())


def read_frame(files: ModelFiles, folder: str, instruction: str | None) -> Frame:
    """The frame that the model's chat template makes, as sentence-transformers has it render pairs.

    Args:
        instruction: what the model's files put into the place of a system message, None for nothing.

    Raises:
        ModelRefused: there is no template, or it is not one for a query and a document; names file and key.
    """
    file, template = _template(files, folder)
    reference = files.optional_object(folder + _SETTINGS)
    modality = (reference.get("modality_config") or {}).get("message") or {}
    is_structured = modality.get("format") == "structured"
    options = ((reference.get("processing_kwargs") or {}).get("chat_template") or {}) | _named_tokens(files, folder)

    def render(system: str | None) -> tuple[str, ...]:
        texts = {"system": system, "query": _mark("query"), "document": _mark("document")}
        messages = [
            {"role": role, "content": [{"type": "text", "text": text}] if is_structured else text}
            for role, text in texts.items()
            if text is not None
        ]
        rendered = _render(template, file, messages=messages, **options)
        return _parts(re.split(_MARK, rendered), file, "chat_template")

    instructed = render(_mark("instruction"))
    return Frame(render(instruction), instructed if "{instruction}" in instructed else ())


def _mark(name: str) -> str:
    """A text that shows if it was trimmed, escaped or changed in its case."""
    return f" \n<\ue000{name}&Aa\ue001>\n "


_MARK = re.compile(r" \n<\ue000(instruction|query|document)&Aa\ue001>\n ")


def _parts(pieces: list[str], file: str, key: str) -> tuple[str, ...]:
    """Texts and names by turns, checked: the document last but for what closes the frame."""
    names = [name.strip("{}") for name in pieces[1::2]]
    if "query" not in names or names.count("document") != 1 or names[-1] != "document":
        found = ", ".join(names) or "none"
        raise refusal(file, key, f"must hold a query, and then a document once; found, in this order: {found}.", _HINT)
    if any("\ue000" in text or "\ue001" in text for text in pieces[::2]):
        raise refusal(file, key, "does more with a text than to put it somewhere, which is not understood.", _HINT)
    parts = [f"{{{piece.strip('{}')}}}" if place % 2 else piece for place, piece in enumerate(pieces)]
    return (*(part for part in parts[:-1] if part), parts[-1])


def _template(files: ModelFiles, folder: str) -> tuple[str, str]:
    """The file's name and the template in it."""
    if files.has(folder + _TEMPLATE):
        try:
            return folder + _TEMPLATE, files.path(folder + _TEMPLATE).read_text("utf-8")
        except UnicodeDecodeError as error:
            raise refusal(folder + _TEMPLATE, "template", f"is not UTF-8: {error}.") from error
    file = folder + _TOKENIZER
    stated = files.optional_object(file).get("chat_template")
    if isinstance(stated, list):
        stated = next((entry.get("template") for entry in stated if entry.get("name") == "default"), None)
    if not isinstance(stated, str):
        raise refusal(file, "chat_template", "is missing: nothing says what stands around query and document.", _HINT)
    return file, stated


def _named_tokens(files: ModelFiles, folder: str) -> Json:
    """Special tokens by name, which templates may write."""
    stated = files.optional_object(folder + _TOKENIZER)
    named = {key: value for key, value in stated.items() if key.endswith("_token") and value is not None}
    return {key: value["content"] if isinstance(value, dict) else value for key, value in named.items()}


def _render(template: str, file: str, **values: Any) -> str:
    """As transformers renders it.

    Raises:
        ModelRefused: the template raises an error.
    """
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals["raise_exception"] = _raise
    try:
        return environment.from_string(template).render(**{"add_generation_prompt": False, **values})
    except (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"cannot be rendered for a query and a document: {type(error).__name__}: {error}."
        raise refusal(file, "chat_template", reason, _HINT) from error


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
