"""From a model's files to a transformers encoder in memory: tensors alone, no network, no code but what is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from shoal.catalog.spec import ModelSpec
from shoal.errors import ModelRefused
from shoal.runtimes.torch.static import load_static

__all__ = ["load_encoder"]


def load_encoder(spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> Any:
    """The encoder of a model on its device, ready for inference.

    Raises:
        ModelRefused: transformers does not know the architecture, or weights are missing, left over or misshapen.
    """
    if spec.family == "static":
        return load_static(spec, device, dtype)
    directory = Path(spec.weights[0]).parent if spec.weights else Path(spec.directory)
    _quieten()
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": bool(spec.code)}
    elsewhere = [code for code in spec.code if code != f"{spec.source.removeprefix('hub:')}@{spec.revision}"]
    if elsewhere:  # code of the model's own repository lies in the directory, at the commit that is its name
        options["code_revision"] = elsewhere[0].partition("@")[2]
    try:
        config = transformers.AutoConfig.from_pretrained(directory, **options)
        # T5 and the like would come with a decoder, which nobody asks.
        has_encoder_alone = type(config) in transformers.MODEL_FOR_TEXT_ENCODING_MAPPING
        family = transformers.AutoModelForTextEncoding if has_encoder_alone else transformers.AutoModel
        model, findings = family.from_pretrained(
            directory,
            config=config,
            dtype=dtype,
            use_safetensors=all(file.endswith(".safetensors") for file in spec.weights),
            weights_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            **options,
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelRefused(f"{directory}: transformers cannot load it: {error}") from error
    _refuse_gaps(directory, model, findings)
    model.config.use_cache = False
    return model.eval().requires_grad_(False).to(device)


def _quieten() -> None:
    """What stands on a host's stderr is logged as a warning; progress is none."""
    speech: Any = transformers.utils.logging
    speech.set_verbosity_error()
    speech.disable_progress_bar()


def _refuse_gaps(directory: Path, model: Any, findings: dict[str, Any]) -> None:
    """A pooler may be missing, as nobody asks it; heads may be left over; the encoder's own tensors may not."""
    own = {name for name, _ in model.named_children()} - _UNUSED
    problems = {
        "missing": [name for name in findings["missing_keys"] if _first(name) not in _UNUSED],
        "left over": [name for name in findings["unexpected_keys"] if _is_weight_of(own, name)],
        "misshapen": [str(found[0]) for found in findings["mismatched_keys"]],
    }
    for problem, names in problems.items():
        if names:
            raise ModelRefused(f"{directory}: weights are {problem}: {', '.join(sorted(names)[:5])}")


_UNUSED = frozenset(("pooler",))


def _first(name: str) -> str:
    return name.partition(".")[0]


def _is_weight_of(own: set[str], name: str) -> bool:
    """Whether a left-over tensor belongs to one of the model's own parts; stored position numbers are none of them."""
    return _first(name) in own and not name.endswith("position_ids")
