"""Whether the box is well, and what to do where it is not: a list of checks, made when somebody asks."""

import asyncio
import datetime
import shutil
from collections.abc import Awaitable, Iterator, Sequence

from fastapi import APIRouter

from appliance.api.auth.keyring import Principal
from appliance.api.box import RunningBox
from appliance.api.http.documented import problems
from appliance.api.v1.deps import Member, TheBox
from appliance.clock import EPOCH, NS_PER_MS, NS_PER_S
from appliance.domain.access import EXPIRES_SOON
from appliance.domain.backups import BackupState
from appliance.domain.catalogue import Model
from appliance.domain.errors import ApplianceError, Forbidden, Unavailable
from appliance.domain.sensors import Quantity
from appliance.domain.states import ProcessorState, VariantState
from appliance.wire.box import CheckShape, HealthShape

router = APIRouter(prefix="/v1/health", tags=["system"])

DISK_FREE_MIN = 0.05
"""Share of the disk below which it is time to look."""
DISK_FREE_BYTES_MIN = 256 * 2**20
"""Below it imports and uploads have little room above what must stay free."""
MEMORY_FREE_MIN = 0.05
"""Share of the machine's memory."""
DISK_DAYS_MIN = 14
"""Days until the disk is full below which it is time to look."""
BACKUP_AGE_MAX = datetime.timedelta(hours=36)
CERTIFICATE_SOON = datetime.timedelta(days=30)
LOOP_LATE_MS_MAX = 250.0
"""How late the event loop may be; each request waits at least as long."""


@router.get("", summary="Is the box well?", responses=problems(Forbidden))
async def health(box: TheBox, principal: Member) -> HealthShape:
    """Checks, each with what to do where something is wrong; `status` is the worst of them.

    An admin key sees all of them, a tenant's key those that concern the tenant.
    """
    troubled = list(filter(None, await box.turns.collect(principal.tenant, _troubled(box, principal))))
    checks = [
        _answers(box),
        *_quarantine(troubled, principal),
        _contents(troubled, principal),
        await _looked("keys", _keys(box, principal)),
    ]
    if principal.is_admin:
        checks[1:1] = [
            await _event_loop(box),
            await _database(box),
            _processors(box),
            _memory(box),
            await _looked("disk", _disk(box)),
            _heat(box),
            _clock(box),
        ]
        checks += [_confinement(box), *await asyncio.to_thread(lambda: list(certificate(box)))]
        checks += [await _looked("backup", _backup(box)), _chores(box)]
    worst = max(checks, key=lambda check: ("good", "warn", "bad").index(check.status))
    return HealthShape(status=worst.status, checks=checks)


def _good(name: str, detail: str) -> CheckShape:
    return CheckShape(name=name, status="good", detail=detail, action="")


async def _looked(name: str, look: Awaitable[CheckShape]) -> CheckShape:
    """A check whose look may itself fail: that is what it tells then, and the others are told all the same."""
    try:
        return await look
    except (ApplianceError, OSError) as error:
        return CheckShape(
            name=name,
            status="bad",
            detail=f"it cannot be looked at: {error}",
            action="Look at the disk and the owner of the state folder.",
        )


async def _event_loop(box: RunningBox) -> CheckShape:
    """How long what a thread hands over waits for its turn, just now."""
    handed_over_ns = await asyncio.to_thread(box.clock.now_ns)
    late_ms = (box.clock.now_ns() - handed_over_ns) / NS_PER_MS
    if late_ms > LOOP_LATE_MS_MAX:
        return CheckShape(
            name="event loop",
            status="warn",
            detail=f"it was held for {late_ms:.0f} ms just now",
            action="See what else takes the processors of the machine; save a support file on the page Box if nothing.",
        )
    return _good("event loop", f"it turns: {late_ms:.1f} ms late just now")


def _answers(box: RunningBox) -> CheckShape:
    if not box.is_ready():
        return CheckShape(
            name="service",
            status="bad",
            detail="the box takes no requests: it is stopping",
            action="Wait until it has stopped, then start it again.",
        )
    if box.engine.is_stuck():
        return CheckShape(
            name="service",
            status="bad",
            detail="a run holds a worker long after it should have ended",
            action="Restart the box, as systemd does where it watches it; delete the model that ran.",
        )
    return _good("service", "requests are answered, and no run is stuck")


async def _database(box: RunningBox) -> CheckShape:
    try:
        await box.store.tenants.page("", 1)
    except Unavailable as error:
        return CheckShape(
            name="database",
            status="bad",
            detail=str(error),
            action="Look at the disk and the owner of the state folder; restore a backup where the file is damaged.",
        )
    checked = next((one.last for one in box.housekeeping.statuses() if one.name == "check the database"), None)
    if checked is not None and checked.error:
        return CheckShape(
            name="database",
            status="bad",
            detail=checked.error,
            action="Look at the disk; make a new state folder from the last good backup with 'appliance restore'.",
        )
    return _good("database", "it can be read" if checked is None else f"whole on {checked.began_at:%Y-%m-%d}")


