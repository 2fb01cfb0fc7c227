"""How long a link is good, and what of it is kept."""

from appliance.api.auth.sign_in_links import PER_KEY_MAX, SignInLinks
from tests.fakes.hand_clock import HandClock


def taken(links: SignInLinks, token: str) -> str | None:
    link = links.take(token)
    return None if link is None else link.key_id


def test_sign_in_link_works_once_and_for_ten_minutes() -> None:
    """As its stated expiry says."""
    clock = HandClock()
    links = SignInLinks(clock)
    token, expires_at = links.make("one")
    assert (expires_at - clock.wall_now()).total_seconds() == 600
    clock.pass_s(599)
    assert taken(links, token) == "one"
    assert taken(links, token) is None
    late, _ = links.make("one")
    clock.pass_s(600)
    assert taken(links, late) is None
    assert taken(links, "guessed") is None


def test_sign_in_links_of_a_key_are_bounded_and_kept_as_digests() -> None:
    """The oldest link of a key makes room for a new one, and no link of another key does; no token stays in memory."""
    links = SignInLinks(HandClock())
    other, _ = links.make("other")
    tokens = [links.make("one")[0] for _ in range(PER_KEY_MAX + 1)]
    assert all(token not in repr(vars(links)) for token in tokens)
    assert taken(links, tokens[0]) is None
    assert [taken(links, token) for token in tokens[1:]] == ["one"] * PER_KEY_MAX
    assert taken(links, other) == "other"
