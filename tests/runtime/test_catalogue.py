"""The engine's picture of tenants, models and applications."""

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from appliance.domain.catalogue import (
    Accuracy,
    Application,
    Evidence,
    Latency,
    Model,
    Prefer,
    Profile,
    Quota,
    SampleScore,
    TaskSpec,
    Tenant,
    TensorSpec,
    Unverified,
    Variant,
)
from appliance.domain.errors import (
    ContentDamaged,
    LoadFailed,
    ModelUnavailable,
    UnknownApplication,
    UnknownModel,
    UnknownTenant,
    UnknownVariant,
    VariantQuarantined,
)
from appliance.domain.errors.unavailable import UPLOAD_AGAIN
from appliance.domain.isolation import Isolation
from appliance.domain.states import VariantState
from appliance.policies.selection.by_profile import ByProfile
from appliance.policies.selection.most_accurate import MostAccurate
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.profiles.store import ProfileStore
from appliance.runtime.servable_factory import ServableFactory
from tests.fakes.engine import build_of, make_variant
from tests.fakes.hand_clock import HandClock
from tests.fakes.processor import Cost
from tests.fakes.sinks import Events
from tests.runtime.filled import fill


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue(MostAccurate(), ServableFactory(profiles=ProfileStore(HandClock(), Events(), {}, 0.1)))


# -- names -------------------------------------------------------------------------------------------------------------


def test_own_application_hides_a_shared_application_of_equal_name(catalogue: Catalogue) -> None:
    """A tenant means its own first; a tenant without one finds the shared application, as long as that is shared; a
    private one of others is not there. So with models.
    """
    shared = fill(catalogue, "box", "faces", shared=True)
    own = fill(catalogue, "a", "faces")
    fill(catalogue, "b", "private")
    assert catalogue.resolve("a", "faces") is own
    assert catalogue.resolve("c", "faces") is shared
    assert catalogue.resolve_model("a", "faces").tenant == "a"
    assert catalogue.resolve_model("c", "faces").tenant == "box"
    fill(catalogue, "box", "faces", shared=False)
    for name in ("private", "faces"):
        with pytest.raises(UnknownApplication):
            catalogue.resolve("c", name)
        with pytest.raises(UnknownModel):
            catalogue.resolve_model("c", name)


def test_shared_name_of_two_tenants_means_the_first_tenant_by_name(catalogue: Catalogue) -> None:
    """For every caller, whichever was shared first; when that one goes the other is found."""
    fill(catalogue, "y", "faces", shared=True)
    first = fill(catalogue, "x", "faces", shared=True)
    assert catalogue.resolve("c", "faces") is first
    assert catalogue.resolve_model("c", "faces").tenant == "x"
    catalogue.remove_application("x/faces")
    assert catalogue.resolve("c", "faces").tenant == "y"


def test_lists_of_a_tenant_show_own_and_unhidden_shared_entries(catalogue: Catalogue) -> None:
    fill(catalogue, "box", "faces", shared=True)
    fill(catalogue, "box", "text", shared=True)
    fill(catalogue, "box", "secret")
    fill(catalogue, "a", "zebra")
    fill(catalogue, "a", "faces")
    assert [a.id for a in catalogue.visible("a")] == ["a/faces", "a/zebra", "box/text"]
    assert [m.id for m in catalogue.visible_models("a")] == ["a/faces", "box/text", "a/zebra"]
    assert [a.id for a in catalogue.visible("b")] == ["box/faces", "box/text"]


def test_tenant_is_found_until_removed(catalogue: Catalogue) -> None:
    catalogue.put_tenant(Tenant("a"))
    assert catalogue.has_tenant("a")
    assert catalogue.tenant("a").name == "a"
    catalogue.remove_tenant("a")
    assert not catalogue.has_tenant("a")
    with pytest.raises(UnknownTenant):
        catalogue.tenant("a")


# -- entries -----------------------------------------------------------------------------------------------------------


