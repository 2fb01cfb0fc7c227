"""Which variants stages are offered: such as fit into memory together, whichever is chosen."""

from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.catalogue import Accuracy, Application, Evidence, Model, TaskSpec, Tenant
from appliance.domain.pipeline import Ask
from appliance.policies.selection.most_accurate import MostAccurate
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.pipelines.offers import Offers, Place, Room, bytes_together, fitting, offers_of, without_room
from tests.fakes.engine import EngineBench, make_variant
from tests.fakes.processor import Cost

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
    return offers_of(stage, BOX.catalogue.entry(f"t/{application}"), lambda one: ("cpu",))


def _names(found: dict[Place, Offers], *, wanted: bool = False) -> dict[str, str]:
    return {id: "".join(one.name[1] for one in (own.wanted if wanted else own.all)) for (id, _), own in found.items()}


def _fitted(applications: dict[str, str], room_bytes: int) -> dict[Place, Offers]:
    """`applications`: pipeline → what its one stage asks."""
    places = {(id, "look"): name for id, name in applications.items()}
    return fitting({one: _offers(name) for one, name in places.items()}, places, [Room(tuple(places), room_bytes)])


def test_the_largest_leave_first() -> None:
    """Of all that several pipelines are offered; where what was wanted leaves, the nearest cheaper one is wanted."""
    assert _names(_fitted({"p": "a", "q": "b"}, 75)) == {"p": "012", "q": "012"}
    assert _names(_fitted({"p": "a", "q": "b"}, 74)) == {"p": "12", "q": "012"}
    assert _names(_fitted({"p": "a", "q": "b"}, 74), wanted=True) == {"p": "1", "q": "0"}
    assert _names(_fitted({"p": "a", "q": "b"}, 50)) == {"p": "12", "q": "12"}


def test_who_share_an_application() -> None:
    """It is in memory once where they choose alike: the cheaper ones leave, and what is wanted stays. Where that does
    not fit either, a smaller one is wanted of all.
    """
    both = {"p": "a", "q": "a"}
    assert _names(_fitted(both, 70)) == {"p": "012", "q": "012"}
    assert _names(_fitted(both, 69)) == {"p": "0", "q": "0"}
    assert _names(_fitted(both, 39)) == {"p": "2", "q": "2"}


def test_the_only_one_stays() -> None:
    """Whatever there is room for: nobody else can serve."""
    assert _names(_fitted({"p": "a", "q": "c"}, 0)) == {"p": "2", "q": "2"}


@given(
    st.dictionaries(st.sampled_from("pqrs"), st.sampled_from("abc"), min_size=1, max_size=4),
    st.integers(0, 200),
)
def test_whatever_is_chosen_fits(applications: dict[str, str], room_bytes: int) -> None:
    """One variant of each stage, in memory once by application: no choice takes more than there is, unless nobody has a
    choice any more.
    """
    found = _fitted(applications, room_bytes)
    if all(len(own.all) == 1 for own in found.values()):
        return
    for chosen in product(*(own.all for own in found.values())):
        builds = {one.servable.build_id: one.servable.resident_bytes for one in chosen}
        assert sum(builds.values()) <= room_bytes
    assert all(own.wanted for own in found.values())


def test_stage_that_names_an_unverified_variant_is_offered_it() -> None:
    """As a request that names it; a stage that names none is not."""
    catalogue = Catalogue(MostAccurate())
    catalogue.put_tenant(Tenant("t"))
    noise = Accuracy(99.0, "1-error", "fp32", 4, evidence=Evidence.NOISE)
    variants = make_variant("t/m", "fp32"), replace(make_variant("t/m", "int8"), accuracy=noise)
    catalogue.put_model(Model("t/m", "t", "m", TaskSpec(), variants))
    catalogue.put_application(Application("t/m", "t", "m", "t/m"))

    def offered(variant: str | None) -> list[str]:
        found = offers_of(
            Ask(name="s", application_id="t/m", variant=variant), catalogue.entry("t/m"), lambda one: ("cpu",)
        )
        return [one.name for one in found.all]

    assert (offered("int8"), offered(None), offered("gone")) == (["int8"], ["fp32"], [])


def test_loads_of_variants_need_room_too() -> None:
    """They come one after the other, the one whose load takes most beside what stays first."""
    box = EngineBench(1000)
    for name in "ab":
        box.add({"v": Cost(resident_bytes=10, peak_bytes=30)}, name=name)
    a, b = (box.catalogue.entry(f"t/{name}").servables["v"] for name in "ab")
    assert bytes_together([a]) == 30
    assert bytes_together([a, b]) == 40
    assert bytes_together([*(BOX.catalogue.entry(f"t/{name}").servables["v1"] for name in "ab"), a]) == 60


def test_pipelines_without_room_are_the_last_ones() -> None:
    """Of those that are in one room; who comes first is served, and whoever fits beside it."""
    places: dict[Place, str] = {("p", "look"): "a", ("q", "look"): "b", ("r", "look"): "c"}
    offers = fitting({one: _offers(name) for one, name in places.items()}, places, [Room(tuple(places), 12)])
    assert _names(offers) == {"p": "2", "q": "2", "r": "2"}
    assert without_room(offers, places, [Room(tuple(places), 26)], "pqr") == set()
    assert without_room(offers, places, [Room(tuple(places), 12)], "pqr") == {"q"}
    assert without_room(offers, places, [Room(tuple(places), 15)], "qpr") == {"p", "r"}
