"""Decoders that rank: what their files must say, by file and key, and what a shoal.yaml can say instead."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from shoal.catalog import resolve
from shoal.catalog.spec import Frame
from shoal.errors import ModelRefused
from tiny_heads import CHAT_TEMPLATE, TinyHead

Build = Callable[[TinyHead], Path]
RECIPE = TinyHead("qwen3", "judge", max_length=160, config=(("num_key_value_heads", 2), ("head_dim", 16)))
TEMPLATE = "chat_template.jinja"
FRAME = "<|im_start|>system\nSay so.<|im_end|>\n<Do>: {instruction}\n<Query>: {query}\n<Text>: {document}<|im_end|>\n"


@pytest.fixture
def judge(tiny_head: Build, tmp_path: Path) -> Path:
    """A copy to be changed."""
    shutil.copytree(tiny_head(RECIPE), tmp_path / "model")
    return tmp_path / "model"


def change(directory: Path, file: str, **keys: Any) -> None:
    """Set keys of a JSON file; `...` removes one."""
    content = json.loads((directory / file).read_text()) | keys
    (directory / file).write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))


def test_a_template_becomes_the_text_around_a_pair(judge: Path) -> None:
    spec = resolve(str(judge))
    opening = '<|im_start|>system\nSay "yes" or "no".<|im_end|>\n<|im_start|>user\n<Do>: '
    rest = ("\n<Query>: ", "{query}", "\n<Text>: ", "{document}", "<|im_end|>\n<|im_start|>assistant\n")
    assert spec.frame == Frame((f"{opening}Find.\n<Query>: ", *rest[1:]), (opening, "{instruction}", *rest))
    assert spec.classifier is not None
    assert spec.classifier.labels == ("no", "yes")
    assert spec.labels == ()


def test_a_prompt_of_the_model_is_its_instruction(judge: Path) -> None:
    change(judge, "config_sentence_transformers.json", prompts={"web": "Search!"}, default_prompt_name="web")
    frame = resolve(str(judge)).frame
    assert frame is not None
    assert frame.parts[0].endswith("<Do>: Search!\n<Query>: ")


def test_a_template_may_stand_in_the_tokenizers_config_and_take_lists_of_contents(judge: Path) -> None:
    (judge / TEMPLATE).unlink()
    of_lists = CHAT_TEMPLATE.replace('map(attribute="content")', "map(attribute='content') | map('first')").replace(
        "{{ query }}", "{{ query.text }}{{ eos_token }}"
    )
    of_lists = of_lists.replace("{{ document }}", "{{ document.text }}").replace(
        'default("Find.")', 'default({"text": 1})'
    )
    of_lists = of_lists.replace("{{ told }}", "{{ told.text }}")
    change(judge, "tokenizer_config.json", chat_template=[{"name": "default", "template": of_lists}])
    logits = {"method": "forward", "method_output_name": "logits"}
    modalities = {"text": logits, "message": {**logits, "format": "structured"}}
    change(judge, "sentence_bert_config.json", modality_config=modalities)
    frame = resolve(str(judge)).frame
    assert frame is not None
    assert frame.parts[-4:-1] == ("{query}", "<|endoftext|>\n<Text>: ", "{document}")


REFUSED_TEMPLATES = {
    "no document": (CHAT_TEMPLATE.replace("{{ document }}", ""), "must hold a query, and then a document once"),
    "two documents": (CHAT_TEMPLATE.replace("{{ query }}", "{{ query }}{{ document }}"), "a document once"),
    "query behind": (CHAT_TEMPLATE.replace("<Query>: {{ query }}", "") + "{{ query }}", "a document once"),
    "trimmed": (CHAT_TEMPLATE.replace("{{ document }}", "{{ document | trim }}"), "a document once"),
    "a copy in capitals": (
        CHAT_TEMPLATE.replace("{{ query }}", "{{ query }}{{ query | upper }}"),
        "does more with a text",
    ),
    "generation only": ("{{ messages[0].content }}{{ raise_exception('no such role') }}", "no such role"),
    "broken": ("{% if %}", "TemplateSyntaxError"),
    "out of the sandbox": ("{{ messages.__class__.__mro__ }}", "SecurityError"),
}


@pytest.mark.parametrize("case", REFUSED_TEMPLATES)
def test_a_template_that_is_no_frame_is_refused(case: str, judge: Path) -> None:
    template, reason = REFUSED_TEMPLATES[case]
    (judge / TEMPLATE).write_text(template)
    with pytest.raises(ModelRefused, match=reason) as caught:
        resolve(str(judge))
    assert caught.value.param == f"{TEMPLATE}:chat_template"


def test_a_missing_template_is_refused(judge: Path) -> None:
    (judge / TEMPLATE).unlink()
    with pytest.raises(ModelRefused, match="nothing says what stands around") as caught:
        resolve(str(judge))
    assert caught.value.param == "tokenizer_config.json:chat_template"


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("1_LogitScore/config.json", {"true_token_id": None}, "1_LogitScore/config.json:true_token_id"),
    ("1_LogitScore/config.json", {"false_token_id": "no"}, "1_LogitScore/config.json:false_token_id"),
    ("1_LogitScore/config.json", {"temperature": 2}, "1_LogitScore/config.json:temperature"),
    ("1_LogitScore/config.json", {"true_token_id": 10**6}, "model.safetensors:lm_head.weight"),
    ("config.json", {"final_logit_softcapping": 30.0}, "config.json:final_logit_softcapping"),
    ("sentence_bert_config.json", {"modality_config": {"text": {}}}, "sentence_bert_config.json:modality_config"),
    (
        "config_sentence_transformers.json",
        {"model_type": "SparseEncoder"},
        "config_sentence_transformers.json:model_type",
    ),
]


@pytest.mark.parametrize(("file", "keys", "param"), REFUSED)
def test_what_is_not_understood_is_refused_by_file_and_key(
    file: str, keys: dict[str, Any], param: str, judge: Path
) -> None:
    change(judge, file, **keys)
    with pytest.raises(ModelRefused) as caught:
        resolve(str(judge))
    assert caught.value.param == param


def test_weights_without_words_are_refused(judge: Path) -> None:
    file = judge / "model.safetensors"
    tensors = load_file(file)
    del tensors["lm_head.weight"]
    save_file(tensors, file)
    with pytest.raises(ModelRefused) as caught:
        resolve(str(judge))
    assert caught.value.param == "model.safetensors:lm_head.weight"


def test_a_causal_model_of_which_nothing_is_said_is_refused(judge: Path) -> None:
    (judge / "modules.json").unlink()
    with pytest.raises(ModelRefused, match="embeds or ranks") as caught:
        resolve(str(judge))
    assert caught.value.param == "config.json:architectures"
    assert "shoal.yaml" in (caught.value.hint or "")


def test_a_shoal_yaml_states_what_the_files_leave_out(judge: Path) -> None:
    """As the catalog does for Qwen3-Reranker."""
    of_files = resolve(str(judge))
    for file in ("modules.json", TEMPLATE):
        (judge / file).unlink()
    facts = {"reranker": {"frame": FRAME, "instruction": "Find."}}
    (judge / "shoal.yaml").write_text(json.dumps(facts))
    spec = resolve(str(judge))
    assert spec.classifier == of_files.classifier
    assert spec.frame is not None
    assert "".join(spec.frame.parts) == FRAME.replace("{instruction}", "Find.")
    assert "".join(spec.frame.instructed) == FRAME
    facts["reranker"]["yes_word"] = "oui-da"
    (judge / "shoal.yaml").write_text(json.dumps(facts))
    with pytest.raises(ModelRefused, match="'oui-da', which reranker names"):
        resolve(str(judge))


def test_qwen3_reranker_is_known(judge: Path) -> None:
    """The catalog's frame, under the tokens that its tokenizer has."""
    from shoal.catalog.entries import find_entry

    entry = find_entry("Qwen/Qwen3-Reranker-0.6B")
    assert entry is not None
    assert entry.reranker is not None
    assert entry.reranker.frame.endswith("{document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert entry.reranker.frame.count("{instruction}") == entry.reranker.frame.count("{query}") == 1


def test_yes_alone_is_the_score(judge: Path) -> None:
    """As sentence-transformers' LogitScore without a false token."""
    from families.test_judges_parity import QUERY, Served
    from shoal.types import RerankOptions
    from tiny_heads import cross_scores, load_cross_encoder

    change(judge, "1_LogitScore/config.json", false_token_id=None)
    texts = ["Paris", "a longer text about cats", ""]
    expected = cross_scores(load_cross_encoder(judge), QUERY, texts, activation_fn=torch.nn.Identity())
    scores = Served(judge).scores(texts, RerankOptions(QUERY, raw_scores=True))
    np.testing.assert_allclose(scores, expected, atol=1e-4)
