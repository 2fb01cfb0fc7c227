"""Lists in pages."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.api.v1.pages import page_of_all


@given(st.sets(st.text("abc", min_size=1, max_size=4), max_size=30), st.integers(1, 7))
def test_pages_give_every_item_once_and_in_order(names: set[str], limit: int) -> None:
    """Following the cursors visits all, whatever the size of a page; only the last has none."""
    items, seen, cursor = sorted(names), list[str](), ""
    while True:
        one = page_of_all(items, cursor, limit, str, str)
        assert len(one.items) <= limit
        seen += one.items
        if one.next_cursor is None:
            break
        assert len(one.items) == limit
        cursor = one.next_cursor
    assert seen == items
