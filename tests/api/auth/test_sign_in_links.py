"""How long a link is good, and what of it is kept."""

from appliance.api.auth.sign_in_links import LINKS_MAX, SignInLinks
from tests.fakes.hand_clock import HandClock


def test_once_and_for_ten_minutes() -> None:
    """Its end is as it was said."""
    clock = HandClock()
    links = SignInLinks(clock)
    token, expires_at = links.make("one")
    assert (expires_at - clock.wall_now()).total_seconds() == 600
    clock.pass_s(599)
    assert links.take(token) == "one"
    assert links.take(token) is None
    late, _ = links.make("one")
    clock.pass_s(600)
    assert links.take(late) is None
    assert links.take("guessed") is None


def test_bounded_and_digested() -> None:
    """The oldest goes for one more; no token stays in memory."""
    links = SignInLinks(HandClock())
    tokens = [links.make(str(number))[0] for number in range(LINKS_MAX + 1)]
    assert all(token not in repr(vars(links)) for token in tokens)
    assert links.take(tokens[0]) is None
    assert links.take(tokens[-1]) == str(LINKS_MAX)
