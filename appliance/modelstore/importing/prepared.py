"""Builds on disk: which file is loaded for a content on a kind of processor, and the prepared forms that make loading
quick.

A prepared form lives in `prepared/<fingerprint>/<build id>/` with a `form.json` that is written last; it is valid for
one fingerprint (library versions and device) only. `open_build` reads a table in memory and the disk, never the
database.
"""

import asyncio
import hashlib
import json
import os
import uuid
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from appliance.domain.catalogue import Model, Variant
from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.names import build_id
from appliance.log import get as get_log
from appliance.modelstore.ports import Measure
from appliance.modelstore.store.blobs import Blobs
from appliance.modelstore.store.disk import file_size, full_disk_is_typed, remove, require_free, sync_file, sync_folder

log = get_log("builds")
MARK = "form.json"
UNFINISHED = "tmp-"
_ROOM_FACTOR = 2.5
"""Times the plain file, that making a form takes on the disk: its weights are written, and then aligned in a copy."""


@dataclass(frozen=True, slots=True)
class Build:
    """A content for a kind of processor.

    `is_tried` is true when a prepared form was made or found impossible for this machine.
    """

    id: str
    content_sha256: str
    processor: ProcessorDescription
    size_bytes: int
    form: PreparedForm | None = None
    is_tried: bool = False
    resident_bytes: int | None = None
    peak_bytes: int | None = None
    asleep_bytes: int | None = None
    unreviewed: frozenset[str] = frozenset()
    """Variants on it whose profile does not say whether they are harmless: an earlier version measured them."""


