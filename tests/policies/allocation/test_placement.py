"""Where instances go: reuse before best fit before a new worker, and no type beyond what there is."""

from appliance.domain.pipeline import CostBy
from appliance.policies.allocation.base import AllocationInput, Existing, Part, Placed, WorkerType
from appliance.policies.allocation.configurations import Pipeline, Stage, StagePlan, configuration
from appliance.policies.allocation.frontier import Frontier
from appliance.policies.allocation.placement import Missing, capacity, place

ONE = configuration("w", 1, 1, 10.0, 100.0, 1.0, 1)


def _placed(
    shares: dict[str, float], *existing: Existing, available: int | None = None
) -> tuple[Placed, ...] | Missing:
    """Modules that need so many workers of type w each, whole ones first."""
    names = sorted(shares)
    pipeline = Pipeline(1e6, tuple(Stage(name, 100.0 * shares[name], (ONE,)) for name in names), ())
    plans = tuple(
        StagePlan(
            ((ONE, int(shares[name])),) if shares[name] >= 1.0 else (),
            (ONE, 100.0 * (shares[name] % 1.0)) if shares[name] % 1.0 else None,
        )
        for name in names
    )
    return place(pipeline, plans, [WorkerType("w", 1.0, available)], existing)


def _where(placed: tuple[Placed, ...] | Missing) -> dict[str, list[int]]:
    assert not isinstance(placed, Missing)
    where: dict[str, list[int]] = {}
    for worker in placed:
        for part in worker.parts:
            where.setdefault(part.module, []).append(worker.index)
    return where


def _running(index: int, taken: float, *loaded: str) -> Existing:
    return Existing("w", index, (Part("other", taken),) if taken else (), loaded)


def test_partial_instance_goes_to_the_fullest_worker_with_room() -> None:
    """A partial instance goes to the worker with the least room that suffices, of whatever pipeline (SC-15)."""
    assert _where(_placed({"a": 0.3}, _running(0, 0.1), _running(1, 0.65), _running(2, 0.8))) == {"a": [1]}


def test_worker_with_the_module_loaded_comes_before_best_fit() -> None:
    """A worker that has the module loaded is taken although another one fits better (SC-22)."""
    assert _where(_placed({"a": 0.3}, _running(0, 0.1, "a"), _running(1, 0.65))) == {"a": [0]}


def test_larger_instance_leaves_the_loaded_worker_to_a_smaller_one() -> None:
    """A larger instance that is loaded nowhere does not take the room of a smaller one that is."""
    where = _where(_placed({"a": 0.3, "b": 0.5}, _running(0, 0.4, "a"), _running(1, 0.2)))
    assert where == {"a": [0], "b": [1]}


def test_full_instance_goes_to_an_idle_worker() -> None:
    """A full instance goes to an idle worker, one with the module first; never beside others."""
    where = _where(_placed({"a": 2.0}, _running(0, 0.01, "a"), _running(1, 0.0), _running(2, 0.0, "a")))
    assert where == {"a": [1, 2]}


def test_new_workers_take_free_indices() -> None:
    """New workers are numbered around the running ones; the partial instances of a pipeline share one new worker."""
    placed = _placed({"a": 1.4, "b": 0.6}, _running(0, 0.9), _running(2, 0.9))
    assert _where(placed) == {"a": [1, 3], "b": [3]}
    assert not isinstance(placed, Missing)
    assert all(worker.is_new for worker in placed)


def test_placement_packs_shares_that_best_fit_does_not() -> None:
    """0.5, 0.4, 0.35, 0.3, 0.25, 0.2 fill two workers, though placing them one by one by best fit leaves one over."""
    shares = dict(zip("abcdef", (0.5, 0.4, 0.35, 0.3, 0.25, 0.2), strict=True))
    placed = _placed(shares, available=2)
    assert not isinstance(placed, Missing)
    assert [round(sum(part.share for part in worker.parts), 9) for worker in placed] == [1.0, 1.0]


def test_placement_without_room_names_the_missing_worker_type() -> None:
    """Three shares of 0.6 do not fit on two workers, though they add up to less than two."""
    assert _placed({"a": 0.6, "b": 0.6, "c": 0.6}, available=2) == Missing("w")


def test_packing_of_too_many_shares_ends_without_trying_every_way() -> None:
    """21 shares above a third: two go on a worker, so one has no place on ten, though they add up to 7.6 workers. It
    would take years to see that of every way.
    """
    shares = {name: 0.35 + 0.001 * at for at, name in enumerate("abcdefghijklmnopqrstu")}
    assert _placed(shares, available=10) == Missing("w")
    del shares["u"]
    placed = _placed(shares, available=10)
    assert not isinstance(placed, Missing)
    assert [len(worker.parts) for worker in placed] == [2] * 10


def test_running_workers_count_against_the_available_number() -> None:
    """With two workers in all and one of them running, one can be new."""
    workers = [WorkerType("w", 1.0, 2)]
    assert _placed({"a": 2.0}, _running(0, 0.5), available=2) == Missing("w")
    assert capacity("w", workers, [_running(0, 0.5)]) == 1.5
    assert capacity("w", [WorkerType("w", 1.0)], []) is None


def test_types_of_a_group_share_its_workers() -> None:
    """Kinds on the same two cores: a whole worker of one and a share of the other take both, and a second whole one
    is none too many where the first is not there; what runs on a core is on it whatever its kind.
    """
    here, there = (configuration(name, 1, 1, 10.0, 100.0, 1.0, 1, "cores") for name in ("here", "there"))
    workers = [WorkerType(name, 1.0, 2, "cores") for name in ("here", "there")]
    pipeline = Pipeline(1e6, (Stage("a", 100.0, (here,)), Stage("b", 60.0, (there,))), ())
    plans = (StagePlan(((here, 1),), None), StagePlan((), (there, 60.0)))
    placed = place(pipeline, plans, workers, [])
    assert not isinstance(placed, Missing)
    assert [(one.worker, one.index, one.is_new) for one in placed] == [("here", 0, True), ("there", 1, True)]
    running = [Existing("there", 0, (Part("other", 0.3),), ("b",)), Existing("here", 0, (Part("another", 0.2),))]
    assert capacity("cores", workers, running) == 1.5
    assert place(pipeline, plans, workers, running) == Missing("cores")
    less = (StagePlan(((here, 1),), None), StagePlan((), (there, 50.0)))
    found = place(pipeline, less, workers, running)
    assert not isinstance(found, Missing)
    assert [(one.worker, one.index, one.is_new) for one in found] == [("here", 1, True), ("there", 0, False)]


def test_pipeline_without_modules_is_served_at_no_cost() -> None:
    plan = Frontier().plan(AllocationInput(10.0, (WorkerType("w", 1.0),), (), cost_by=CostBy.SECONDS))
    assert (plan.feasible, plan.cost, plan.latency_ms, plan.placement) == (True, 0, 0.0, ())
