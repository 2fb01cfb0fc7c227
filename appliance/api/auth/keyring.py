"""Keys in memory: who is asking, decided in a few microseconds and without the database.

The ring is filled from the store at start and follows its changes (event-loop thread only). It knows SHA-256 digests,
never keys; looking a digest up leaks nothing by its timing, because nobody can choose the digest of a guess.
"""

import base64
import datetime
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from appliance.clock import NS_PER_S, Clock
from appliance.domain.access import KeyRecord, Role
from appliance.domain.errors import Forbidden, MissingKey, TooManyFailedKeys, UnknownTenant, WrongKey

KEY_PREFIX = "ea_"
ADDRESSES_MAX = 4096
WINDOW_NS = 60 * NS_PER_S


def new_key() -> str:
    """A fresh secret: `ea_` and 256 random bits."""
    return KEY_PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()


def new_key_id() -> str:
    """A name for a key that says nothing about it."""
    return secrets.token_hex(6)


def digest_of(key: str) -> bytes:
    """What is stored of a key."""
    return hashlib.sha256(key.encode()).digest()


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking, and in which tenant they act."""

    tenant: str
    role: Role
    applications: tuple[str, ...]
    """Names a device key is bound to; empty, with `pipelines`: all that the tenant sees."""
    key_id: str
    expires_at: datetime.datetime | None = None
    """When the key stops working."""
    pipelines: tuple[str, ...] = ()
    """The same of pipelines."""

    @property
    def is_admin(self) -> bool:
        """Whether the key opens the whole box."""
        return self.role is Role.ADMIN

    def may_call(self, application: str) -> bool:
        """Whether requests to this application (by name) are allowed."""
        return not self.is_bound or application in self.applications

    def may_call_pipeline(self, pipeline: str) -> bool:
        """The same of a pipeline. Its applications need not be allowed: who may call it may call what it asks."""
        return not self.is_bound or pipeline in self.pipelines

    @property
    def is_bound(self) -> bool:
        """Whether the key names what it may call."""
        return bool(self.applications or self.pipelines)


@dataclass(slots=True)
class _Entry:
    """A stored key and the principals made of it, by the tenant that an admin named."""

    record: KeyRecord
    own: Principal
    acting: dict[str, Principal]


class FailedKeys:
    """Counts wrong keys by address in windows of a minute.

    Bounded: the address that failed longest ago is forgotten first.
    """

    def __init__(self, per_min: int) -> None:
        self._per_min = per_min
        self._windows: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def add(self, address: str, now_ns: int) -> None:
        """Note one more.

        Raises: TooManyFailedKeys once the window has its fill.
        """
        start_ns, count = self._windows.pop(address, (now_ns, 0))
        if now_ns - start_ns >= WINDOW_NS:
            start_ns, count = now_ns, 0
        self._windows[address] = (start_ns, count + 1)
        if len(self._windows) > ADDRESSES_MAX:
            self._windows.popitem(last=False)
        if count >= self._per_min:
            raise TooManyFailedKeys(retry_after_s=(start_ns + WINDOW_NS - now_ns) / NS_PER_S)


class KeyRing:
    """All keys of the box, by digest.

    A right key is served whatever else its address has sent: with 256 random bits there is nothing to guess, and one
    misconfigured device must not lock out its neighbours behind the same address. What the limit saves is the work that
    wrong keys make.
    """

    def __init__(self, clock: Clock, failed_per_min: int, is_tenant: Callable[[str], bool]) -> None:
        self._clock = clock
        self._failed = FailedKeys(failed_per_min)
        self._is_tenant = is_tenant
        self._entries: dict[bytes, _Entry] = {}
        self._digests: dict[str, bytes] = {}
        self._used: set[str] = set()
        """Ids of keys that were used since that was last asked."""
        self.changes = 0
        """How often a key came or went, or uses were asked for: what a connection knows of its key is looked up anew
        then.
        """

    def fill(self, records: Iterable[KeyRecord]) -> None:
        """Take all of them; at start."""
        for record in records:
            self.put(record)

    def put(self, record: KeyRecord) -> None:
        """Add or replace a key."""
        self.remove(record.id)  # counts as the change, too
        own = Principal(record.tenant, record.role, record.applications, record.id, record.expires_at, record.pipelines)
        self._entries[record.sha256] = _Entry(record, own, {})
        self._digests[record.id] = record.sha256

    def take_uses(self) -> set[str]:
        """Ids of the keys that were used since this was asked last, also over connections that have been open since."""
        used, self._used = self._used, set()
        self.changes += 1
        return used

    def record(self, key_id: str) -> KeyRecord | None:
        """A key as it is stored; None: it was revoked."""
        entry = self._entries.get(self._digests.get(key_id, b""))
        return None if entry is None else entry.record

    def expiring(self, after: datetime.datetime, before: datetime.datetime) -> list[KeyRecord]:
        """Keys that expire in between, the next first."""
        ends = [
            (one.record.expires_at, one.record.id, one.record)
            for one in self._entries.values()
            if one.record.expires_at is not None and after < one.record.expires_at < before
        ]
        return [record for _, _, record in sorted(ends, key=lambda end: end[:2])]

    def newest(self) -> datetime.datetime | None:
        """Return when the newest key was made; None: there is no key."""
        return max((one.record.created_at for one in self._entries.values()), default=None)

    def remove(self, key_id: str) -> None:
        """Forget a key; one that is not there is no error."""
        self.changes += 1
        self._entries.pop(self._digests.pop(key_id, b""), None)

    def remove_tenant(self, tenant: str) -> None:
        """Forget every key of a tenant that is gone."""
        for record in [entry.record for entry in self._entries.values() if entry.record.tenant == tenant]:
            self.remove(record.id)

    def authenticate(self, authorization: bytes | None, x_tenant: bytes | None, address: str) -> Principal:
        """Who sends this `Authorization` header (and, as an admin, this `X-Tenant`).

        Raises: MissingKey, WrongKey, TooManyFailedKeys; Forbidden, UnknownTenant for an `X-Tenant` that is not the
        caller's to name.
        """
        if authorization is None or authorization[:7].lower() != b"bearer ":
            raise MissingKey
        digest = hashlib.sha256(authorization[7:].strip()).digest()
        entry = self._entries.get(digest)
        if entry is None or not hmac.compare_digest(entry.record.sha256, digest) or self._is_expired(entry.record):
            self._failed.add(address, self._clock.now_ns())
            raise WrongKey
        self._used.add(entry.record.id)
        if x_tenant is None:
            return entry.own
        return self._acting(entry, x_tenant.decode("latin-1").strip())

    def known(self, key_id: str | None) -> Principal | None:
        """Who acts with a key that was shown before; None: it is expired or revoked."""
        entry = None if key_id is None else self._entries.get(self._digests.get(key_id, b""))
        return None if entry is None or self._is_expired(entry.record) else entry.own

    def principal(self, key_id: str | None, x_tenant: bytes | None, address: str) -> Principal:
        """As `authenticate`, of who showed a key before; None: of nobody.

        Raises: WrongKey, TooManyFailedKeys, Forbidden, UnknownTenant.
        """
        own = self.known(key_id)
        if own is None or key_id is None:
            self._failed.add(address, self._clock.now_ns())
            raise WrongKey
        self._used.add(key_id)
        if x_tenant is None:
            return own
        return self._acting(self._entries[self._digests[key_id]], x_tenant.decode("latin-1").strip())

    def _is_expired(self, record: KeyRecord) -> bool:
        return record.expires_at is not None and self._clock.wall_now() >= record.expires_at

    def _acting(self, entry: _Entry, tenant: str) -> Principal:
        if tenant == entry.own.tenant:
            return entry.own
        if not entry.own.is_admin:
            raise Forbidden(action="act for another tenant")
        if not self._is_tenant(tenant):
            raise UnknownTenant(name=tenant[:80])
        known = entry.acting.get(tenant)
        if known is None:
            known = entry.acting[tenant] = replace(entry.own, tenant=tenant)
        return known
