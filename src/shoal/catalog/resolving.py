"""From a name to a model: catalog id, hub id, directory or package. Decides where to look, and in which order."""

from __future__ import annotations

from pathlib import Path

import msgspec

from shoal.catalog.entries import Entry, entries, find_entry
from shoal.catalog.fake import fake_spec
from shoal.catalog.files import MissingFile
from shoal.catalog.hub import cached_snapshot, download_snapshot, is_hub_id, snapshot_revision
from shoal.catalog.names import near_names
from shoal.catalog.own_code import read_trusted_code
from shoal.catalog.packages import package_directory, require_hashes
from shoal.catalog.recognize import recognize
from shoal.catalog.spec import ModelSpec
from shoal.errors import UnknownModel
from shoal.settings import ModelSettings, hub_is_offline

__all__ = ["local_names", "pull", "resolve"]

_DEFAULTS = ModelSettings()


def resolve(name: str, settings: ModelSettings = _DEFAULTS) -> ModelSpec:
    """The model of a name, its files at hand and understood.

    A name is, in this order: `fake:NAME`; `package:NAME`; a directory, if it looks like a path; a subdirectory of
    `settings.models_directory`; a catalog id or alias; a hub id. The last two may end in `@revision` and are looked for
    in the hub's cache, then in the package that the catalog names, then on the hub.

    Raises:
        UnknownModel: nothing of that name; says which names are near.
        MissingFile: offline, and one file is not in the cache; names it.
        ModelRefused: the files are not fully understood; names file and key.
        NotReady: the hub cannot be reached.
    """
    if name.startswith("fake:"):
        return fake_spec(name.removeprefix("fake:"))
    if name.startswith("package:"):
        return _from_package(name.removeprefix("package:"), settings)
    directory = _directory(name, settings)
    if directory is not None:
        return _from_directory(name, directory, settings)
    plain, _, revision = name.partition("@")
    entry = find_entry(plain)
    if entry is None and not is_hub_id(plain):
        raise _unknown(name, settings)
    return _from_hub(entry or Entry(id=plain), revision, settings)


def pull(name: str, settings: ModelSettings = _DEFAULTS) -> ModelSpec:
    """As `resolve`, but what comes from the hub is brought up to date first."""
    plain, _, revision = name.partition("@")
    entry = find_entry(plain)
    if _directory(name, settings) is not None or (entry is None and not is_hub_id(plain)):
        return resolve(name, settings)
    return _downloaded(entry or Entry(id=plain), revision, settings)


def local_names(settings: ModelSettings = _DEFAULTS) -> list[str]:
    """Names of the models in `settings.models_directory`."""
    if not settings.models_directory:
        return []
    root = Path(settings.models_directory).expanduser()
    if not root.is_dir():
        raise UnknownModel(f"SHOAL_MODELS_DIRECTORY is {settings.models_directory!r}, which is not a directory.")
    markers = [
        path for pattern in ("*/modules.json", "*/*/modules.json", "*/config.json") for path in root.glob(pattern)
    ]
    return sorted({str(marker.parent.relative_to(root)) for marker in markers})


def _directory(name: str, settings: ModelSettings) -> Path | None:
    """The directory that a name means, or None if it does not mean one."""
    if name.startswith(("/", "./", "../", "~")) or name in (".", ".."):
        path = Path(name).expanduser()
        if not path.is_dir():
            raise UnknownModel(f"{name!r} is not a directory.")
        return path
    if settings.models_directory and ".." not in Path(name).parts:
        path = Path(settings.models_directory).expanduser() / name
        if path.is_dir():
            return path
    return None


def _from_directory(name: str, directory: Path, settings: ModelSettings) -> ModelSpec:
    is_path = name.startswith(("/", ".", "~"))
    id = directory.resolve().name if is_path else name
    spec = recognize(directory, id, ignored_keys=_ignored_keys(settings))
    aliases = spec.aliases + ((name,) if is_path else ())
    return msgspec.structs.replace(spec, source=f"directory:{spec.directory}", aliases=aliases)


