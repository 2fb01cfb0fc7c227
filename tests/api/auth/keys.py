"""Keys, and a ring that has them."""

from appliance.api.auth.keyring import KeyRing, digest_of
from appliance.domain.access import KeyRecord, Role
from tests.fakes.hand_clock import HandClock

TENANTS = {"default", "harbour", "museum"}


def record(key: str, role: Role = Role.TENANT, tenant: str = "harbour", **facts: object) -> KeyRecord:
    made = KeyRecord(f"id-{key[-6:]}", tenant, role, digest_of(key), HandClock().wall_now())
    return KeyRecord(**{name: getattr(made, name) for name in KeyRecord.__slots__} | facts)


def ring(*records: KeyRecord, clock: HandClock | None = None, failed_per_min: int = 3) -> KeyRing:
    made = KeyRing(clock or HandClock(), failed_per_min, TENANTS.__contains__)
    made.fill(records)
    return made
