"""Which profile stands when a search ends: what was proven is not lost to a search that did not try it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from shoal.catalog.profiles import Profile, save_profile, standing_profile
from shoal.errors import InvalidRequest
from shoal.tuner.ledger import Ledger
from shoal.tuner.report import verified
from shoal.tuner.space import Configuration, name_of

__all__ = ["Kept", "check_writable", "keep"]


class Kept(msgspec.Struct, frozen=True):
    """What lies in the profile's file in the end.

    Attributes:
        standing: the profile that was there before and stays; None if the new one was written.
    """

    file: Path
    standing: Profile | None = None


def check_writable(directory: Path) -> None:
    """Find out before the first trial what would be a pity after the last.

    Raises:
        InvalidRequest: profiles cannot be written there.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise InvalidRequest(
            f"Profiles cannot be written to {directory}: {error.strerror}.", hint="Give another --profiles."
        ) from None


def keep(profile: Profile, directory: Path, ledger: Ledger, *, is_replacing: bool = False) -> Kept:
    """Write a profile, unless it found nothing better and one with settings stands that this search did not race.

    Args:
        is_replacing: write it whatever stands there.
    """
    file, standing = standing_profile(profile, directory)
    if standing is None or not standing.settings or profile.settings or is_replacing:
        return Kept(save_profile(profile, directory))
    if not _was_tried(standing.settings, ledger):
        return Kept(file, standing)
    return Kept(save_profile(profile, directory))


def _was_tried(settings: Configuration, ledger: Ledger) -> bool:
    """Whether it raced against the default here, or did not even run."""
    fit = ledger.find("fit", settings)
    races = [entry for entry in ledger.entries if entry.stage.startswith(("rung", "final"))]
    return name_of(settings) in verified(races) or (fit is not None and fit.status != "measured")
