"""Which variants stages are offered: such as fit into memory together, whichever is chosen."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.catalogue import Accuracy, Application, Evidence, Model, TaskSpec, Tenant
from appliance.domain.pipeline import Ask
from appliance.policies.selection.most_accurate import MostAccurate
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.pipelines.offers import Offers, Place, Room, fitting, offers_of, without_room
from appliance.runtime.residency.account import bytes_together
from tests.fakes.engine import EngineBench, make_variant
from tests.fakes.processor import Cost
from tests.harness.work import calls_of, turns
from tests.runtime.filled import fill

SIZES = {"a": (40, 30, 10), "b": (35, 20, 15), "c": (25, 5, 1)}
"""Application → bytes of its variants, from the most accurate on, which is the slowest."""


def _box() -> EngineBench:
    box = EngineBench(1000)
    for name, sizes in SIZES.items():
        costs = {f"v{at}": Cost(run_ms=30 - 10 * at, resident_bytes=size) for at, size in enumerate(sizes)}
        box.add(costs, name=name)
    return box


BOX = _box()


def _offers(application: str) -> Offers:
    stage = Ask(name="look", application_id=f"t/{application}")
    return offers_of(stage, BOX.catalogue.entry(f"t/{application}"), lambda one: ("cpu",), lambda build: False)


def _names(found: dict[Place, Offers], *, wanted: bool = False) -> dict[str, str]:
    return {id: "".join(one.name[1] for one in (own.wanted if wanted else own.all)) for (id, _), own in found.items()}


def _fitted(applications: dict[str, str], room_bytes: int) -> dict[Place, Offers]:
    """`applications`: pipeline → what its one stage asks."""
    places = {(id, "look"): name for id, name in applications.items()}
    offers = {one: _offers(name) for one, name in places.items()}
    return asyncio.run(fitting(offers, places, [Room(tuple(places), room_bytes)]))


def _without_room(
    offers: dict[Place, Offers], places: dict[Place, str], room_bytes: int, pipelines: str
) -> Collection[str]:
    return asyncio.run(without_room(offers, places, [Room(tuple(places), room_bytes)], pipelines))


def test_largest_variants_leave_the_offers_first() -> None:
    """Of all that several pipelines are offered; where a wanted variant leaves, the nearest cheaper one is wanted."""
    assert _names(_fitted({"p": "a", "q": "b"}, 75)) == {"p": "012", "q": "012"}
    assert _names(_fitted({"p": "a", "q": "b"}, 74)) == {"p": "12", "q": "012"}
    assert _names(_fitted({"p": "a", "q": "b"}, 74), wanted=True) == {"p": "1", "q": "0"}
    assert _names(_fitted({"p": "a", "q": "b"}, 50)) == {"p": "12", "q": "12"}


def test_pipelines_sharing_an_application_count_memory_once() -> None:
    """Where they choose alike: the cheaper variants leave, and the wanted one stays. Where that does not fit either, a
    smaller one is wanted of all.
    """
    both = {"p": "a", "q": "a"}
    assert _names(_fitted(both, 70)) == {"p": "012", "q": "012"}
    assert _names(_fitted(both, 69)) == {"p": "0", "q": "0"}
    assert _names(_fitted(both, 39)) == {"p": "2", "q": "2"}


def test_last_variant_of_a_stage_stays_offered_without_room() -> None:
    """No other variant can serve the stage."""
    assert _names(_fitted({"p": "a", "q": "c"}, 0)) == {"p": "2", "q": "2"}


@given(
    st.dictionaries(st.sampled_from("pqrs"), st.sampled_from("abc"), min_size=1, max_size=4),
    st.integers(0, 200),
)
def test_offered_variants_fit_memory_in_any_choice(applications: dict[str, str], room_bytes: int) -> None:
    """One variant of each stage, in memory once by application: no choice takes more than there is, unless no stage has
    a choice any more.
    """
    found = _fitted(applications, room_bytes)
    if all(len(own.all) == 1 for own in found.values()):
        return
    for chosen in product(*(own.all for own in found.values())):
        builds = {one.servable.build_id: one.servable.resident_bytes for one in chosen}
        assert sum(builds.values()) <= room_bytes
    assert all(own.wanted for own in found.values())


def test_stage_naming_an_unverified_variant_is_offered_that_variant() -> None:
    """As a request that names the variant; a stage that names none is not."""
    catalogue = Catalogue(MostAccurate())
    catalogue.put_tenant(Tenant("t"))
    noise = Accuracy(99.0, "1-error", "fp32", 4, evidence=Evidence.NOISE)
    variants = make_variant("t/m", "fp32"), replace(make_variant("t/m", "int8"), accuracy=noise)
    catalogue.put_model(Model("t/m", "t", "m", TaskSpec(), variants))
    catalogue.put_application(Application("t/m", "t", "m", "t/m"))

    def offered(variant: str | None) -> list[str]:
        stage = Ask(name="s", application_id="t/m", variant=variant)
        found = offers_of(stage, catalogue.entry("t/m"), lambda one: ("cpu",), lambda build: False)
        return [one.name for one in found.all]

    assert (offered("int8"), offered(None), offered("gone")) == (["int8"], ["fp32"], [])


def test_loads_of_variants_need_room_too() -> None:
    """Variants are loaded one after the other, first the one whose load takes most beside what stays."""
    box = EngineBench(1000)
    for name in "ab":
        box.add({"v": Cost(resident_bytes=10, peak_bytes=30)}, name=name)
    a, b = (box.catalogue.entry(f"t/{name}").servables["v"] for name in "ab")
    assert bytes_together([a]) == 30
    assert bytes_together([a, b]) == 40
    assert bytes_together([*(BOX.catalogue.entry(f"t/{name}").servables["v1"] for name in "ab"), a]) == 60


def test_pipelines_without_room_are_the_last_in_order() -> None:
    """Of those that are in one room; the first pipeline is served, and each that fits beside it."""
    places: dict[Place, str] = {("p", "look"): "a", ("q", "look"): "b", ("r", "look"): "c"}
    offers = _fitted({"p": "a", "q": "b", "r": "c"}, 12)
    assert _names(offers) == {"p": "2", "q": "2", "r": "2"}
    assert _without_room(offers, places, 26, "pqr") == set()
    assert _without_room(offers, places, 12, "pqr") == {"q"}
    assert _without_room(offers, places, 15, "qpr") == {"p", "r"}


@dataclass(frozen=True, slots=True)
class _Crowd:
    """So many applications of three variants each, with so many pipelines of two stages for each; memory has room for
    all of the smallest variants but two.
    """

    offers: dict[Place, Offers]
    applications: dict[Place, str]
    rooms: tuple[Room, ...]

    @classmethod
    def of(cls, applications: int, pipelines_each: int) -> "_Crowd":
        box = EngineBench(1000)
        offered = {}
        for name in (f"a{at}" for at in range(applications)):
            box.add({f"v{at}": Cost(run_ms=30 - 10 * at, resident_bytes=30 - 10 * at) for at in range(3)}, name=name)
            ask = Ask(name="look", application_id=f"t/{name}")
            entry = box.catalogue.entry(f"t/{name}")
            offered[name] = offers_of(ask, entry, lambda one: ("cpu",), lambda build: False)
        names = list(offered)
        places = {
            (f"p{at}", f"s{stage}"): names[(at + stage) % applications]
            for at in range(applications * pipelines_each)
            for stage in range(2)
        }
        room = Room(tuple(places), 10 * (applications - 2))
        return cls({place: offered[name] for place, name in places.items()}, places, (room,))

    async def fitted(self) -> dict[Place, Offers]:
        return await fitting(self.offers, self.applications, self.rooms)

    async def without_room(self) -> set[str]:
        smallest = {place: Offers(one.all[-1:]) for place, one in self.offers.items()}
        return await without_room(
            smallest, self.applications, self.rooms, list(dict.fromkeys(id for id, _ in smallest))
        )


def _calls_of(work: Coroutine[Any, Any, object]) -> int:
    return calls_of(lambda: asyncio.run(work))


CROWD_WORK = [_Crowd.fitted, _Crowd.without_room]


@pytest.mark.parametrize("work", CROWD_WORK)
def test_offers_of_twice_the_pipelines_take_under_three_times_the_work(
    work: Callable[[_Crowd], Coroutine[Any, Any, object]],
) -> None:
    few, many = (_calls_of(work(_Crowd.of(count, 20))) for count in (8, 16))
    assert many < 3 * few


@pytest.mark.parametrize("work", CROWD_WORK)
def test_offers_of_many_pipelines_without_room_are_looked_at_in_many_turns(
    work: Callable[[_Crowd], Coroutine[Any, Any, object]],
) -> None:
    """Other tasks have the event loop meanwhile."""
    crowd = _Crowd.of(16, 20)
    all_calls = _calls_of(work(crowd))
    with turns() as seen:
        asyncio.run(work(crowd))
    assert seen.calls_max < all_calls / 5


def test_stage_is_offered_an_unmeasured_variant_by_its_estimate() -> None:
    """A pipeline is planned as soon as its networks answer; a network of which no run was timed is no choice."""
    catalogue, original = Catalogue(MostAccurate()), make_variant("t/m", "fp32", measured=False)

    def offered(inspected_ms: float | None) -> list[float]:
        fill(catalogue, "t", "m", [replace(original, inspected_ms=inspected_ms)])
        stage = Ask(name="look", application_id="t/m")
        found = offers_of(stage, catalogue.entry("t/m"), lambda one: ("cpu",), lambda build: False)
        return [one.quickest_ms for one in found.all]

    assert (offered(None), offered(20.0)) == ([], [20.0])
