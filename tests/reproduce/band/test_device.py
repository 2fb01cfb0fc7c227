"""The emulated device: one answer a request whatever happens, one run a processor, cores, instances, losses, and calls
of other processors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest

from appliance.policies.dispatch import DISPATCH_POLICIES
from appliance.policies.dispatch.partition import Partition
from reproduce.band.device import Answer, Broken, Device, Leg, Trace, believed
from tests.policies.dispatch.chains import chain

pytestmark = pytest.mark.gate("whole simulations")


@dataclass
class Networks:
    """Runs take what is believed, unless legs are given; `learnt` is what runs took."""

    cuts: dict[str, Partition]
    given: dict[tuple[str, str], list[Leg]] = field(default_factory=dict)
    learnt: list[tuple[str, int, str, float]] = field(default_factory=list)

    def partition(self, network: str) -> Partition:
        return self.cuts[network]

    def legs(self, network: str, units: int, processor: str) -> Sequence[Leg]:
        (took_ms,) = (one.latency_ms[processor] for one in self.cuts[network].subgraphs if one.units == units)
        return self.given.get((network, processor), [Leg(took_ms)])

    def learn(self, network: str, units: int, processor: str, took_ms: float) -> None:
        self.learnt.append((network, units, processor, took_ms))


PARTS = chain("parts", {"cpu": 20, "npu": 5}, {"cpu": 4}, {"cpu": 30, "npu": 6})
WHOLE = chain("whole", {"cpu": 40, "npu": 10})


def test_job_in_units_moves_between_processors() -> None:
    """5 ms on the NPU, 1 to move, 4 on the CPU, 1 to move, 6 on the NPU."""
    answers: list[Answer] = []
    device = Device(("cpu", "npu"), DISPATCH_POLICIES["least-slack"](), Networks({"parts": PARTS}), transfer_ms=1)

    device.submit("a", "parts", answers.append)
    device.run()

    assert [(t.processor, t.ops, t.start_ms, t.end_ms) for t in device.traces] == [
        ("npu", ("parts0",), 0, 5),
        ("cpu", ("parts1",), 5, 10),
        ("npu", ("parts2",), 10, 17),
    ]
    assert [(a.name, a.ended_ms, a.ran) for a in answers] == [("a", 17, True)]


def test_processor_serves_another_job_while_the_first_falls_back() -> None:
    """Figure 6: the second request begins on the NPU as soon as the first one goes on on the CPU."""
    device = Device(("cpu", "npu"), DISPATCH_POLICIES["fifo"](), Networks({"parts": PARTS, "whole": WHOLE}))

    device.submit("first", "parts", lambda answer: None)
    device.submit("second", "whole", lambda answer: None)
    device.run()

    runs = [(t.job, t.processor, t.start_ms) for t in device.traces]
    assert ("second", "npu", 5) in runs
    assert ("first", "cpu", 5) in runs


def test_run_that_calls_another_processor_occupies_both() -> None:
    """A run of 5 + 4 + 6 ms of which 4 are on the CPU, which meanwhile runs nothing else."""
    networks = Networks(
        {"whole": WHOLE, "slow": chain("slow", {"cpu": 40})},
        {("whole", "npu"): [Leg(5), Leg(4, ("cpu",)), Leg(6)]},
    )
    device = Device(("cpu", "npu"), DISPATCH_POLICIES["fifo"](), networks)

    device.submit("a", "whole", lambda answer: None)
    device.at(6, lambda: device.submit("b", "slow", lambda answer: None))
    device.run()

    assert [(t.job, t.processor, t.start_ms) for t in device.traces] == [("a", "npu", 0), ("b", "cpu", 9)]
    assert device.traces[0].end_ms == 15


def test_run_that_calls_a_busy_processor_slows_both() -> None:
    """The CPU runs for 40 ms; a leg of 4 on it takes 8, and the CPU ends 4 later."""
    networks = Networks(
        {"whole": chain("whole", {"npu": 10}), "slow": chain("slow", {"cpu": 40})},
        {("whole", "npu"): [Leg(5), Leg(4, ("cpu",)), Leg(6)]},
    )
    device = Device(("cpu", "npu"), DISPATCH_POLICIES["fifo"](), networks)

    device.submit("slow", "slow", lambda answer: None)
    device.submit("calls", "whole", lambda answer: None)
    device.run()

    assert {t.job: t.end_ms for t in device.traces} == {"slow": 44, "calls": 19}


def test_run_on_a_lost_processor_is_repeated_elsewhere() -> None:
    """The run of 0 to 10 breaks off at 3 and begins anew on the CPU; back at 20, the NPU takes the next job."""
    answers: list[Answer] = []
    device = Device(("cpu", "npu"), DISPATCH_POLICIES["fifo"](), Networks({"whole": WHOLE}))

    device.submit("a", "whole", answers.append)
    device.at(3, lambda: device.lose("npu"))
    device.at(20, lambda: device.restore("npu"))
    device.at(21, lambda: device.submit("b", "whole", answers.append))
    device.run()

    assert [(t.job, t.processor, t.start_ms, t.end_ms) for t in device.traces] == [
        ("b", "npu", 21, 31),
        ("a", "cpu", 3, 43),
    ]
    assert device.broken == 1
    assert sorted(answer.name for answer in answers) == ["a", "b"]


def test_jobs_wait_while_every_processor_is_lost() -> None:
    answers: list[Answer] = []
    device = Device(("npu",), DISPATCH_POLICIES["least-slack"](), Networks({"whole": chain("whole", {"npu": 10})}))

    device.submit("a", "whole", answers.append)
    device.at(3, lambda: device.lose("npu"))
    device.run()
    assert not answers

    device.at(100, lambda: device.restore("npu"))
    device.run()
    assert [answer.ended_ms for answer in answers] == [110]


def test_instance_serves_requests_in_sequence() -> None:
    """Two processors, one instance: the second request waits for the first."""
    device = Device(("cpu", "npu"), DISPATCH_POLICIES["fifo"](), Networks({"parts": PARTS}), is_serial=True)

    for name in "ab":
        device.submit(name, "parts", lambda answer: None)
    device.run()

    ends = {name: [t for t in device.traces if t.job == name] for name in "ab"}
    assert ends["a"][-1].end_ms <= ends["b"][0].start_ms


def test_request_that_cannot_be_in_time_is_dropped() -> None:
    answers: list[Answer] = []
    device = Device(("npu",), DISPATCH_POLICIES["least-slack"](), Networks({"whole": WHOLE}))

    for name in "abc":
        device.submit(name, "whole", answers.append, deadline_ms=22, drop_late=True)
    device.run()

    assert [(a.name, a.ended_ms) for a in answers if a.ran] == [("a", 10), ("b", 20)]
    assert [a.name for a in answers if not a.ran] == ["c"]


def test_request_with_a_name_already_used_is_refused() -> None:
    device = Device(("npu",), DISPATCH_POLICIES["fifo"](), Networks({"whole": WHOLE}))
    device.submit("a", "whole", lambda answer: None)
    with pytest.raises(Broken, match="came twice"):
        device.submit("a", "whole", lambda answer: None)


@pytest.mark.parametrize("policy", DISPATCH_POLICIES)
@pytest.mark.parametrize("seed", range(5))
def test_request_has_exactly_one_answer_when_processors_are_lost(policy: str, seed: int) -> None:
    """Random networks, arrivals, deadlines, and processors that come and go: each request is answered once, no
    processor runs two at a time; and the same seed gives the same story.
    """

    def story() -> tuple[list[Answer], list[Trace]]:
        random = Random(seed)
        names = ("cpu", "vpu", "npu")

        def times() -> dict[str, float]:
            there = random.sample(names, random.randint(0, 2))
            return {name: random.uniform(1, 30) for name in {"cpu", *there}}

        cuts = {f"net{n}": chain(f"net{n}", *(times() for _ in range(random.randint(1, 5)))) for n in range(3)}
        device = Device(names, DISPATCH_POLICIES[policy](), Networks(cuts), transfer_ms=random.choice((0, 1.5)))
        answers: list[Answer] = []
        for number in range(60):
            at_ms = random.uniform(0, 500)
            network, due_ms = random.choice(sorted(cuts)), random.choice((float("inf"), at_ms + 200))

            def submit(name: str = f"{number}", network: str = network, due_ms: float = due_ms) -> None:
                device.submit(name, network, answers.append, due_ms, drop_late=True)

            device.at(at_ms, submit)
        for _ in range(10):
            lost, at_ms = random.choice(names), random.uniform(0, 600)
            device.at(at_ms, lambda lost=lost: device.lose(lost))  # type: ignore[misc]
            device.at(at_ms + random.uniform(0, 80), lambda lost=lost: device.restore(lost))  # type: ignore[misc]
        device.run()
        return answers, device.traces

    answers, traces = story()

    assert sorted(int(answer.name) for answer in answers) == list(range(60))
    for name in ("cpu", "vpu", "npu"):
        runs = sorted((t for t in traces if t.processor == name), key=lambda t: t.start_ms)
        assert all(first.end_ms <= second.start_ms for first, second in pairwise(runs))
    assert story() == (answers, traces)


def test_believed_times_leave_the_partition_unchanged() -> None:
    """Times need not add up, as calls cost something."""
    other = believed(PARTS, {(one.units, p): 7.0 for one in PARTS.subgraphs for p in one.latency_ms})

    assert [(one.units, one.ops) for one in other.subgraphs] == [(one.units, one.ops) for one in PARTS.subgraphs]
    assert {ms for one in other.subgraphs for ms in one.latency_ms.values()} == {7.0}
    assert other.next.keys() == PARTS.next.keys()