def test_entry_of_an_application_follows_the_model(catalogue: Catalogue) -> None:
    """No model: unavailable. Then the model comes, changes and goes, and the entry with it."""
    catalogue.put_application(Application("t/a", "t", "a", "t/m"))
    with pytest.raises(ModelUnavailable, match="'a'"):
        catalogue.entry("t/a")
    one = make_variant("t/m", "one", accuracy=50.0)
    catalogue.put_model(Model("t/m", "t", "m", TaskSpec(), (one,)))
    assert [s.variant.name for s in catalogue.entry("t/a").order] == ["one"]
    two = make_variant("t/m", "two", accuracy=90.0)
    catalogue.put_model(Model("t/m", "t", "m", TaskSpec(), (one, two)))
    assert [s.variant.name for s in catalogue.entry("t/a").order] == ["two", "one"]
    assert catalogue.model_of(catalogue.resolve("t", "a")).id == "t/m"
    catalogue.remove_model("t/m")
    with pytest.raises(ModelUnavailable):
        catalogue.entry("t/a")
    catalogue.remove_application("t/a")
    assert catalogue.entries() == []


def test_variants_that_are_not_ready_are_not_chosen(catalogue: Catalogue) -> None:
    """An excluded variant serves when it is named, a variant in the making or failed not at all."""
    states = {"r": VariantState.READY, "s": VariantState.EXCLUDED, "m": VariantState.MAKING, "f": VariantState.FAILED}
    fill(catalogue, "t", "m", [make_variant("t/m", name, state=state, accuracy=90.0) for name, state in states.items()])
    entry = catalogue.entry("t/m")
    assert [s.variant.name for s in entry.order] == ["r"]
    assert catalogue.servable(entry, "s").variant.name == "s"
    for name in "mf":
        with pytest.raises(ModelUnavailable, match=f"m:{name}"):
            catalogue.servable(entry, name)
    with pytest.raises(UnknownVariant):
        catalogue.servable(entry, "x")


def test_damaged_variant_asks_for_a_new_upload(catalogue: Catalogue) -> None:
    """In the place of "not available", whether a request names it or not."""
    lost = replace(make_variant("t/m", "fp32", state=VariantState.FAILED), reason=f"damaged; {UPLOAD_AGAIN}")
    fill(catalogue, "t", "m", [lost])
    with pytest.raises(ContentDamaged, match="upload the same model again"):
        catalogue.most_wanted(catalogue.entry("t/m"))
    with pytest.raises(ContentDamaged, match="upload the same model again"):
        catalogue.servable(catalogue.entry("t/m"), "fp32")


def test_unverified_variants_are_chosen_only_where_allowed(catalogue: Catalogue) -> None:
    """The original, samples, traffic and scenarios verify a variant; noise does not, nor does no accuracy at all."""
    accuracies = {each: Accuracy(90.0, "top-1", "fp32", 9, evidence=each) for each in Evidence}
    variants = [replace(make_variant("t/m", each.value), accuracy=one) for each, one in accuracies.items()]
    unmeasured, original = make_variant("t/m", "unmeasured"), make_variant("t/m", "fp32")
    application = fill(catalogue, "t", "m", [*variants, unmeasured, original])
    entry = catalogue.entry("t/m")
    verified = {"original", "samples", "traffic", "stated", "fp32"}
    assert {s.name for s in entry.order} == verified
    assert catalogue.servable(entry, "noise").variant.doubt.startswith("noise is unverified")
    assert original.evidence is Evidence.ORIGINAL
    by_evidence = dict(zip(Evidence, variants, strict=True))
    alone = fill(catalogue, "t", "alone", [by_evidence[Evidence.NOISE]])
    with pytest.raises(LoadFailed, match="name it, or set unverified of the application"):
        catalogue.most_wanted(catalogue.entry(alone.id))
    off = fill(catalogue, "t", "off", [by_evidence[Evidence.DISAGREED]])
    with pytest.raises(LoadFailed, match=r"name it$"):
        catalogue.most_wanted(catalogue.entry(off.id))
    catalogue.put_application(replace(application, unverified=Unverified.ALLOW))
    assert {s.name for s in catalogue.entry("t/m").order} == verified | {"noise", "calibration", "unmeasured"}


