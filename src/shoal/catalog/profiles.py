"""Profiles: with which settings a model is served best on a kind of machine, as `shoal tune` proved it.

A profile is a small JSON file. The package carries some (`tuned/`), a user's own lie in `profiles` of the state
directory and come first. The nearest one is used, and what is not the same is said.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from shoal.settings import state_directory

__all__ = [
    "Figures",
    "Match",
    "Profile",
    "find_profile",
    "nearest",
    "profiles_directory",
    "save_profile",
    "standing_profile",
    "usable_cores",
]

logger = logging.getLogger(__name__)


class Figures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was measured when the profile was made.

    Attributes:
        objective, unit: what the figures are.
        predicted, verified: of these settings.
        default: of the default settings, in the same minutes.
        ratio, low, high: verified over default, with its 99 % interval.
        p1_cosine: to float32, of the worst probe in a hundred.
        overlap: share of nearest neighbours that are float32's too.
    """

    objective: str
    unit: str
    predicted: float
    verified: float
    default: float
    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0
    p1_cosine: float = 1.0
    overlap: float = 1.0


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings for a key, and the proof.

    Attributes:
        model, revision: what it is for; revision "" where the model has none.
        runtime, version: the runtime and its library's version.
        device: as the runtime names it.
        cores: that the process may use; 0 where nobody noted it.
        settings: worker settings, and options of the runtime, that differ from the default; {} says that nothing
            better than the default was found.
        a_s, c_s: cost of a batch, S = a + c * tokens, with these settings.
        figures: what was measured.
        date: ISO 8601.
        ledger: SHA-256 of the ledger that led to it.
    """

    model: str
    runtime: str
    version: str
    device: str
    settings: dict[str, Any]
    a_s: float
    c_s: float
    figures: Figures
    date: str
    ledger: str
    revision: str = ""
    cores: int = 0

    @property
    def name(self) -> str:
        """How replies and model lists call it."""
        return f"{self.model.rpartition('/')[2]}@{self.date}.{self.ledger[:8]}"


class Match(msgspec.Struct, frozen=True):
    """A profile, and in what it was made for something else; "" for nothing."""

    profile: Profile
    note: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """What to apply: no number format that was proved on another device, no threads for other cores."""
        left_out = {"precision"} if "device" in self.note else set()
        if "cores" in self.note:
            left_out |= {"threads", "streams", "tokenizer_threads"}
        return {key: value for key, value in self.profile.settings.items() if key not in left_out}


def nearest(
    profiles: Iterable[Profile], *, model: str, revision: str, runtime: str, version: str, device: str, cores: int
) -> Match | None:
    """The profile to use: of this model and runtime, with most of the rest the same; of equals the first."""
    best: tuple[int, Match] | None = None
    for profile in profiles:
        if (profile.model, profile.runtime) != (model, runtime):
            continue
        differing = [
            f"{name} {theirs or 'unknown'}"
            for name, theirs, ours in (
                ("device", profile.device, device),
                ("cores", profile.cores or cores, cores),
                ("revision", profile.revision, revision),
                ("version", profile.version, version),
            )
            if theirs != ours
        ]
        distance = sum(_DISTANCES[text.partition(" ")[0]] for text in differing)
        if best is None or distance < best[0]:
            note = f"made for {', '.join(differing)}" if differing else ""
            best = distance, Match(profile, note)
    return best[1] if best else None


_DISTANCES = {"device": 8, "cores": 4, "revision": 2, "version": 1}


def find_profile(*, model: str, revision: str, runtime: str, version: str, device: str, cores: int) -> Match | None:
    """The nearest of the user's own profiles and those of the package."""
    return nearest(
        (*_read_directory(profiles_directory()), *_shipped()),
        model=model,
        revision=revision,
        runtime=runtime,
        version=version,
        device=device,
        cores=cores,
    )


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def profiles_directory() -> Path:
    """Where the user's own profiles lie."""
    return state_directory() / "profiles"


def save_profile(profile: Profile, directory: Path) -> Path:
    """Write a profile, in place of one with the same key; returns its file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = _file_of(profile, directory)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n")
    return path


def standing_profile(profile: Profile, directory: Path) -> tuple[Path, Profile | None]:
    """The file that `save_profile` would write, and the profile that lies there already."""
    path = _file_of(profile, directory)
    return path, _read(path) if path.exists() else None


def _file_of(profile: Profile, directory: Path) -> Path:
    cores = f"{profile.cores} cores" if profile.cores else ""
    key = "--".join(filter(None, (profile.model.rpartition("/")[2], profile.runtime, profile.device, cores)))
    return directory / ("".join(c if c.isalnum() or c in "-._" else "-" for c in key) + ".json")


@functools.cache
def _shipped() -> tuple[Profile, ...]:
    return _read_directory(Path(str(files("shoal.catalog"))) / "tuned")


def _read_directory(directory: Path) -> tuple[Profile, ...]:
    if not directory.is_dir():
        return ()
    return tuple(profile for path in sorted(directory.glob("*.json")) if (profile := _read(path)) is not None)


def _read(path: Path) -> Profile | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Profile)
    except (OSError, msgspec.MsgspecError) as error:
        logger.warning("%s is no profile, and is passed over: %s", path, error)
        return None
