"""Stages whose networks serve in parts: what they are offered as, and what a definition counts on."""

import pytest

from appliance.domain.errors import SloTooSmall
from appliance.domain.pipeline import Ask, Pipeline
from appliance.runtime.pipelines.definition import check, fastest_ms
from appliance.runtime.pipelines.offers import offers_of
from tests.fakes.clock import story
from tests.runtime.serving.test_engine_parts import bench_of

STAGE = Ask(name="look", application_id="t/app")


@story
async def test_it_is_offered_as_one_variant_on_its_home() -> None:
    """6 ms in parts, 5 of them on the other kind; 20 whole, on the first one."""
    bench = bench_of()
    (offer,) = offers_of(STAGE, bench.catalogue.entry("t/app"), bench.catalogue.able_kinds).wanted
    assert offer.is_in_parts
    assert (offer.serves_on, [one.kind for one in offer.profiles]) == ("npu", ["npu"])
    assert 6 <= offer.quickest_ms < 7
    assert offer.profile_of("cpu+npu") is offer.profiles[0]
    assert offer.profile_of("cpu") is None
    (whole,) = offers_of(STAGE, bench_of(cut=False).catalogue.entry("t/app"), lambda one: ("cpu",)).wanted
    assert (whole.is_in_parts, whole.serves_on, whole.quickest_ms) == (False, "cpu", 20)


@story
async def test_an_slo_that_parts_keep_is_not_too_small() -> None:
    pipeline = Pipeline("t/p", "t", "p", 10.0, (STAGE,))
    catalogue = bench_of().catalogue
    assert 6 <= fastest_ms(catalogue, pipeline)["look"] < 7
    check(catalogue, pipeline)
    with pytest.raises(SloTooSmall):
        check(bench_of(cut=False).catalogue, pipeline)