def test_request_for_any_variant_is_told_that_all_are_quarantined(catalogue: Catalogue) -> None:
    """With the reason; not while another variant serves, and not where there never was a variant."""
    away = dataclasses.replace(make_variant("a/m", "int8", state=VariantState.QUARANTINED), reason="crashed thrice")
    alone, beside = (
        fill(catalogue, "a", "alone", [away]),
        fill(catalogue, "a", "beside", [away, make_variant("a/m", "v", accuracy=90.0)]),
    )
    with pytest.raises(VariantQuarantined, match="crashed thrice; release it"):
        catalogue.most_wanted(catalogue.entry(alone.id))
    assert catalogue.most_wanted(catalogue.entry(beside.id)).name == "v"
    with pytest.raises(ModelUnavailable):
        catalogue.most_wanted(catalogue.entry(fill(catalogue, "a", "empty").id))


def test_crash_in_a_guard_counts_only_for_variants_of_that_tenant(catalogue: Catalogue) -> None:
    """Equal content of two tenants is one build in the service; what crashed in a guard is one tenant's."""
    ours, theirs = make_variant("a/m", "v", content="same"), make_variant("b/m", "v", content="same")
    fill(catalogue, "a", "m", [ours])
    fill(catalogue, "b", "m", [theirs])
    assert catalogue.variants_of(build_of(ours)) == ["a/m:v", "b/m:v"]
    assert catalogue.variants_of(catalogue.servables.build_of(ours, "a")) == ["a/m:v"]


@pytest.mark.parametrize(
    ("box", "quota", "reader"),
    [("auto", None, "a"), ("process", None, "a"), ("none", None, None), ("auto", "none", None), ("none", "auto", "a")],
)
def test_assets_of_a_model_are_read_in_the_owners_guard(box: str, quota: str | None, reader: str | None) -> None:
    """However harmless the graph is, unless there are no guards."""
    catalogue = Catalogue(MostAccurate(), ServableFactory(isolation=Isolation(box)))
    application = fill(catalogue, "a", "m", [make_variant("a/m", "v")])
    catalogue.put_tenant(Tenant("a", Quota(isolation=Isolation(quota) if quota else None)))
    assert catalogue.servables.reader_of(catalogue.model_of(application)) == reader


def test_order_of_variants_follows_slo_and_accuracy_floor(catalogue: Catalogue) -> None:
    """Both are the application's."""
    good = make_variant("t/m", "good", Cost(run_ms=50), accuracy=90.0)
    fast = make_variant("t/m", "fast", Cost(run_ms=5), accuracy=50.0)
    fill(catalogue, "t", "m", [good, fast], slo_ms=20)
    assert [s.variant.name for s in catalogue.entry("t/m").order] == ["fast", "good"]
    fill(catalogue, "t", "m", [good, fast], slo_ms=20, floor=80.0)
    assert [s.variant.name for s in catalogue.entry("t/m").order] == ["good"]


def test_rungs_of_one_file_are_one_build(catalogue: Catalogue) -> None:
    """Equal content: one build, as large as its largest rung was measured, used by every application that refers to
    it.
    """
    small = make_variant("t/m", "small", Cost(10, 20), content="same")
    large = make_variant("t/m", "large", Cost(30, 35), content="same")
    new = make_variant("t/m", "new", content="same", measured=False)
    fill(catalogue, "t", "m", [small, large, new])
    fill(catalogue, "u", "m", [make_variant("u/m", "v", content="same"), make_variant("u/m", "w")])
    for name in ("small", "large", "new"):
        servable = catalogue.entry("t/m").servables[name]
        assert (servable.build_id, servable.resident_bytes, servable.peak_bytes) == (build_of(small), 30, 35)
    assert catalogue.users_of(build_of(small)) == ("t/m", "u/m")
    assert set(catalogue.figures_of("u/m")) == {s.build_id for s in catalogue.entry("u/m").servables.values()}


def test_users_of_a_build_follow_every_change(catalogue: Catalogue) -> None:
    """Asked again after each change of applications and models."""
    variant = make_variant("t/m", "v")
    build = build_of(variant)
    assert catalogue.users_of(build) == ()
    fill(catalogue, "t", "m", [variant])
    assert catalogue.users_of(build) == ("t/m",)
    catalogue.put_application(Application("t/a", "t", "a", "t/m"))
    assert catalogue.users_of(build) == ("t/a", "t/m")
    catalogue.remove_application("t/m")
    assert catalogue.users_of(build) == ("t/a",)
    catalogue.put_model(Model("t/m", "t", "m", TaskSpec(), ()))
    assert catalogue.users_of(build) == ()
    catalogue.put_model(Model("t/m", "t", "m", TaskSpec(), (variant,)))
    assert catalogue.users_of(build) == ("t/a",)
    catalogue.remove_model("t/m")
    assert catalogue.users_of(build) == ()


