"""Builds on disk: which file is loaded for a content on a kind of processor, and the prepared forms that make loading
quick.

A prepared form lives in `prepared/<fingerprint>/<build id>/` with a `form.json` that is written last; it is valid for
one fingerprint (library versions and device) only. The parts of a network that is cut are builds, too; their files lie
in `prepared/parts/<content>/`, and are cut anew when they or the kinds of processors are no longer what they were.
`open_build` reads a table in memory and the disk, never the database.
"""

import asyncio
import hashlib
import json
import os
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ParamSpec

from appliance.domain.catalogue import Model, Variant
from appliance.domain.errors import LoadFailed
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.jobs import GivenUp
from appliance.domain.names import build_id, content_of, part_build_id
from appliance.domain.parts import Cut
from appliance.log import get as get_log
from appliance.modelstore.ports import Measure
from appliance.modelstore.store.blobs import Blobs
from appliance.modelstore.store.disk import (
    file_size,
    full_disk_is_typed,
    hash_of,
    keep_only,
    remove,
    require_free,
    sync_file,
    sync_folder,
)
from appliance.modelstore.store.verified_files import VerifiedFiles

P = ParamSpec("P")
log = get_log("builds")
MARK = "form.json"
UNFINISHED = "tmp-"
PARTS = "parts"
NOT_NOTED = "it could not be prepared, or computed something else; an earlier version did not note which"
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
    reason: str = ""
    """Why there is no prepared form, of one that was tried; empty where nobody said."""
    resident_bytes: int | None = None
    peak_bytes: int | None = None
    asleep_bytes: int | None = None
    unreviewed: frozenset[str] = frozenset()
    """Variants on it whose profile does not say whether they are harmless: an earlier version measured them."""
    untimed: frozenset[str] = frozenset()
    """Variants on it whose profile lacks times of some numbers of runs at once: it was measured for fewer workers."""
    part: int | None = None
    """Which part of its content it is; None: all of it."""


@dataclass(slots=True)
class _Content:
    """What a content's variants say of its parts."""

    harmless: dict[str, bool] = field(default_factory=dict)
    """By variant."""
    cut: Cut | None = None

    @property
    def is_harmless(self) -> bool:
        return all(self.harmless.values())