def _processors(box: RunningBox) -> CheckShape:
    statuses = box.processor_statuses()
    lost = [one for one in statuses if one.state in (ProcessorState.LOST, ProcessorState.UNFIT)]
    slow = [one for one in statuses if one.state is ProcessorState.THROTTLED]
    if lost:
        return CheckShape(
            name="processors",
            status="bad",
            detail="; ".join(f"{one.description.name} is {one.state.value}: {one.reason}" for one in lost),
            action="See the page Processors and the log of the box; the others serve meanwhile.",
        )
    if slow:
        return CheckShape(
            name="processors",
            status="warn",
            detail="; ".join(f"{one.description.name} is throttled: {one.reason}" for one in slow),
            action="Cool the box, or give it more power.",
        )
    return _good("processors", f"{len(statuses)} of {len(statuses)} compute")


def _memory(box: RunningBox) -> CheckShape:
    memory = box.machine_memory.now()
    whose = f"allowed by the limit of its container or unit ({memory.bound})" if memory.bound else "of the machine"
    detail = f"{_mb(memory.available_bytes)} are free of {_mb(memory.total_bytes)} {whose}"
    if memory.available_bytes < MEMORY_FREE_MIN * memory.total_bytes:
        others = "Raise that limit" if memory.bound else "End other programs on the machine"
        action = f"{others}, or lower memory.budget_bytes."
        return CheckShape(name="memory", status="warn", detail=f"only {detail}", action=action)
    return _good("memory", detail)


async def _disk(box: RunningBox) -> CheckShape:
    disk = await asyncio.to_thread(shutil.disk_usage, box.state_dir)
    reserve_bytes = box.store.blobs.reserve_bytes
    detail = (
        f"{_mb(disk.free)} of {_mb(disk.total)} are free where the state folder is; {_mb(reserve_bytes)} must stay "
        f"free, so uploads and imports have room for {_mb(max(0, disk.free - reserve_bytes))}"
    )
    if disk.free < DISK_FREE_BYTES_MIN:
        wanted = _mb(DISK_FREE_BYTES_MIN - disk.free)
        return CheckShape(
            name="disk",
            status="bad",
            detail=f"{detail}; below {_mb(DISK_FREE_BYTES_MIN)} that is little",
            action=f"Delete models or uploads, or make room on the disk: {wanted} more.",
        )
    if disk.free < DISK_FREE_MIN * disk.total:
        return CheckShape(
            name="disk", status="warn", detail=detail, action="Make room before the next import: it may need it."
        )
    days = box.housekeeping.disk.days_left()
    if days is not None and days < DISK_DAYS_MIN:
        detail += f", and none in about {_days(days)}, if it goes on as in the last two weeks"
        return CheckShape(
            name="disk", status="warn", detail=detail, action="Delete what is not needed, or give the box more disk."
        )
    return _good("disk", detail if days is None else f"{detail}, enough for about {_days(days)}")


def _heat(box: RunningBox) -> CheckShape:
    sensed = box.sensors.now()
    hot = [
        one
        for one in sensed.readings
        if one.quantity is Quantity.CELSIUS and None not in (one.value, one.limit) and one.value >= one.limit  # type: ignore[operator]
    ]
    if hot or sensed.throttled:
        said = [f"{one.name} has {one.value} °C of {one.limit}" for one in hot]
        said += [f"{device}: {why}" for device, why in sorted(sensed.throttled.items())]
        return CheckShape(
            name="heat", status="warn", detail="; ".join(said), action="Cool the box: answers take longer until then."
        )
    known = [one.value for one in sensed.readings if one.quantity is Quantity.CELSIUS and one.value is not None]
    return _good("heat", f"{max(known):.0f} °C at the most" if known else "the machine has no sensor for it")


def _clock(box: RunningBox) -> CheckShape:
    now = box.clock.wall_now()
    if now < EPOCH:
        return CheckShape(
            name="clock",
            status="bad",
            detail=f"it says {now:%Y-%m-%d}",
            action="Set it, or let the system do so (timedatectl set-ntp true): keys and certificates expire by it.",
        )
    return _good("clock", f"{now:%Y-%m-%d %H:%M} UTC")


def _confinement(box: RunningBox) -> CheckShape:
    missing = [name for name in ("files", "calls") if not box.confinement.get(name, False)]
    if missing:
        return CheckShape(
            name="imports",
            status="warn",
            detail=f"what touches uploaded files is held back less than it should be: {', '.join(missing)} missing",
            action="Use a kernel with Landlock, and let the unit of systemd permit its calls.",
        )
    return _good("imports", "what touches uploaded files is confined")


def _troubled(box: RunningBox, principal: Principal) -> Iterator[Model | None]:
    """Yield the models with a variant that is damaged or quarantined, None in the place of others; for an admin key of
    all tenants, else of those that the tenant sees.
    """
    models = box.catalogue.models() if principal.is_admin else box.catalogue.visible_models(principal.tenant)
    for model in models:
        is_troubled = any(one.is_damaged or one.state is VariantState.QUARANTINED for one in model.variants)
        yield model if is_troubled else None