class Builds:
    """The table of builds, kept by the importer and read by the loader."""

    def __init__(self, folder: Path, blobs: Blobs, processors: Sequence[ProcessorDescription]) -> None:
        self._folder = folder
        self._blobs = blobs
        self._kinds = {one.kind: one for one in reversed(processors)}
        """The first processor of a kind stands for all of it."""
        self._builds: dict[str, Build] = {}
        self._away: frozenset[str] = frozenset()
        """Kinds that take no runs now."""
        self._has_changed = asyncio.Event()

    def start(self, models: Iterable[Model]) -> None:
        """Fill the table from the store's models and remove forms that are unfinished, stale or of nobody's. Blocks."""
        for model in models:
            for variant in model.variants:
                self.put(variant)
        self._remove_stale()

    def put(self, variant: Variant) -> None:
        """Add a variant's builds, or take over what was measured of it.

        Rungs share their content, so the largest counts.
        """
        if not variant.content_sha256:
            return
        for processor in self._kinds.values():
            build = self._register(variant.content_sha256, processor, variant.size_bytes)
            profile = next((one for one in variant.profiles if one.processor == processor.name), None)
            if profile is not None:
                is_unreviewed = profile is variant.profile and profile.hazards is None
                is_new = is_unreviewed and variant.id not in build.unreviewed
                self._builds[build.id] = replace(
                    build,
                    unreviewed=build.unreviewed - {variant.id} | ({variant.id} if is_unreviewed else set()),
                    resident_bytes=max(profile.resident_bytes, build.resident_bytes or 0),
                    peak_bytes=max(profile.peak_bytes, build.peak_bytes or 0),
                    asleep_bytes=_larger(profile.asleep_bytes, build.asleep_bytes),
                )
                if is_new:
                    self._has_changed.set()

    async def forget(self, contents: Collection[str]) -> None:
        """Drop the builds of contents that have left the disk; fits `OnRemoved`."""
        gone = [build for build in self._builds.values() if build.content_sha256 in contents]
        for build in gone:
            del self._builds[build.id]
            await asyncio.to_thread(remove, self._home(build))

    async def open_build(self, build_id: str) -> PreparedForm:
        """The prepared form, or the plain file when none is valid for this machine.

        Raises: LoadFailed when the build is unknown or its content missing or damaged.
        """
        build = self._builds.get(build_id)
        if build is None:
            raise LoadFailed(build_id=build_id, reason="the store has no such build")
        if build.form is not None:
            if await asyncio.to_thread(_is_whole, Path(build.form.path).parent):
                return self._measured(build, build.form)
            log.warning("prepared form damaged", build_id=build_id)
            self._builds[build_id] = build = replace(build, form=None, is_tried=False)
            self._has_changed.set()
        path = await asyncio.to_thread(self._blobs.path, build.content_sha256)
        plain = PreparedForm(build_id, str(path), build.size_bytes, optimised=False, kind=build.processor.kind)
        return self._measured(build, plain)

    def distrust(self, build_id: str) -> None:
        """A prepared form is not what it was, or will not be: from now on the plain file serves, also after a restart,
        until a new form is made in the background. What has mapped the old one keeps it.
        """
        build = self._builds.get(build_id)
        if build is None or build.form is None:
            return
        with suppress(OSError):
            (self._home(build) / MARK).unlink()
        self._builds[build_id] = replace(build, form=None, is_tried=False)
        self._has_changed.set()

    def unmeasured(self) -> list[Build]:
        """Builds whose prepared form has not been tried on this machine, or that were never reviewed; in the order of
        the table. None of kinds that take no runs now: it would fail, and be given up.
        """
        self._has_changed.clear()
        return [
            build
            for build in self._builds.values()
            if (not build.is_tried or build.unreviewed) and build.processor.kind not in self._away
        ]

    def untried(self, content_sha256: str) -> list[Build]:
        """Builds of a content whose prepared form has not been tried, of kinds that take runs now."""
        builds = (self._builds.get(build_id(content_sha256, kind)) for kind in self._kinds if kind not in self._away)
        return [build for build in builds if build is not None and not build.is_tried]

    def leave_out(self, kinds: frozenset[str]) -> None:
        """These kinds of processors take no runs now, all others do."""
        self._away = kinds
        self._has_changed.set()

    async def wait_unmeasured(self) -> None:
        """Return when there may be more of them than when they were last asked for."""
        await self._has_changed.wait()

    async def prepare(
        self, measure: Measure, content_sha256: str, source: Path, processor: ProcessorDescription
    ) -> PreparedForm:
        """A form to try: the prepared one that is there, or a new one made from the file `source`, or the plain file.

        A new one serves nobody until `keep`; `reject` gives it up for this machine; end with `discard` in any case.
        Raises: StorageFull.
        """
        build = self._register(content_sha256, processor, await asyncio.to_thread(file_size, source))
        plain = PreparedForm(build.id, str(source), build.size_bytes, optimised=False, kind=processor.kind)
        if build.is_tried:
            return build.form or plain
        target = self._home(build).parent / f"{UNFINISHED}{uuid.uuid4().hex}"
        await asyncio.to_thread(target.mkdir, parents=True)
        try:
            form = await measure.prepare(str(source), str(target), processor.name)
            if form is None:  # perhaps only for now
                await asyncio.to_thread(require_free, target, int(_ROOM_FACTOR * build.size_bytes), 0)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(remove, target))
            raise
        if form is not None:
            return replace(form, build_id=build.id)
        await self._settle(build.id, target, None)
        return plain

    async def keep(self, form: PreparedForm) -> None:
        """The form has loaded and run: from here on it serves. Raises: StorageFull."""
        if form.optimised and not self._builds[form.build_id].is_tried:
            await self._settle(form.build_id, Path(form.path).parent, form)

    async def reject(self, form: PreparedForm, reason: str) -> None:
        """The form does not load or run here, so the plain file serves. Raises: StorageFull."""
        log.warning("prepared form given up", build_id=form.build_id, reason=reason)
        target = self._home(self._builds[form.build_id]).parent / f"{UNFINISHED}{uuid.uuid4().hex}"
        await asyncio.to_thread(target.mkdir, parents=True)
        await self._settle(form.build_id, target, None)

    async def discard(self, form: PreparedForm) -> None:
        """Remove what is left of a form that was neither kept nor there before."""
        folder = Path(form.path).parent
        if form.optimised and folder.name.startswith(UNFINISHED):
            await asyncio.to_thread(remove, folder)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _settle(self, build_id: str, folder: Path, form: PreparedForm | None) -> None:
        """What was found out about a build goes to the disk, then into the table."""
        try:
            await asyncio.to_thread(_seal, folder, form, self._home(self._builds[build_id]))
        finally:
            await asyncio.shield(asyncio.to_thread(remove, folder))
        self._builds[build_id] = self._with_form(self._builds[build_id])

    def _register(self, content_sha256: str, processor: ProcessorDescription, size_bytes: int) -> Build:
        id = build_id(content_sha256, processor.kind)
        if id not in self._builds:
            build = Build(id, content_sha256, processor, size_bytes)
            self._builds[id] = self._with_form(build)
            self._has_changed.set()
        return self._builds[id]

    def _with_form(self, build: Build) -> Build:
        """The build with what `form.json` says of it; a damaged form counts as not tried."""
        home = self._home(build)
        mark = _mark(home)
        if mark is None or not _has_files(home, mark):
            return replace(build, is_tried=False, form=None)
        if mark["path"] is None:
            return replace(build, is_tried=True, form=None)
        form = PreparedForm(
            build.id, str(home / mark["path"]), mark["size_bytes"], mark["optimised"], kind=build.processor.kind
        )
        return replace(build, is_tried=True, form=form)

    def _measured(self, build: Build, form: PreparedForm) -> PreparedForm:
        return replace(
            form,
            resident_bytes=build.resident_bytes,
            peak_bytes=build.peak_bytes,
            asleep_bytes=build.asleep_bytes,
        )

    def _home(self, build: Build) -> Path:
        return self._folder / fingerprint_folder(build.processor.fingerprint) / build.id

    def _remove_stale(self) -> None:
        current = {fingerprint_folder(one.fingerprint) for one in self._kinds.values()}
        for folder in self._folder.iterdir():
            if folder.name not in current:
                remove(folder)
                continue
            for home in folder.iterdir():
                if home.name not in self._builds:
                    remove(home)


def _larger(one: int | None, other: int | None) -> int | None:
    return max(one, other) if one is not None and other is not None else one if other is None else other


def fingerprint_folder(fingerprint: str) -> str:
    """A fingerprint as the name of a folder."""
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:16]


def _seal(target: Path, form: PreparedForm | None, home: Path) -> None:
    """Sync what was written, say in `form.json` what it is, and move it to its place. Raises: StorageFull."""
    files = {file.name: file.stat().st_size for file in target.iterdir()}
    mark: dict[str, Any] = {"files": files, "path": None if form is None else os.path.relpath(form.path, target)}
    if form is not None:
        mark |= {"size_bytes": form.size_bytes, "optimised": form.optimised}
    with full_disk_is_typed():
        for name in files:
            sync_file(target / name)
        (target / MARK).write_text(json.dumps(mark))
        sync_file(target / MARK)
        remove(home)
        os.rename(target, home)
        sync_folder(home.parent)


def _is_whole(home: Path) -> bool:
    """Whether every file has the size it was sealed with; hashing would cost more than the quick load saves."""
    mark = _mark(home)
    return mark is not None and _has_files(home, mark)


def _has_files(home: Path, mark: dict[str, Any]) -> bool:
    try:
        return all(os.stat(home / name).st_size == size for name, size in mark["files"].items())
    except OSError:
        return False


def _mark(home: Path) -> dict[str, Any] | None:
    try:
        mark: dict[str, Any] = json.loads((home / MARK).read_text())
    except (OSError, ValueError):
        return None
    return mark
