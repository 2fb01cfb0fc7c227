"""Clients of a pipeline: the sum of what they said, who is silent, and who is served when not all can be."""

from appliance.clock import NS_PER_S
from appliance.domain.pipeline import PipelineClient
from appliance.runtime.pipelines.clients import SILENT_NS, Clients


def _joined(*fps: float) -> Clients:
    clients = Clients()
    for index, each in enumerate(fps):
        clients.join(PipelineClient(f"c{index}", "t/p", each), index * NS_PER_S)
    return clients


def test_rate_of_clients_is_the_sum_of_their_rates() -> None:
    """At once when a client joins and when a client leaves (SC-03)."""
    clients = _joined(5, 10, 15)
    assert clients.fps == 30
    left = clients.leave("c1")
    assert left is not None
    assert (clients.fps, len(clients), "c1" in clients) == (20, 2, False)
    assert clients.leave("c1") is None


def test_client_silent_for_ten_seconds_has_left() -> None:
    """A frame without a joined client keeps no client."""
    clients = _joined(5, 10)
    assert clients.saw("c0", 8 * NS_PER_S)
    assert not clients.saw("c9", 8 * NS_PER_S)
    assert not clients.saw(None, 8 * NS_PER_S)
    assert clients.silent(1 * NS_PER_S + SILENT_NS - 1) == []
    assert [one.id for one in clients.silent(1 * NS_PER_S + SILENT_NS)] == ["c1"]
    assert [one.id for one in clients] == ["c0"]


def test_client_that_sends_seldom_may_be_silent_for_three_frames() -> None:
    """So that a promised rate can be kept."""
    clients = _joined(0.01)
    assert clients.silent(300 * NS_PER_S - 1) == []
    assert [one.id for one in clients.silent(300 * NS_PER_S)] == ["c0"]


def test_client_that_waits_for_an_answer_is_not_silent() -> None:
    """However long that takes; the client's silence begins with the end of its last frame."""
    clients = _joined(5)
    assert clients.begins("c0", NS_PER_S)
    assert clients.begins("c0", 2 * NS_PER_S)
    clients.ends("c0", 3 * NS_PER_S)
    assert clients.silent(100 * NS_PER_S) == []
    clients.ends("c0", 200 * NS_PER_S)
    assert clients.silent(200 * NS_PER_S + SILENT_NS - 1) == []
    assert [one.id for one in clients.silent(200 * NS_PER_S + SILENT_NS)] == ["c0"]
    clients.ends("c0", 300 * NS_PER_S)
    assert not clients.begins("c0", 300 * NS_PER_S)


def test_newest_clients_are_left_out_first_where_not_all_fit() -> None:
    """The oldest clients are served as far as their rates fit."""
    clients = _joined(5, 10, 15)
    assert clients.served(30) == {"c0", "c1", "c2"}
    assert clients.served(29) == {"c0", "c1"}
    assert clients.served(15) == {"c0", "c1"}
    assert clients.served(4) == set()


def test_client_of_a_session_never_leaves_for_silence() -> None:
    """The session knows when its device has gone. Frames of others cannot name the client, and its rate may change in
    place.
    """
    clients = _joined(5)
    clients.join(PipelineClient("s1", "t/p", 10, is_session=True), 0)
    clients.join(PipelineClient("c2", "t/p", 1), 600 * NS_PER_S)
    assert [one.id for one in clients.silent(600 * NS_PER_S)] == ["c0"]
    assert (clients.takes("c2"), clients.takes("s1"), clients.takes("c0")) == (True, False, False)
    clients.change("s1", 4.0)
    clients.change("nobody", 4.0)
    assert [(one.id, one.fps, one.is_session) for one in clients] == [("s1", 4.0, True), ("c2", 1, False)]
    assert clients.get("s1") is not None
    assert clients.get("nobody") is None
