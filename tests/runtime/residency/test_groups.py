"""Which variants the residency policies see of an application."""

from dataclasses import replace

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


def fleet(*slos_ms: float | None, variants: tuple[Variant, ...] = (LARGE, SMALL), least: float = 0.0) -> Catalogue:
    """A model with an application for each of the SLOs; `least` accuracy is that of the first."""
    catalogue = Catalogue(MostAccurate())
    catalogue.put_tenant(Tenant("t"))
    catalogue.put_model(Model("t/m", "t", "m", TaskSpec(), variants))
    for number, slo_ms in enumerate(slos_ms):
        name = f"a{number}"
        catalogue.put_application(Application(f"t/{name}", "t", name, "t/m", slo_ms, 0.0 if number else least))
    return catalogue


def options(*variants: Variant, slos_ms: tuple[float | None, ...] = (None,), least: float = 0.0) -> list[str]:
    """Names of the options of such a model."""
    (group,) = VariantGroups(fleet(*slos_ms, variants=variants, least=least)).all()
    return [option.name for option in group.options]


def test_options_without_slo_are_all_variants_most_accurate_first() -> None:
    assert options(SMALL, LARGE, MIDDLE) == ["large", "middle", "small"]


def test_options_leave_out_larger_variants_that_miss_slo() -> None:
    """20 ms: twice 10 fits, twice 20 does not. A variant is wanted if a request would be answered with it."""
    assert options(LARGE, MIDDLE, SMALL, slos_ms=(20,)) == ["middle", "small"]


def test_options_end_with_smaller_variant_that_misses_slo() -> None:
    """int8 that is slower than fp32: only where there is no room for more."""
    slow = make_variant("t/m", "slow", Cost(20, run_ms=30), accuracy=85.0)
    assert options(LARGE, slow, slos_ms=(40,)) == ["large", "slow"]


def test_options_leave_out_more_accurate_variant_that_misses_slo() -> None:
    """Policies would take it for the better variant."""
    slow = make_variant("t/m", "slow", Cost(20, run_ms=30), accuracy=95.0)
    assert options(LARGE, slow, slos_ms=(40,)) == ["large"]


def test_slo_that_no_variant_keeps_changes_no_options() -> None:
    assert options(LARGE, MIDDLE, SMALL, slos_ms=(1,)) == ["large", "middle", "small"]


def test_options_are_variants_whose_run_alone_is_within_slo() -> None:
    assert options(LARGE, MIDDLE, slos_ms=(12,)) == ["middle"]


def test_options_go_by_strictest_slo_that_can_be_kept() -> None:
    """Applications of one model share its memory; an application that asks for the impossible does not undo another's
    promise.
    """
    assert options(LARGE, MIDDLE, SMALL, slos_ms=(None, 20, 10)) == ["small"]
    assert options(LARGE, MIDDLE, SMALL, slos_ms=(20, 1)) == ["middle", "small"]


def test_least_accuracy_takes_precedence_over_slo() -> None:
    """The only fast variant is not accurate enough for the first application, so it is no reason to
    give up the others.
    """
    assert options(LARGE, MIDDLE, SMALL, slos_ms=(None, 9), least=75) == ["large", "middle", "small"]


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


def preferring(*prefers: Prefer) -> list[str]:
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
    return [option.name for option in group.options]


def test_options_begin_with_variant_that_preference_chooses() -> None:
    """Else memory would be filled with a variant that the applications do not choose."""
    assert preferring(Prefer.ACCURACY) == ["large", "middle", "small"]
    assert preferring(Prefer.BALANCED) == ["middle", "small"]
    assert preferring(Prefer.SPEED) == ["small"]


def test_options_of_model_follow_most_demanding_application() -> None:
    assert preferring(Prefer.BALANCED, Prefer.ACCURACY, Prefer.SPEED) == ["large", "middle", "small"]
    assert preferring(Prefer.SPEED, Prefer.BALANCED) == ["middle", "small"]


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
