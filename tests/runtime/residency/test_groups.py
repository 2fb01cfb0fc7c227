"""Which variants the residency policies see of an application."""

from dataclasses import replace

import pytest

from appliance.domain.catalogue import (
    Accuracy,
    Application,
    Evidence,
    Model,
    Prefer,
    TaskSpec,
    Tenant,
    Unverified,
    Variant,
)
from appliance.policies.selection.by_profile import ByProfile
from appliance.policies.selection.most_accurate import MostAccurate
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.residency.groups import VariantGroups
from tests.fakes.engine import make_variant
from tests.fakes.processor import Cost
from tests.harness.work import calls_of

LARGE = make_variant("t/m", "large", Cost(100, run_ms=20), accuracy=90.0)
MIDDLE = make_variant("t/m", "middle", Cost(60, run_ms=10), accuracy=80.0)
SMALL = make_variant("t/m", "small", Cost(20, run_ms=4), accuracy=70.0)


def slow(accuracy: float) -> Variant:
    """As small as the small one, and the slowest."""
    return make_variant("t/m", "slow", Cost(20, run_ms=30), accuracy=accuracy)


def fleet(*slos_ms: float | None, variants: tuple[Variant, ...] = (LARGE, SMALL), least: float = 0.0) -> Catalogue:
    """A model with an application for each of the SLOs; `least` accuracy is that of the first."""
    catalogue = Catalogue(MostAccurate())
    catalogue.put_tenant(Tenant("t"))
    catalogue.put_model(Model("t/m", "t", "m", TaskSpec(), variants))
    for number, slo_ms in enumerate(slos_ms):
        name = f"a{number}"
        catalogue.put_application(Application(f"t/{name}", "t", name, "t/m", slo_ms, 0.0 if number else least))
    return catalogue


@pytest.mark.parametrize(
    ("variants", "slos_ms", "least", "expected"),
    [
        ((SMALL, LARGE, MIDDLE), (None,), 0, "large middle small"),
        ((LARGE, MIDDLE, SMALL), (20,), 0, "middle small"),
        ((LARGE, slow(85.0)), (40,), 0, "large slow"),
        ((LARGE, slow(95.0)), (40,), 0, "large"),
        ((LARGE, MIDDLE, SMALL), (1,), 0, "large middle small"),
        ((LARGE, MIDDLE), (12,), 0, "middle"),
        ((LARGE, MIDDLE, SMALL), (None, 20, 10), 0, "small"),
        ((LARGE, MIDDLE, SMALL), (20, 1), 0, "middle small"),
        ((LARGE, MIDDLE, SMALL), (None, 9), 75, "large middle small"),
    ],
    ids=[
        "no SLO: all, the most accurate first",
        "twice 10 ms fit in 20, twice 20 do not",
        "a smaller one that misses the SLO is for want of room only",
        "a more accurate one that misses the SLO would be taken for better",
        "no variant keeps the SLO",
        "a run alone is within the SLO",
        "the strictest SLO that can be kept",
        "an impossible SLO undoes no other promise",
        "the only fast one is not accurate enough for the first application",
    ],
)
def test_options_are_variants_that_requests_would_be_answered_with(
    variants: tuple[Variant, ...], slos_ms: tuple[float | None, ...], least: float, expected: str
) -> None:
    """Applications of one model share its memory."""
    (group,) = VariantGroups(fleet(*slos_ms, variants=variants, least=least)).all()
    assert [option.name for option in group.options] == expected.split()


def test_preferred_variant_is_first_option_among_equally_accurate() -> None:
    """Policies know accuracies only, so the preferred one is given a little more: else the smaller one would be the
    best, and stay for good.
    """
    catalogue = Catalogue(ByProfile(), loss_points_max=0.5)
    catalogue.put_tenant(Tenant("t"))
    fast = make_variant("t/m", "fast", Cost(60, run_ms=10), accuracy=90.0)
    slow = make_variant("t/m", "slow", Cost(20, run_ms=20), accuracy=90.0)
    catalogue.put_model(Model("t/m", "t", "m", TaskSpec(), (fast, slow)))
    catalogue.put_application(Application("t/a", "t", "a", "t/m", prefer=Prefer.SPEED))
    (group,) = VariantGroups(catalogue).all()
    assert [option.name for option in group.options] == ["fast", "slow"]
    assert group.options[0].accuracy > group.options[1].accuracy == 90.0


def preferring(*prefers: Prefer) -> str:
    """Options of a model whose middle variant loses next to nothing and takes half the time, and whose small one is
    fast and bad.
    """
    catalogue = Catalogue(ByProfile(), loss_points_max=0.5)
    catalogue.put_tenant(Tenant("t"))
    accuracy = Accuracy(89.9, "top-1", "labels", 1000, loss_points=0.2)
    catalogue.put_model(Model("t/m", "t", "m", TaskSpec(), (LARGE, replace(MIDDLE, accuracy=accuracy), SMALL)))
    for number, prefer in enumerate(prefers):
        catalogue.put_application(Application(f"t/a{number}", "t", f"a{number}", "t/m", prefer=prefer))
    (group,) = VariantGroups(catalogue).all()
    return " ".join(option.name for option in group.options)


def test_options_begin_with_variant_that_preference_chooses() -> None:
    """Else memory would be filled with a variant that the applications do not choose. Of several applications of a
    model the most demanding chooses.
    """
    assert preferring(Prefer.ACCURACY) == "large middle small"
    assert preferring(Prefer.BALANCED) == "middle small"
    assert preferring(Prefer.SPEED) == "small"
    assert preferring(Prefer.BALANCED, Prefer.ACCURACY, Prefer.SPEED) == "large middle small"
    assert preferring(Prefer.SPEED, Prefer.BALANCED) == "middle small"


def test_unverified_variant_is_an_option_where_all_applications_allow_it() -> None:
    """An application without any variant of its own to choose has no say."""
    accuracy = Accuracy(89.0, "1-error", "fp32", 4, evidence=Evidence.NOISE)
    doubtful = replace(make_variant("t/m", "int8", Cost(20)), accuracy=accuracy)

    def found(*allowed: Unverified, variants: tuple[Variant, ...]) -> list[str]:
        catalogue = Catalogue(MostAccurate())
        catalogue.put_tenant(Tenant("t"))
        catalogue.put_model(Model("t/m", "t", "m", TaskSpec(), variants))
        for number, unverified in enumerate(allowed):
            name = f"a{number}"
            catalogue.put_application(Application(f"t/{name}", "t", name, "t/m", unverified=unverified))
        (group,) = VariantGroups(catalogue).all()
        return [option.name for option in group.options]

    both = LARGE, doubtful
    assert found(Unverified.ALLOW, Unverified.ALLOW, variants=both) == ["large", "int8"]
    assert found(Unverified.ALLOW, Unverified.NEVER, variants=both) == ["large"]
    assert found(Unverified.ALLOW, Unverified.NEVER, variants=(doubtful,)) == ["int8"]


def test_variant_groups_take_time_linear_in_applications_of_model() -> None:
    """A fleet of cameras may have an application each."""

    def made(count: int) -> int:
        groups = VariantGroups(fleet(*(20.0 + number % 7 for number in range(count))))
        return calls_of(groups.all)

    assert made(800) < 2.5 * made(400)