def _from_package(package: str, settings: ModelSettings) -> ModelSpec:
    entry = next((entry for entry in entries() if entry.package == package), None)
    spec = _packaged(package, entry or Entry(id=package), settings)
    if spec is None:
        raise UnknownModel(f"Python package {package!r} is not installed.", hint="Install it with pip.")
    return spec


def _packaged(package: str, facts: Entry, settings: ModelSettings) -> ModelSpec | None:
    directory = package_directory(package) if package else None
    if directory is None:
        return None
    require_hashes(directory, facts.sha256)
    spec = recognize(directory, facts.id, ignored_keys=_ignored_keys(settings), entry=facts)
    return msgspec.structs.replace(spec, source=f"package:{package}")


def _from_hub(facts: Entry, revision: str, settings: ModelSettings) -> ModelSpec:
    wanted = revision or facts.revision
    cached = cached_snapshot(facts.hub_id, wanted)
    if cached is None and not revision and facts.revision:
        # The catalog's commit is what is fetched; one that lies here already is not fetched again for it.
        cached = cached_snapshot(facts.hub_id)
    missing: MissingFile | None = None
    if cached is not None:
        try:
            return _recognize_snapshot(facts, cached, settings)
        except MissingFile as error:
            missing = error
    if not revision:
        packaged = _packaged(facts.package, facts, settings)
        if packaged is not None:
            return packaged
    if not hub_is_offline():
        return _downloaded(facts, revision, settings)
    if missing is not None and cached is not None:
        raise MissingFile(missing.file, cached, hint="HF_HUB_OFFLINE is set, so it is not fetched.") from missing
    raise UnknownModel(
        f"Model {facts.id!r}{'@' + wanted if wanted else ''} is not in the hub's cache, and HF_HUB_OFFLINE is set.",
        hint="Fetch it while online: shoal models pull " + facts.id,
    )


def _downloaded(facts: Entry, revision: str, settings: ModelSettings) -> ModelSpec:
    wanted = revision or facts.revision
    takes_code = any(code.startswith(f"{facts.hub_id}@") for code in read_trusted_code(settings.trusted_code))
    try:
        return _recognize_snapshot(facts, download_snapshot(facts.hub_id, wanted, takes_code=takes_code), settings)
    except MissingFile as error:
        missing = error
    if missing.file.endswith("model.safetensors"):
        try:
            directory = download_snapshot(facts.hub_id, wanted, takes_torch_files=True, takes_code=takes_code)
            return _recognize_snapshot(facts, directory, settings)
        except MissingFile as error:
            missing = error
    if revision or not facts.revision:
        raise missing
    hint = f"The catalog pins commit {facts.revision[:7]}; for the newest one: {facts.id}@main"
    raise MissingFile(missing.file, missing.directory, hint=hint) from missing


def _recognize_snapshot(facts: Entry, directory: Path, settings: ModelSettings) -> ModelSpec:
    revision = snapshot_revision(directory)
    spec = recognize(
        directory,
        facts.id,
        ignored_keys=_ignored_keys(settings),
        entry=facts,
        origin=f"{facts.hub_id}@{revision}" if revision else "",
        trusted_code=read_trusted_code(settings.trusted_code),
    )
    return msgspec.structs.replace(spec, source=f"hub:{facts.hub_id}", revision=revision)


def _ignored_keys(settings: ModelSettings) -> frozenset[str]:
    return frozenset(key.strip() for key in settings.ignore_config_keys.split(",") if key.strip())


def _unknown(name: str, settings: ModelSettings) -> UnknownModel:
    known = [*local_names(settings), *(known for entry in entries() for known in (entry.id, *entry.aliases))]
    near = near_names(name, known)
    hint = f"Did you mean {' or '.join(near)}?" if near else "See: shoal models list"
    return UnknownModel(f"Model {name!r} is not known.", param="model", hint=hint)