def test_unmeasured_variant_counts_three_times_the_file_size(catalogue: Catalogue) -> None:
    """And nothing is expected of its speed."""
    fill(catalogue, "t", "m", [make_variant("t/m", "v", measured=False)])
    servable = catalogue.entry("t/m").servables["v"]
    assert (servable.resident_bytes, servable.peak_bytes) == (12, 12)
    assert servable.expected_of({"x": np.zeros(4, np.float32)}, 0) is None


def test_unmeasured_variant_is_expected_to_take_what_its_inspection_took(catalogue: Catalogue) -> None:
    """Until it is measured; in the same guard its measured times then take the place of those."""
    inspected = replace(make_variant("t/m", "v", measured=False), inspected_ms=20.0)
    inputs = {"x": np.zeros(1, np.float32)}
    fill(catalogue, "t", "m", [inspected])
    servable = catalogue.entry("t/m").servables["v"]
    assert (servable.p50_ms, servable.p99_ms, servable.resident_bytes) == (20.0, 30.0, 12)
    assert servable.expected_of(inputs, 0) == 20_000_000
    assert servable.variant.profile is None
    measured = replace(make_variant("t/m", "v", Cost(run_ms=8)), inspected_ms=20.0)
    fill(catalogue, "t", "m", [measured])
    assert catalogue.entry("t/m").servables["v"].expected_of(inputs, 0) == 8_000_000


@pytest.mark.parametrize(
    ("shapes", "sent", "items"),
    [
        ([(-1, 3)], [(5, 3)], 5),
        ([(4, 3)], [(4, 3)], 1),
        ([(2, 1, 8), (-1, 3)], [(2, 1, 8), (5, 3)], 5),
        ([(), (-1, 3)], [(), (5, 3)], 5),
        ([()], [()], 1),
        ([(-1, 3)], [], 1),
    ],
    ids=["batch", "fixed", "state first", "scalar first", "scalar", "left out"],
)
def test_items_are_counted_along_a_free_first_axis(
    catalogue: Catalogue, shapes: list[tuple[int, ...]], sent: list[tuple[int, ...]], items: int
) -> None:
    """A fixed first axis holds the rows of one item, whatever stands first among the inputs."""
    specs = tuple(TensorSpec(f"x{i}", "FP32", shape) for i, shape in enumerate(shapes))
    fill(catalogue, "t", "m", [dataclasses.replace(make_variant("t/m", "v"), inputs=specs)])
    inputs = {f"x{i}": np.zeros(shape, np.float32) for i, shape in enumerate(sent)}
    assert catalogue.entry("t/m").servables["v"].items_of(inputs) == items


# -- what the application prefers --------------------------------------------------------------------------------------


def test_change_of_the_first_choice_is_told_with_a_reason() -> None:
    """When the import has measured a variant that loses next to nothing; not at the start, and not without a change."""
    said: list[tuple[str, str, str]] = []
    catalogue = Catalogue(
        ByProfile(),
        loss_points_max=0.5,
        on_choice=lambda application, problem, plan, before: said.append((before, plan.order[0], plan.reason)),
    )
    scores = tuple(SampleScore(score, 1) for score in (0.999, 0.999, 0.998, 0.999))
    accuracy = Accuracy(99.875, "cosine", "fp32", 4, "", scores, "s")
    same = Accuracy(100, "cosine", "fp32", 4, "", (SampleScore(1, 1),) * 4, "s")
    large = replace(make_variant("t/m", "fp32", Cost(100, run_ms=20)), accuracy=same)
    small = replace(make_variant("t/m", "int8", Cost(40, run_ms=8)), accuracy=accuracy)
    application = Application("t/m", "t", "m", "t/m")
    catalogue.put_tenant(Tenant("t"))
    catalogue.put_model(Model("t/m", "t", "m", TaskSpec(), (large,)))
    catalogue.put_application(application)
    for _ in range(2):
        catalogue.put_model(Model("t/m", "t", "m", TaskSpec(), (large, small)))
    assert [(before, after) for before, after, _ in said] == [("fp32", "int8")]
    assert "int8 takes 8 ms, fp32 20" in said[0][2]
    assert catalogue.entry("t/m").order[0].loss == pytest.approx(0.2046, abs=1e-3)
    catalogue.put_application(replace(application, prefer=Prefer.ACCURACY))
    assert catalogue.entry("t/m").order[0].name == "fp32"