class Builds:
    """The table of builds, kept by the importer and read by the loader."""

    def __init__(self, folder: Path, blobs: Blobs, processors: Sequence[ProcessorDescription]) -> None:
        self._folder = folder
        self._blobs = blobs
        self._kinds: dict[str, ProcessorDescription] = {}
        """In their order; the first processor of a kind stands for all of it."""
        for one in processors:
            self._kinds.setdefault(one.kind, one)
        self._builds: dict[str, Build] = {}
        self._contents: dict[str, _Content] = {}
        self._away: frozenset[str] = frozenset()
        """Kinds that take no runs now."""
        self._has_changed = asyncio.Event()
        self.on_forgotten: Callable[[str], None] = lambda content_sha256: None
        """Told of each content that has gone."""
        self._before: frozenset[str] = frozenset()
        """Contents that there were at the start."""
        self._verified = VerifiedFiles()
        self._placing = threading.Lock()
        """Held by a thread while it puts a form into its place or removes one that may be on its way there: several
        imports may bring the same content at once.
        """

    def start(self, models: Iterable[Model]) -> None:
        """Fill the table from the store's models and remove forms that are unfinished, stale or of nobody's. Blocks."""
        for model in models:
            for variant in model.variants:
                self.put(variant)
        self._before = frozenset(self._contents)
        self._remove_stale()

    def is_new(self, content_sha256: str) -> bool:
        """Whether it was imported since the start."""
        return content_sha256 not in self._before

    def put(self, variant: Variant) -> None:
        """Add a variant's builds, or take over what was measured of it.

        Rungs share their content, so the largest counts.
        """
        if not variant.content_sha256:
            return
        self._put_parts(variant)
        for processor in self._kinds.values():
            build = self._register(variant.content_sha256, processor, variant.size_bytes)
            profile = next((one for one in variant.profiles if one.processor == processor.name), None)
            if profile is not None:
                is_unreviewed = profile is variant.profile and profile.hazards is None
                is_untimed = processor.at_once is not None and bool(processor.at_once.missing(profile.latencies))
                is_new = is_unreviewed and variant.id not in build.unreviewed
                self._builds[build.id] = replace(
                    build,
                    unreviewed=_with(build.unreviewed, variant.id, is_there=is_unreviewed),
                    untimed=_with(build.untimed, variant.id, is_there=is_untimed),
                    resident_bytes=max(profile.resident_bytes, build.resident_bytes or 0),
                    peak_bytes=max(profile.peak_bytes, build.peak_bytes or 0),
                    asleep_bytes=_larger(profile.asleep_bytes, build.asleep_bytes),
                )
                if is_new:
                    self._has_changed.set()

    async def forget(self, contents: Collection[str]) -> None:
        """Drop the builds of contents that have left the disk; fits `OnRemoved`.

        The table and the places on disk are empty before anything else can happen: the next import of the same content
        begins anew, while the files are still being removed.
        """
        gone = [build for build in self._builds.values() if build.content_sha256 in contents]
        folders = [*(self._home(build) for build in gone), *(self._parts_home(content) for content in contents)]
        aside = [folder for home in folders if (folder := _set_aside(home)) is not None]
        for build in gone:
            del self._builds[build.id]
        self._before -= frozenset(contents)
        for content in contents:
            self._contents.pop(content, None)
            self.on_forgotten(content)
        for folder in aside:
            await asyncio.to_thread(remove, folder)

    async def open_build(self, build_id: str) -> PreparedForm:
        """The prepared form, or the plain file when none is valid for this machine.

        Raises: LoadFailed when the build is unknown or its content missing or damaged.
        """
        build = self._builds.get(build_id)
        if build is None:
            raise LoadFailed(build_id=build_id, reason="the store has no such build")
        if build.form is not None:
            try:
                if await asyncio.to_thread(self._is_sound, Path(build.form.path).parent):
                    return self._measured(build, build.form)
                log.warning("prepared form damaged", build_id=build_id)
                if self._builds.get(build_id) is build:  # else it was forgotten or made anew meanwhile
                    self.distrust(build_id)
            except OSError as error:
                log.warning("prepared form cannot be read", build_id=build_id, reason=error.strerror)
        path = await self._plain_file(build)
        plain = PreparedForm(build_id, str(path), build.size_bytes, optimised=False, kind=build.processor.kind)
        return self._measured(build, plain)

    def has_sound_form(self, content_sha256: str, *, anew: bool = False) -> bool:
        """Whether a content can serve without its file, on some kind of processor; `anew`: read its form. Blocks."""
        for kind, processor in self._kinds.items():
            home = self._folder / fingerprint_folder(processor.fingerprint) / build_id(content_sha256, kind)
            mark = _mark(home)
            with suppress(OSError):
                if mark is not None and mark.get("path") is not None and self._is_sound(home, anew=anew):
                    return True
        return False

    async def check(self) -> None:
        """Read all files of forms and parts again: a damaged one is made anew from its content, which serves
        meanwhile.
        """
        for build in list(self._builds.values()):
            if build.form is not None and not await self._may_be_sound(self._home(build)):
                log.warning("prepared form damaged", build_id=build.id)
                self.distrust(build.id)
        for content in [content for content, known in self._contents.items() if known.cut and known.cut.parts]:
            if not await self._may_be_sound(self._parts_home(content)):
                self._lose_parts(content)

    async def _may_be_sound(self, home: Path) -> bool:
        """Read the files of a form or of parts; those that cannot be read now may be sound."""
        try:
            return await asyncio.to_thread(self._is_sound, home, anew=True)
        except OSError as error:
            log.warning("files cannot be read", folder=home.name, reason=error.strerror)
            return True

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
        """Return the builds whose prepared form has not been tried on this machine, that were never reviewed, or that
        were measured before the start for fewer workers; in the order of the table. Builds of kinds that take no runs
        now are left out: to measure them would fail, and they would be given up.
        """
        self._has_changed.clear()
        return [
            build
            for build in self._builds.values()
            if (not build.is_tried or build.unreviewed or (build.untimed and not self.is_new(build.content_sha256)))
            and build.processor.kind not in self._away
            and build.part is None
        ]

    def untried(self, content_sha256: str) -> list[Build]:
        """Builds of a content whose prepared form has not been tried, of kinds that take runs now."""
        builds = (self._builds.get(build_id(content_sha256, kind)) for kind in self._kinds if kind not in self._away)
        return [build for build in builds if build is not None and not build.is_tried]

    def given_up(self, content_sha256: str) -> list[GivenUp]:
        """Kinds of processors beside the first that a content does not run on as they are now, and why."""
        builds = [self._builds.get(build_id(content_sha256, kind)) for kind in list(self._kinds)[1:]]
        return [
            GivenUp(one.processor.kind, one.reason or NOT_NOTED)
            for one in builds
            if one is not None and one.is_tried and one.form is None
        ]

    def uncut(self) -> list[str]:
        """Contents that are to be cut: all kinds have been tried, some of them does not run the whole, and nothing says
        for these kinds how it is cut. None while kinds take no runs, and none that must be guarded.
        """
        if self._away or len(self._kinds) < 2:
            return []
        return [content for content, known in self._contents.items() if known.is_harmless and self._must_cut(content)]

    @property
    def kinds(self) -> tuple[ProcessorDescription, ...]:
        """A processor of each kind, the first kind first."""
        return tuple(self._kinds.values())

    @property
    def asked(self) -> dict[str, str]:
        """Kind → fingerprint of the box's processors, the first kind first: what a cut is made for."""
        return {kind: processor.fingerprint for kind, processor in self._kinds.items()}

    def leave_out(self, kinds: frozenset[str]) -> None:
        """These kinds of processors take no runs now, all others do."""
        self._away = kinds
        self._has_changed.set()

    async def wait_unmeasured(self) -> None:
        """Return when there may be more of them than when they were last asked for."""
        await self._has_changed.wait()

    async def begin_cut(self, content_sha256: str) -> Path:
        """An empty folder for the parts of a content; what there was of them is gone. Ends with `keep_parts`, or with
        the folder's removal. Raises: StorageFull.
        """
        for build in [one for one in self._builds.values() if one.content_sha256 == content_sha256]:
            if build.part is not None:
                self._builds.pop(build.id, None)  # it may be forgotten meanwhile
                await asyncio.to_thread(remove, self._home(build))
        home = self._parts_home(content_sha256)
        await asyncio.to_thread(remove, home)
        folder = home.parent / f"{UNFINISHED}{uuid.uuid4().hex}"
        with full_disk_is_typed():
            await asyncio.to_thread(folder.mkdir, parents=True)
        return folder

    async def keep_parts(self, content_sha256: str, folder: Path, names: Collection[str]) -> None:
        """These files of the folder are the parts of a content from here on.

        Raises: StorageFull; LoadFailed unless they are files, and no ways to others.
        """
        if not await asyncio.to_thread(_are_files, [folder / name for name in names]):
            raise LoadFailed(build_id=content_of(content_sha256), reason="its parts are no files")
        await asyncio.to_thread(_settle_parts, folder, names, self._parts_home(content_sha256))

    async def prepare_parts(
        self, measure: Measure, content_sha256: str, sources: Mapping[int, Path], processor: ProcessorDescription
    ) -> dict[int, PreparedForm]:
        """As `prepare`, of the parts of a cut that was begun: new forms, all made in one process. By number.

        Raises: StorageFull.
        """
        builds = {
            number: self._register(content_sha256, processor, await asyncio.to_thread(file_size, source), number)
            for number, source in sources.items()
        }
        targets = {
            number: self._home(build).parent / f"{UNFINISHED}{uuid.uuid4().hex}" for number, build in builds.items()
        }
        try:
            with full_disk_is_typed():
                for target in targets.values():
                    await asyncio.to_thread(target.mkdir, parents=True)
            pairs = [(str(source), str(targets[number])) for number, source in sources.items()]
            made = dict(zip(sources, await measure.prepare_all(pairs, processor.name), strict=True))
            forms = {}
            for number, build in builds.items():
                form = made[number]
                if form is None:
                    await self._settle(build, targets[number], None)
                    plain = str(sources[number])
                    form = PreparedForm(build.id, plain, build.size_bytes, optimised=False, kind=processor.kind)
                forms[number] = replace(form, build_id=build.id)
            return forms
        except BaseException:
            for target in targets.values():
                await asyncio.shield(asyncio.to_thread(remove, target))
            raise

    async def prepare_reduced(
        self, measure: Measure, content_sha256: str, source: Path, processor: ProcessorDescription
    ) -> PreparedForm | None:
        """As `prepare`, of a form to try beside another new one, which computes in the processor's smaller number
        format; None where there can be none, or it is settled already which form serves.
        """
        build = self._register(content_sha256, processor, await asyncio.to_thread(file_size, source))
        if build.is_tried:
            return None
        target = self._home(build).parent / f"{UNFINISHED}{uuid.uuid4().hex}"
        await asyncio.to_thread(target.mkdir, parents=True)
        form = None
        try:
            form = await measure.prepare(str(source), str(target), processor.name, is_reduced=True)
        finally:
            if form is None:
                await asyncio.shield(asyncio.to_thread(remove, target))
        return None if form is None else replace(form, build_id=build.id)

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
        form, reason = None, f"{processor.kind} cannot compile it"
        try:
            try:
                form = await measure.prepare(str(source), str(target), processor.name)
            except LoadFailed as error:
                reason += f": {error.reason}"
            if form is None:  # perhaps only for now
                await asyncio.to_thread(require_free, target, int(_ROOM_FACTOR * build.size_bytes), 0)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(remove, target))
            raise
        if form is not None:
            return replace(form, build_id=build.id)
        log.warning("no prepared form", build_id=build.id, reason=reason)
        await self._settle(build, target, None, reason)
        return plain

    async def keep(self, form: PreparedForm) -> None:
        """The form has loaded and run: from here on it serves, unless another import of the same content was first.

        A build that was forgotten meanwhile is prepared anew when its content is back. Raises: StorageFull.
        """
        build = self._builds.get(form.build_id)
        if build is not None and form.optimised and not build.is_tried:
            await self._settle(build, Path(form.path).parent, form)

    async def reject(self, form: PreparedForm, reason: str) -> None:
        """The form does not load or run here, so the plain file serves. Raises: StorageFull."""
        log.warning("prepared form given up", build_id=form.build_id, reason=reason)
        build = self._builds.get(form.build_id)
        if build is None:
            return
        target = self._home(build).parent / f"{UNFINISHED}{uuid.uuid4().hex}"
        await asyncio.to_thread(target.mkdir, parents=True)
        await self._settle(build, target, None, reason)

    async def discard(self, form: PreparedForm) -> None:
        """Remove what is left of a form that was neither kept nor there before."""
        folder = Path(form.path).parent
        if form.optimised and folder.name.startswith(UNFINISHED):
            await self._alone(remove, folder)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _settle(self, build: Build, folder: Path, form: PreparedForm | None, reason: str = "") -> None:
        """Write what was found out about a build to the disk, then to the table. `reason`: why it has no form."""
        try:
            await self._alone(_seal, folder, form, self._home(build), reason)
        finally:
            await asyncio.shield(self._alone(remove, folder))
        if build.id in self._builds:
            self._builds[build.id] = self._with_form(self._builds[build.id])

    async def _alone(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run work on the places of forms in a thread, one at a time; work of a cancelled caller ends first."""

        def locked() -> None:
            with self._placing:
                work(*args, **kwargs)

        await asyncio.to_thread(locked)

    def _put_parts(self, variant: Variant) -> None:
        """Its parts as builds, where they are there and made for these processors."""
        known = self._contents.setdefault(variant.content_sha256, _Content())
        profile, cut = variant.profile, variant.cut
        known.harmless[variant.id] = profile is not None and profile.hazards == ()
        if cut is None or cut.asked != self.asked:
            known.cut = None
            return
        if known.cut == cut:
            return
        home = self._parts_home(variant.content_sha256)
        known.cut = cut if not cut.parts or _is_whole(home) else None
        for number, part in enumerate(known.cut.parts if known.cut else ()):
            for costs in part.profiles:
                build = self._register(variant.content_sha256, self._kinds[costs.kind], part.size_bytes, number)
                self._builds[build.id] = replace(
                    build,
                    resident_bytes=costs.resident_bytes,
                    peak_bytes=costs.peak_bytes,
                    asleep_bytes=costs.asleep_bytes,
                )

    def _must_cut(self, content: str) -> bool:
        builds = [self._builds[build_id(content, kind)] for kind in self._kinds]
        if not all(build.is_tried and not build.unreviewed for build in builds):
            return False
        if self._contents[content].cut is None:
            return any(build.form is None for build in builds[1:])
        parts = [build for build in self._builds.values() if build.content_sha256 == content and build.part is not None]
        return not all(build.is_tried for build in parts)

    async def _plain_file(self, build: Build) -> Path:
        """Raises: LoadFailed."""
        if build.part is None:
            return await asyncio.to_thread(self._blobs.path, build.content_sha256)
        home = self._parts_home(build.content_sha256)
        try:
            is_sound = await asyncio.to_thread(self._is_sound, home)
        except OSError as error:
            raise LoadFailed(build_id=build.id, reason=f"its parts cannot be read: {error.strerror}") from error
        if not is_sound:
            self._lose_parts(build.content_sha256)
            raise LoadFailed(build_id=build.id, reason="the files of its parts are damaged; it is cut again")
        return home / part_file(build.part)

    def _lose_parts(self, content: str) -> None:
        """The files of its parts are not what they were: it serves whole until it is cut anew."""
        log.warning("parts damaged", content=content)
        with suppress(OSError):
            (self._parts_home(content) / MARK).unlink()
        known = self._contents.get(content)
        if known is not None:
            known.cut = None
            self._has_changed.set()

    def _is_sound(self, home: Path, *, anew: bool = False) -> bool:
        """Whether every file has the digest that it was sealed with. Blocks."""
        mark = _mark(home)
        if mark is None or not _has_files(home, mark):
            return False
        files = mark["files"].items()
        return all(self._verified.is_sound(home / name, known["sha256"], anew=anew) for name, known in files)

    def _parts_home(self, content_sha256: str) -> Path:
        return self._folder / PARTS / content_of(content_sha256)

    def _register(
        self, content_sha256: str, processor: ProcessorDescription, size_bytes: int, part: int | None = None
    ) -> Build:
        kind = processor.kind
        id = build_id(content_sha256, kind) if part is None else part_build_id(content_sha256, part, kind)
        if id not in self._builds:
            build = Build(id, content_sha256, processor, size_bytes, part=part)
            self._builds[id] = self._with_form(build)
            self._has_changed.set()
        return self._builds[id]

    def _with_form(self, build: Build) -> Build:
        """The build with what `form.json` says of it; a damaged form counts as not tried."""
        home = self._home(build)
        mark = _mark(home)
        if mark is None or not _has_files(home, mark):
            return replace(build, is_tried=False, form=None, reason="")
        if mark["path"] is None:
            return replace(build, is_tried=True, form=None, reason=mark.get("reason", ""))
        form = PreparedForm(
            build.id,
            str(home / mark["path"]),
            mark["size_bytes"],
            mark["optimised"],
            kind=build.processor.kind,
            computes_in=mark.get("computes_in", ""),
        )
        return replace(build, is_tried=True, form=form, reason="")

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
        homes = {self._parts_home(content) for content, known in self._contents.items() if known.cut is not None}
        for home in (self._folder / PARTS).glob("*"):
            if home not in homes:
                remove(home)
        for folder in self._folder.iterdir():
            if folder.name == PARTS:
                continue
            if folder.name not in current:
                remove(folder)
                continue
            for home in folder.iterdir():
                if home.name not in self._builds:
                    remove(home)


def part_file(number: int) -> str:
    """Of a part, beside what all parts have their weights in."""
    return f"u{number}.onnx"


def _are_files(paths: Iterable[Path]) -> bool:
    return all(path.is_file() and not path.is_symlink() for path in paths)


def _settle_parts(folder: Path, names: Collection[str], home: Path) -> None:
    with full_disk_is_typed():
        keep_only(folder, set(names))
        files = _files(folder)
        (folder / MARK).write_text(json.dumps({"files": files}))
        for file in folder.iterdir():
            sync_file(file)
        sync_folder(folder)
        remove(home)
        os.rename(folder, home)
        sync_folder(home.parent)


def _with(names: frozenset[str], name: str, *, is_there: bool) -> frozenset[str]:
    return names | {name} if is_there else names - {name}


def _larger(one: int | None, other: int | None) -> int | None:
    return max(one, other) if one is not None and other is not None else one if other is None else other


def fingerprint_folder(fingerprint: str) -> str:
    """A fingerprint as the name of a folder."""
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:16]


def _seal(target: Path, form: PreparedForm | None, home: Path, reason: str) -> None:
    """Sync the files of a form, describe the form in `form.json`, and move the folder to its place.

    A whole form in that place stays, for it may be in use. Raises: StorageFull.
    """
    if form is not None and _is_whole(home):
        return
    mark: dict[str, Any] = {
        "files": _files(target),
        "path": None if form is None else os.path.relpath(form.path, target),
    }
    if form is None:
        mark["reason"] = reason
    else:
        mark |= {"size_bytes": form.size_bytes, "optimised": form.optimised, "computes_in": form.computes_in}
    with full_disk_is_typed():
        for name in mark["files"]:
            sync_file(target / name)
        (target / MARK).write_text(json.dumps(mark))
        sync_file(target / MARK)
        remove(home)
        os.rename(target, home)
        sync_folder(home.parent)


def _set_aside(home: Path) -> Path | None:
    """Give a folder that goes another name, so that its place is free at once; None: there is none."""
    aside = home.parent / f"{UNFINISHED}{uuid.uuid4().hex}"
    try:
        os.rename(home, aside)
    except OSError:  # also where it cannot be moved: the next start removes it
        return None
    return aside


def _files(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and digest of each file, for `form.json`."""
    return {file.name: {"size": file.stat().st_size, "sha256": hash_of(file)} for file in folder.iterdir()}


def _is_whole(home: Path) -> bool:
    """Whether every file has the size that it was sealed with: what a start looks at."""
    mark = _mark(home)
    return mark is not None and _has_files(home, mark)


def _has_files(home: Path, mark: dict[str, Any]) -> bool:
    try:
        return all(os.stat(home / name).st_size == known["size"] for name, known in mark["files"].items())
    except (OSError, TypeError):  # an earlier version kept no digests: the form is made anew
        return False


def _mark(home: Path) -> dict[str, Any] | None:
    try:
        mark: dict[str, Any] = json.loads((home / MARK).read_text())
    except (OSError, ValueError):
        return None
    return mark
