"""Handing out: one thing after the other, and not anew inside itself."""

from appliance.runtime.serving.handing_out import HandingOut


def test_nested_handing_out_leaves_the_work_to_the_outer_call() -> None:
    """In its order, and the inner call says that it did nothing."""
    line, given, inside = [1, 2], [], []
    handing = HandingOut()

    def give(one: int) -> None:
        given.append(one)
        if one == 1:
            line.append(3)
            inside.append(handing.all(following, given.append))

    def following() -> int | None:
        return line.pop(0) if line else None

    assert handing.all(following, give)
    assert (given, inside) == ([1, 2, 3], [False])


def test_handing_out_that_failed_can_begin_anew() -> None:
    handing = HandingOut()
    line = [0, 5]

    def following() -> int | None:
        return line.pop(0) if line else None

    given: list[float] = []
    try:
        handing.all(following, lambda one: given.append(1 / one))
    except ZeroDivisionError:
        assert handing.all(following, lambda one: given.append(1 / one))
    assert given == [0.2]