THERE = Profile("openvino", 10**6, 10**6, 5.0, 5.0, (Latency(1, 10.0, 12.0),), (), kind="openvino")
"""Of a run that takes half of what it takes on the first kind."""


def of_kinds(*kinds: str, **facts: Any) -> Catalogue:
    return Catalogue(MostAccurate(), ServableFactory(kinds or ("cpu", "openvino"), **facts))


def net(name: str = "v", *others: Profile, tenant: str = "a") -> Variant:
    """A variant whose run takes 20 ms on the first kind; all of them are one file."""
    return replace(make_variant(f"{tenant}/net", name, Cost(run_ms=20), content="c"), other_profiles=others)


def kind_of(catalogue: Catalogue) -> str:
    model = catalogue.entry("a/net").model
    return catalogue.servables.kind_of(model.variants[0], model)


TOGETHER = (Latency(1, 20.0, 22.0), Latency(4, 44.0, 48.0))
AT_ONCE = (Latency(1, 16.0, 17.0), Latency(1, 30.0, 32.0, concurrency=2))


@pytest.mark.parametrize(
    ("own", "there", "kind"),
    [
        ((), {"latencies": TOGETHER, "shared_rows_max": 2}, "cpu"),
        ((), {"latencies": TOGETHER, "shared_rows_max": 4}, "openvino"),
        ((), {"latencies": AT_ONCE}, "openvino"),
        ((Latency(1, 21.0, 22.0, concurrency=2),), {"latencies": AT_ONCE}, "cpu"),
    ],
    ids=["two may share a run", "four may", "quicker alone", "slower where two run at once"],
)
def test_kind_is_chosen_by_shared_runs_and_runs_at_once(
    own: tuple[Latency, ...], there: dict[str, Any], kind: str
) -> None:
    """20 ms either way, and four requests take 44 together; runs at once count where both kinds were measured so."""
    catalogue, one = of_kinds(), net("v", replace(THERE, **there))
    assert one.profile is not None
    profile = replace(one.profile, latencies=(*one.profile.latencies, *own))
    fill(catalogue, "a", "net", [replace(one, profile=profile)])
    assert kind_of(catalogue) == kind


def test_content_serves_on_the_kind_that_costs_least() -> None:
    """All its rungs do, once all are measured there; in a guard it is the first kind; `/v1` is told the same."""
    catalogue = of_kinds()
    fill(catalogue, "a", "net", [net("small"), net("large", THERE)])
    assert {s.build_id for s in catalogue.entry("a/net").servables.values()} == {build_of(net())}

    fill(catalogue, "a", "net", [net("small", THERE), net("large", THERE)])
    entry = catalogue.entry("a/net")
    assert {s.build_id for s in entry.servables.values()} == {build_of(net()).replace("@cpu", "@openvino")}
    assert {(s.p50_ms, s.p99_ms, s.resident_bytes) for s in entry.servables.values()} == {(10.0, 12.0, 10**6)}
    assert kind_of(catalogue) == "openvino"
    assert catalogue.servables.kind_reason_of(entry.model.variants[0], entry.model) == (
        "a request costs 20.1 ms on openvino and 41 on cpu, loads and memory counted in; of its 2 sizes together"
    )

    catalogue.put_tenant(Tenant("a", quota=Quota(isolation=Isolation.PROCESS)))
    entry = catalogue.entry("a/net")
    assert {(s.build_id, s.p50_ms) for s in entry.servables.values()} == {(f"{build_of(net())}@a", 20.0)}
    assert kind_of(catalogue) == "cpu"
    assert catalogue.servables.kind_reason_of(entry.model.variants[0], entry.model) == ""


