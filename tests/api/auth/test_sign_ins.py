"""How long a cookie stands for its key, and what of it is kept."""

from appliance.api.auth.sign_ins import SignIns
from tests.fakes.hand_clock import HandClock


def later(clock: HandClock, hours: float) -> None:
    clock.pass_s(hours * 3600)


def test_sign_in_ends_after_half_a_day_without_a_request() -> None:
    """Each use begins the half day anew."""
    clock = HandClock()
    sign_ins = SignIns(clock)
    cookie = sign_ins.begin("one")
    for _ in range(3):
        later(clock, 11.9)
        assert sign_ins.key_of(cookie) == "one"
    later(clock, 12.1)
    assert sign_ins.key_of(cookie) is None


def test_sign_in_that_is_only_checked_is_not_prolonged() -> None:
    """An open stream asks every second whether it may go on."""
    clock = HandClock()
    sign_ins = SignIns(clock)
    cookie = sign_ins.begin("one")
    for _ in range(11):
        later(clock, 1)
        assert sign_ins.stands_for(cookie, "one")
        assert not sign_ins.stands_for(cookie, "other")
    later(clock, 1.1)
    assert not sign_ins.stands_for(cookie, "one")
    assert sign_ins.key_of(cookie) is None
    again = sign_ins.begin("one")
    sign_ins.end(again)
    assert not sign_ins.stands_for(again, "one")


def test_sign_in_ends_after_a_week_of_use() -> None:
    """Then the key is shown again."""
    clock = HandClock()
    sign_ins = SignIns(clock)
    cookie = sign_ins.begin("one")
    for _ in range(16):
        later(clock, 10.4)
        assert sign_ins.key_of(cookie) == "one"
    later(clock, 2)
    assert sign_ins.key_of(cookie) is None


def test_sign_in_made_from_another_ends_with_the_week_of_the_first() -> None:
    """A browser that is signed in cannot prolong that by signing in anew without the key."""
    clock = HandClock()
    sign_ins = SignIns(clock)
    first = sign_ins.begin("one")
    for _ in range(15):
        later(clock, 11)
        assert sign_ins.key_of(first) == "one"
    second = sign_ins.begin("one", sign_ins.began_at(first))
    later(clock, 4)
    assert sign_ins.key_of(second) is None
    assert sign_ins.began_at("guessed") is None


def test_sign_ins_are_saved_when_begun_ended_and_used_now_and_then() -> None:
    """A process that reads the saved file goes on with the sign-ins of it."""
    clock = HandClock()
    sign_ins = SignIns(clock)
    assert sign_ins.unsaved() is None
    cookie = sign_ins.begin("one")
    kept = sign_ins.unsaved()
    assert kept is not None
    assert cookie not in repr(kept)
    assert sign_ins.unsaved() is None
    clock.pass_s(240)
    assert sign_ins.key_of(cookie) == "one"
    assert sign_ins.unsaved() is None
    later(clock, 1)
    assert sign_ins.key_of(cookie) == "one"
    assert sign_ins.unsaved() is not None
    after = SignIns(clock, kept)
    assert after.key_of(cookie) == "one"
    after.end_of_key("one")
    assert after.key_of(cookie) is None
    assert after.unsaved() == ()
