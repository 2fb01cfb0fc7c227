"""Who is asking."""

import datetime

import pytest

from appliance.api.auth.keyring import ADDRESSES_MAX, FailedKeys, KeyRing, Principal, new_key
from appliance.domain.access import Role
from appliance.domain.errors import Forbidden, MissingKey, TooManyFailedKeys, UnknownTenant, WrongKey
from tests.api.auth.keys import record, ring
from tests.fakes.hand_clock import HandClock


def ask(keys: KeyRing, key: str, x_tenant: bytes | None = None, address: str = "10.0.0.7") -> Principal:
    return keys.authenticate(f"Bearer {key}".encode(), x_tenant, address)


def test_key_gives_tenant_role_and_applications() -> None:
    """And the case of the scheme does not matter."""
    key = new_key()
    keys = ring(record(key, Role.DEVICE, applications=("signs",)))
    principal = ask(keys, key)
    assert (principal.tenant, principal.role, principal.applications) == ("harbour", Role.DEVICE, ("signs",))
    assert principal.may_call("signs")
    assert not principal.may_call("faces")
    assert keys.authenticate(f"bearer {key} ".encode(), None, "") is principal


def test_keys_are_long_and_unique() -> None:
    """256 random bits after a prefix that marks a key of the box."""
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith("ea_") and len(key) == 46 for key in keys)


@pytest.mark.parametrize("header", [None, b"", b"Basic dXNlcjpw", b"Bearer"])
def test_header_without_bearer_key_is_a_missing_key(header: bytes | None) -> None:
    with pytest.raises(MissingKey):
        ring().authenticate(header, None, "")


def test_unknown_revoked_and_expired_keys_get_the_same_answer() -> None:
    clock, key, old = HandClock(), new_key(), new_key()
    keys = ring(
        record(key),
        record(old, expires_at=clock.wall_now() + datetime.timedelta(hours=1)),
        clock=clock,
        failed_per_min=9,
    )
    assert ask(keys, old).tenant == "harbour"
    clock.pass_s(3601)
    keys.remove(ask(keys, key).key_id)
    messages = set()
    for bad in (new_key(), key, old):
        with pytest.raises(WrongKey) as raised:
            ask(keys, bad)
        messages.add(str(raised.value))
    assert len(messages) == 1


def test_admin_key_acts_for_the_tenant_in_x_tenant() -> None:
    """For the tenant `default` unless X-Tenant names another; an unknown tenant is 404."""
    key = new_key()
    keys = ring(record(key, Role.ADMIN, "default"))
    assert ask(keys, key).tenant == "default"
    acting = ask(keys, key, b"museum")
    assert (acting.tenant, acting.is_admin) == ("museum", True)
    assert ask(keys, key, b"museum") is acting
    assert ask(keys, key, b"default").tenant == "default"
    with pytest.raises(UnknownTenant):
        ask(keys, key, b"nobody")


@pytest.mark.parametrize("other", [b"museum", b"nobody"])
def test_tenant_key_may_not_name_another_tenant(other: bytes) -> None:
    """A tenant's key learns nothing from X-Tenant, not even whether the other exists."""
    key = new_key()
    keys = ring(record(key))
    assert ask(keys, key, b"harbour").tenant == "harbour"
    with pytest.raises(Forbidden) as raised:
        ask(keys, key, other)
    assert other.decode() not in str(raised.value)


def test_failed_keys_are_limited_by_address() -> None:
    """The fourth within a minute is 429 with the time to wait; another address, a right key and the next minute are not
    concerned.
    """
    clock, key = HandClock(), new_key()
    keys = ring(record(key), clock=clock)
    for _ in range(3):
        with pytest.raises(WrongKey):
            ask(keys, "ea_wrong")
    clock.pass_s(20)
    with pytest.raises(TooManyFailedKeys) as raised:
        ask(keys, "ea_wrong")
    assert raised.value.retry_after_s == pytest.approx(40)
    assert ask(keys, key).tenant == "harbour"
    with pytest.raises(WrongKey):
        ask(keys, "ea_wrong", address="10.0.0.8")
    clock.pass_s(41)
    with pytest.raises(WrongKey):
        ask(keys, "ea_wrong")


def test_addresses_of_failed_keys_are_bounded() -> None:
    """A flood from many addresses does not grow the process; the address that failed longest ago is forgotten."""
    failed = FailedKeys(1)
    for number in range(ADDRESSES_MAX + 100):
        failed.add(str(number), 0)
    failed.add("99", 0)  # the last one forgotten; the next one, 100, is forgotten for it
    for known in (101, ADDRESSES_MAX + 99):
        with pytest.raises(TooManyFailedKeys):
            failed.add(str(known), 0)


def test_removed_tenant_loses_its_keys() -> None:
    """The keys of other tenants stay."""
    key, other = new_key(), new_key()
    keys = ring(record(key), record(other, tenant="museum"))
    keys.remove_tenant("harbour")
    with pytest.raises(WrongKey):
        ask(keys, key)
    assert ask(keys, other).tenant == "museum"


def test_replaced_key_opens_with_its_new_secret_only() -> None:
    old, new = new_key(), new_key()
    keys = ring(record(old, id="k"))
    keys.put(record(new, id="k"))
    assert ask(keys, new).key_id == "k"
    with pytest.raises(WrongKey):
        ask(keys, old)


@pytest.mark.parametrize("step_s", [-400 * 86_400, 400 * 86_400])
def test_clock_step_moves_expiry_of_keys_but_no_limit_of_failed_keys(step_s: int) -> None:
    """A year forward ends a key of an hour, a year back does not; how many wrong keys an address may send is counted in
    time that never steps.
    """
    clock, lasting, expiring = HandClock(), new_key(), new_key()
    soon = clock.wall_now() + datetime.timedelta(hours=1)
    keys = ring(record(lasting), record(expiring, expires_at=soon), clock=clock, failed_per_min=3)
    for _ in range(3):
        with pytest.raises(WrongKey):
            ask(keys, "ea_wrong")
    clock.step_s(step_s)
    with pytest.raises(TooManyFailedKeys):
        ask(keys, "ea_wrong")
    assert ask(keys, lasting, address="10.0.0.8").tenant == "harbour"
    if step_s < 0:
        assert ask(keys, expiring, address="10.0.0.8").tenant == "harbour"
    else:
        with pytest.raises(WrongKey):
            ask(keys, expiring, address="10.0.0.8")


def test_used_keys_are_told_once() -> None:
    """Each key once until the uses are taken; then connections look their keys up anew, so that a connection that stays
    open counts.
    """
    one, other = new_key(), new_key()
    keys = ring(record(one), record(other))
    ask(keys, one)
    ask(keys, one)
    with pytest.raises(WrongKey):
        ask(keys, new_key())
    before = keys.changes
    assert keys.take_uses() == {f"id-{one[-6:]}"}
    assert keys.changes > before
    assert keys.take_uses() == set()
    assert keys.principal(f"id-{other[-6:]}", None, "") is not None
    assert keys.take_uses() == {f"id-{other[-6:]}"}