@pytest.mark.parametrize(("base_bytes", "kind"), [(10**6, "openvino"), (10**9, "cpu")])
def test_guarded_build_counts_the_base_memory_of_a_kind(base_bytes: int, kind: str) -> None:
    """Half the time a run is worth a small process of its own, not a process that takes as much as all builds may."""
    guard_bytes = {"cpu": 10**6, "openvino": base_bytes}
    catalogue = of_kinds(
        "cpu", "openvino", "cuda", isolation=Isolation.PROCESS, memory_bytes=10**9, guard_bytes=guard_bytes
    )
    quicker = replace(THERE, processor="cuda", kind="cuda", latencies=(Latency(1, 1.0, 1.0),))
    fill(catalogue, "a", "net", [net("v", THERE, quicker)])
    servable = catalogue.entry("a/net").servables["v"]
    assert servable.build_id == f"{build_of(net()).replace('@cpu', f'@{kind}')}@a"
    assert (servable.is_guarded, servable.is_inline) == (True, False)
    assert kind_of(catalogue) == kind

    catalogue.leave_out(frozenset({"openvino"}))
    assert catalogue.entry("a/net").servables["v"].build_id == f"{build_of(net())}@a"


def test_content_serves_on_the_kind_that_a_planner_wishes_for() -> None:
    """Where it is measured there, and as before when that is over; the planner is told on which kinds it may serve."""
    catalogue = of_kinds()
    one = net("v", replace(THERE, latencies=(Latency(1, 25.0, 26.0),)))
    fill(catalogue, "a", "net", [one])
    assert catalogue.able_kinds(catalogue.entry("a/net").servables["v"]) == ("cpu", "openvino")
    version = catalogue.version
    catalogue.wish_kinds({one.content_sha256: "cpu", "another": "openvino"})
    assert catalogue.version == version
    catalogue.wish_kinds({one.content_sha256: "openvino"})
    servable = catalogue.entry("a/net").servables["v"]
    assert (servable.build_id, servable.p50_ms) == (build_of(one).replace("@cpu", "@openvino"), 25.0)
    assert catalogue.able_kinds(servable) == ("openvino", "cpu")
    reason = catalogue.servables.kind_reason_of(one, catalogue.entry("a/net").model)
    assert reason.startswith("a plan of pipelines wants it there; a request costs 21 ms on cpu and 25"), reason
    catalogue.leave_out(frozenset({"openvino"}))
    assert catalogue.able_kinds(catalogue.entry("a/net").servables["v"]) == ("cpu",)
    catalogue.leave_out(frozenset())
    catalogue.wish_kinds({})
    assert catalogue.entry("a/net").servables["v"].build_id == build_of(one)


def test_build_that_crashed_on_another_kind_serves_on_the_first() -> None:
    """Of that tenant only: a tenant that makes a copy crash sends no other tenant's builds away. On the first kind
    there is nothing else to do.
    """
    catalogue = of_kinds(isolation=Isolation.PROCESS, memory_bytes=10**9, guard_bytes={"cpu": 10**6, "openvino": 10**6})
    for tenant in ("a", "b"):
        fill(catalogue, tenant, "net", [net("v", THERE, tenant=tenant)])
    crashed = catalogue.entry("a/net").servables["v"].build_id
    assert crashed.endswith("@openvino@a")
    assert catalogue.avoid(crashed)
    assert catalogue.entry("a/net").servables["v"].build_id == f"{build_of(net())}@a"
    assert catalogue.users_of(crashed) == ()
    assert catalogue.entry("b/net").servables["v"].build_id.endswith("@openvino@b")
    assert not catalogue.avoid(f"{build_of(net())}@a")
    model = catalogue.entry("a/net").model
    variant = model.variants[0]
    assert catalogue.servables.avoided_of(variant, model) == ["openvino"]
    catalogue.allow(variant, model)
    assert catalogue.servables.avoided_of(variant, model) == []
    assert catalogue.entry("a/net").servables["v"].build_id == crashed
    assert catalogue.avoid(crashed)
    for tenant in ("a", "b"):
        catalogue.remove_model(catalogue.entry(f"{tenant}/net").model.id)
    assert catalogue.servables.avoided_of(variant, model) == [], "who imports it again begins anew"
