"""How long a stream may stay that a page opened."""

from dataclasses import replace

from appliance.api.auth.keyring import KeyRing, Principal
from appliance.api.auth.sign_ins import SignIns
from appliance.api.streams.welcome import Welcome
from appliance.domain.access import KeyRecord, Role
from tests.fakes.hand_clock import HandClock

HOUR_S = 3600.0


class Door:
    """A page that is signed in with a good key, and has a stream."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.sign_ins = SignIns(self.clock)
        self.cookie = self.sign_ins.begin("one")
        self.keyring = KeyRing(self.clock, 3, lambda tenant: True)
        self.keyring.fill([KeyRecord("one", "harbour", Role.TENANT, b"digest", self.clock.wall_now())])
        self.principal = Principal("harbour", Role.TENANT, (), "one")
        self.welcome = self.of(self.cookie)

    def of(self, cookie: str | None, principal: Principal | None = None) -> Welcome:
        return Welcome(self.keyring, self.sign_ins, principal or self.principal, cookie)


def test_frames_of_a_stream_prolong_its_sign_in() -> None:
    """A page that streams the night through is signed in in the morning, for a week at most."""
    door = Door()
    for _ in range(24 * 7):
        assert door.welcome.holds(have_frames_come=True)
        door.clock.pass_s(HOUR_S)
    door.clock.pass_s(1)
    assert not door.welcome.holds(have_frames_come=True)


def test_open_stream_without_frames_does_not_prolong_its_sign_in() -> None:
    """The stream ends half a day after the last frame."""
    door = Door()
    assert door.welcome.holds(have_frames_come=True)
    for _ in range(12):
        assert door.welcome.holds(have_frames_come=False)
        door.clock.pass_s(HOUR_S)
    door.clock.pass_s(1)
    assert not door.welcome.holds(have_frames_come=False)


def test_stream_of_an_ended_sign_in_or_key_does_not_go_on() -> None:
    """Signed out, a key that is gone or has expired; without a cookie only the key counts."""
    door = Door()
    with_key = door.of(None)
    ended = door.clock.wall_now()
    door.keyring.put(KeyRecord("two", "harbour", Role.TENANT, b"other", ended, expires_at=ended))
    assert not door.of(None, replace(door.principal, key_id="two")).holds(have_frames_come=True)
    door.sign_ins.end(door.cookie)
    assert not door.welcome.holds(have_frames_come=True)
    assert with_key.holds(have_frames_come=False)
    door.keyring.remove("one")
    assert not with_key.holds(have_frames_come=True)