def _name(model: Model, principal: Principal) -> str:
    return model.name if model.tenant == principal.tenant else model.id


def _quarantine(troubled: Sequence[Model], principal: Principal) -> Iterator[CheckShape]:
    names = [
        f"{_name(model, principal)} {variant.name}"
        for model in troubled
        for variant in model.variants
        if variant.state is VariantState.QUARANTINED
    ]
    if names:
        yield CheckShape(
            name="quarantine",
            status="warn",
            detail=f"taken out of service because its process ended too often: {', '.join(names)}",
            action="See the reason on the page of the model; let it serve again, or delete it.",
        )
    else:
        yield _good("quarantine", "no variant is taken out of service")


def _contents(troubled: Sequence[Model], principal: Principal) -> CheckShape:
    """Files of models as they were found when they were read last: at a load, and every night."""
    damaged = [(model, variant) for model in troubled for variant in model.variants if variant.is_damaged]
    if not damaged:
        return _good("files of models", "all are as they were uploaded")
    names = ", ".join(f"{_name(model, principal)} {variant.name}" for model, variant in damaged)
    return CheckShape(
        name="files of models",
        status="warn" if all(variant.servable for _, variant in damaged) else "bad",
        detail=f"damaged on the disk: {names}",
        action="Upload the same files again under the same names: applications and their settings stay. Look at the "
        "disk. What still serves does so from its prepared form.",
    )


async def _keys(box: RunningBox, principal: Principal) -> CheckShape:
    now = box.clock.wall_now()
    expiring = box.keyring.expiring(now, now + EXPIRES_SOON)
    soon = [one for one in expiring if principal.is_admin or one.tenant == principal.tenant]
    if soon:
        uses = await box.store.keys.uses([one.id for one in soon[:10]])
        return CheckShape(
            name="keys",
            status="warn",
            detail=f"{len(soon)} expire within {EXPIRES_SOON.days} days: "
            + ", ".join(f"{one.tenant}/{one.label or one.id} ({_used(uses.get(one.id))})" for one in soon[:10]),
            action="Make others for their devices on the page of the tenant.",
        )
    return _good("keys", f"none expires within {EXPIRES_SOON.days} days")


def _used(at: datetime.datetime | None) -> str:
    return "never used" if at is None else f"last used on {at:%Y-%m-%d}"


def certificate(box: RunningBox) -> Iterator[CheckShape]:
    """Of a box with TLS; blocks."""
    path = box.certificate_file
    if path is None or not path.exists():
        return
    from appliance.api.http.certificate import end_of  # cryptography is large and seldom needed

    try:
        end = end_of(path)
    except (OSError, ValueError) as error:
        yield CheckShape(
            name="certificate",
            status="bad",
            detail=f"its file cannot be read ({error}); the box shows the one that it has read before",
            action=f"Put a certificate at {path}: without one the box does not start again.",
        )
        return
    if end - box.clock.wall_now() < CERTIFICATE_SOON:
        yield CheckShape(
            name="certificate",
            status="warn",
            detail=f"it ends on {end:%Y-%m-%d}",
            action="Put a new one in its place: the box shows it within a minute. Its own it renews by itself.",
        )
    else:
        yield _good("certificate", f"good until {end:%Y-%m-%d}")


async def _backup(box: RunningBox) -> CheckShape:
    """A nightly backup is at most a day old, where the box has something to lose. Those that were made while the clock
    was far ahead say nothing.
    """
    now = box.clock.wall_now()
    made = [one for one in await box.backups.all() if one.state is BackupState.READY]
    ready = [one for one in made if one.created_at - now <= BACKUP_AGE_MAX]
    if ready and now - ready[0].created_at <= BACKUP_AGE_MAX:
        return _good("backup", f"the latest is of {ready[0].created_at:%Y-%m-%d %H:%M} UTC")
    since_start = datetime.timedelta(seconds=(box.clock.now_ns() - box.started_ns) / NS_PER_S)
    if not made and (since_start < BACKUP_AGE_MAX or not any(box.catalogue.entries())):
        return _good("backup", "there is none yet")
    return CheckShape(
        name="backup",
        status="warn",
        detail=f"the latest is of {ready[0].created_at:%Y-%m-%d}" if ready else "there is none",
        action="Make one on the page Box, and see there why none was made at night.",
    )


def _chores(box: RunningBox) -> CheckShape:
    failed = [one for one in box.housekeeping.statuses() if one.last is not None and one.last.error]
    if failed:
        return CheckShape(
            name="housekeeping",
            status="warn",
            detail="; ".join(f"{one.name}: {one.last.error}" for one in failed if one.last is not None),
            action="See Housekeeping on the page Box; each is tried again at its next time.",
        )
    return _good("housekeeping", "no chore has failed")


def _days(days: float) -> str:
    """`1 day`, `9 days`."""
    whole = max(1, round(days))
    return "1 day" if whole == 1 else f"{whole} days"


def _mb(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
