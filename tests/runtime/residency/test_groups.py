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


def test_without_an_slo_all_are_there_most_accurate_first() -> None:
    assert options(SMALL, LARGE, MIDDLE) == ["large", "middle", "small"]


def test_those_that_keep_the_slo_come_first_and_larger_ones_that_do_not_are_no_option() -> None:
    """20 ms: twice 10 fits, twice 20 does not. What is wanted is what a request would be answered with."""
    assert options(LARGE, MIDDLE, SMALL, slos_ms=(20,)) == ["middle", "small"]


def test_a_smaller_one_that_does_not_keep_it_is_better_than_nothing() -> None:
    """int8 that is slower than fp32: only where there is no room for more."""
    slow = make_variant("t/m", "slow", Cost(20, run_ms=30), accuracy=85.0)
    assert options(LARGE, slow, slos_ms=(40,)) == ["large", "slow"]


def test_a_more_accurate_one_that_does_not_keep_it_is_left_out() -> None:
    """Policies would take it for the better one."""
    slow = make_variant("t/m", "slow", Cost(20, run_ms=30), accuracy=95.0)
    assert options(LARGE, slow, slos_ms=(40,)) == ["large"]


def test_an_slo_that_none_keeps_changes_nothing() -> None:
    assert options(LARGE, MIDDLE, SMALL, slos_ms=(1,)) == ["large", "middle", "small"]


def test_where_none_keeps_it_those_in_time_alone_come_first() -> None:
    assert options(LARGE, MIDDLE, slos_ms=(12,)) == ["middle"]


def test_the_strictest_slo_that_is_kept_counts() -> None:
    """Applications of one model share its memory; one that asks for the impossible does not undo another's promise."""
    assert options(LARGE, MIDDLE, SMALL, slos_ms=(None, 20, 10)) == ["small"]
    assert options(LARGE, MIDDLE, SMALL, slos_ms=(20, 1)) == ["middle", "small"]


def test_a_least_accuracy_goes_before_an_slo() -> None:
    """The only fast one is not accurate enough for the first application, so it is no reason to give up the others."""
    assert options(LARGE, MIDDLE, SMALL, slos_ms=(None, 9), least=75) == ["large", "middle", "small"]


def test_of_equally_accurate_ones_the_preferred_is_worth_a_little_more() -> None:
    """Policies know accuracies only: else the smaller one would be the best, and stay for good."""
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


def test_what_is_kept_is_what_answers() -> None:
    """Else memory would be filled with a variant that the applications do not choose."""
    assert preferring(Prefer.ACCURACY) == ["large", "middle", "small"]
    assert preferring(Prefer.BALANCED) == ["middle", "small"]
    assert preferring(Prefer.SPEED) == ["small"]


def test_the_application_that_asks_for_most_decides_for_the_group() -> None:
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


def test_applications_of_one_model_cost_each_as_much_however_many_there_are() -> None:
    """A fleet of cameras may have an application each."""

    def made(count: int) -> int:
        groups = VariantGroups(fleet(*(20.0 + number % 7 for number in range(count))))
        return calls_of(groups.all)

    assert made(800) < 2.5 * made(400)
