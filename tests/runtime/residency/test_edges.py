"""WindowEdges against the search through all that it replaces."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.runtime.residency.edges import WindowEdges

_TIMES = st.none() | st.integers(0, 100)
_PUTS = st.lists(st.tuples(st.sampled_from("abcd"), _TIMES, _TIMES, st.integers(0, 9)), max_size=200)


@given(_PUTS, st.integers(0, 120), st.integers(0, 20), st.integers(0, 20))
def test_window_edges_go_by_latest_put_of_application(
    puts: list[tuple[str, int | None, int | None, int]], now_ns: int, delta_ns: int, lead_ns: int
) -> None:
    edges = WindowEdges()
    latest: dict[str, int] = {}
    for name, window_ns, predicted_ns, load_ns in puts:
        edges.put(name, window_ns, predicted_ns, load_ns)
        latest.pop(name, None)
        if window_ns is not None:
            latest[name] = window_ns + delta_ns + 1
        elif predicted_ns is not None:
            latest[name] = predicted_ns - load_ns - delta_ns - lead_ns
    assert edges.next_ns(delta_ns, lead_ns) == min(latest.values(), default=None)
    assert edges.due(now_ns, delta_ns, lead_ns) == {name for name, at_ns in latest.items() if at_ns <= now_ns}
    assert edges.due(now_ns, delta_ns, lead_ns) == set()


@given(_PUTS)
def test_window_edges_of_forgotten_application_are_never_due(
    puts: list[tuple[str, int | None, int | None, int]],
) -> None:
    edges = WindowEdges()
    for put in puts:
        edges.put(*put)
    for name in "abcd":
        edges.forget(name)
    assert edges.next_ns(0, 0) is None
    assert edges.due(1000, 1000, 1000) == set()
