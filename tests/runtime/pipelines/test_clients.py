"""Clients of a pipeline: the sum of what they said, who is silent, and who is served when not all can be."""

from appliance.clock import NS_PER_S
from appliance.domain.pipeline import PipelineClient
from appliance.runtime.pipelines.clients import SILENT_NS, Clients


def _joined(*fps: float) -> Clients:
    clients = Clients()
    for index, each in enumerate(fps):
        clients.join(PipelineClient(f"c{index}", "t/p", each), index * NS_PER_S)
    return clients


def test_rates_add_up() -> None:
    """The rate is the sum, at once when one joins and when one leaves (SC-03)."""
    clients = _joined(5, 10, 15)
    assert clients.fps == 30
    left = clients.leave("c1")
    assert left is not None
    assert (clients.fps, len(clients), "c1" in clients) == (20, 2, False)
    assert clients.leave("c1") is None


def test_silence() -> None:
    """Who was not heard of for ten seconds has left; a frame of nobody who joined keeps nobody."""
    clients = _joined(5, 10)
    assert clients.saw("c0", 8 * NS_PER_S)
    assert not clients.saw("c9", 8 * NS_PER_S)
    assert not clients.saw(None, 8 * NS_PER_S)
    assert clients.silent(1 * NS_PER_S + SILENT_NS - 1) == []
    assert [one.id for one in clients.silent(1 * NS_PER_S + SILENT_NS)] == ["c1"]
    assert [one.id for one in clients] == ["c0"]


def test_who_sends_seldom_has_more_time() -> None:
    """Three frames of its own, so that what it promised can be kept."""
    clients = _joined(0.01)
    assert clients.silent(300 * NS_PER_S - 1) == []
    assert [one.id for one in clients.silent(300 * NS_PER_S)] == ["c0"]


def test_who_waits_for_an_answer_is_there() -> None:
    """However long that takes; its silence begins with the end of its last frame."""
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


def test_the_newest_go_first() -> None:
    """Where not all fit, the oldest are served as far as their rates do."""
    clients = _joined(5, 10, 15)
    assert clients.served(30) == {"c0", "c1", "c2"}
    assert clients.served(29) == {"c0", "c1"}
    assert clients.served(15) == {"c0", "c1"}
    assert clients.served(4) == set()


def test_a_session_knows_by_itself_when_its_device_has_gone() -> None:
    """However silent it is; frames of others cannot name it, and its rate may change in its place."""
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
