"""The evaluate stage: how good a variant is, on labels where there are some, else by how far it keeps to the
original.

Labelled set → the task's accuracy. Calibration inputs → the task's similarity to the original's answers at full size;
of these the ones that were held out. Where none were, a variant that was calibrated with them is unverified.
Neither, or a model in whose answers nothing was found → nearness of the output tensors on synthetic inputs, which
proves nothing of real ones: such a variant is unverified. Whether a figure makes a variant useless is decided by
`modelstore.importing.dominance`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from appliance.clock import NS_PER_S, SystemClock
from appliance.domain.accuracy import points
from appliance.domain.catalogue import Accuracy, Evidence, Precision, SampleScore
from appliance.domain.errors import BadInput, BadMetadata, BadModel
from appliance.domain.padding import Padding
from appliance.modelstore.orders import Evaluated, EvaluateOrder, MadeVariant, Size
from appliance.modelstore.stages.feeds import synthetic
from appliance.modelstore.stages.padding import READ, Shown, find_padding
from appliance.modelstore.stages.padding import SAMPLES as PADDING_SAMPLES
from appliance.modelstore.stages.running import Runner
from appliance.modelstore.stages.samples import (
    Sample,
    decoded,
    digest_of,
    labelled,
    synthetic_feeds,
    target_of,
    unlabelled,
)
from appliance.tasks import TASKS
from appliance.tasks.base import Decoded, Score, run_steps
from appliance.tasks.embedding import vectors_of
from appliance.tasks.metrics import nearness, retrieval

Report = Callable[[float, str], None]
Answer = Mapping[str, Any]
SYNTHETIC_SAMPLES = 4
PADDING_S = 20.0
"""Time after which no further sample is tried with padding, for each variant."""
NOISE_SIZES = (0, 7, 40, 0)
"""Added to the size at which a network was tried, where there are no samples to try padding on."""


@dataclass(slots=True)
class Tally:
    """What one variant has answered so far."""

    variant: MadeVariant
    score: Score | None = None
    samples: int = 0
    scores: list[SampleScore] = field(default_factory=list)
    """Of each sample; those of a metric of the whole set have none."""
    answers: list[Answer] = field(default_factory=list)
    """Kept only where the metric needs the whole set."""
    problem: str = ""
    sample_set: str = ""
    """Where variants of other sizes had other samples."""

    @property
    def size(self) -> Size | None:
        height, width = self.variant.height, self.variant.width
        return Size(height, width) if height and width else None

    def add(self, score: Score) -> None:
        self.score = score if self.score is None else self.score + score
        self.samples += 1
        self.scores.append(SampleScore(round(score.value_sum, 6), round(score.weight, 6)))


def evaluate(order: EvaluateOrder, report: Report) -> Evaluated:
    """Measure every variant of the order.

    Raises: BadMetadata when the truth does not fit the task; BadModel when the original itself does not run.
    """
    evaluation = _Evaluation(order, report)
    tallies = evaluation.on_labels() or evaluation.on_inputs() or evaluation.on_noise()
    found = [evaluation.accuracy(tally) for tally in tallies]
    paddings = [evaluation.padding(tally) for tally in tallies]
    return Evaluated(tuple(found), tuple(tally.problem for tally in tallies), tuple(paddings))


class _Evaluation:
    """The sessions of one order, one for each file, and the three ways to measure."""

    def __init__(self, order: EvaluateOrder, report: Report) -> None:
        self.order = order
        self.report = report
        self.task = TASKS[order.task.kind]
        self.full = order.inspection.ladder[0] if order.inspection.ladder else None
        self.runners: dict[str, Runner] = {}
        self.against = ""
        self.data = ""
        self.evidence = Evidence.SAMPLES
        self.sample_set = ""
        self.unused = ""
        clock = SystemClock()
        self.now_ns = clock.now_ns
        self.until_ns = clock.now_ns() + round(order.seconds_max * NS_PER_S)

    def on_labels(self) -> list[Tally]:
        """Against truth.json; nothing when there is none."""
        samples = labelled(self.order.evaluation, self.order.samples_max)
        if not samples:
            return []
        self.sample_set = digest_of(samples)
        whole = all("group" in sample.truth for sample in samples)
        tallies = [Tally(variant) for variant in self.order.variants]
        used: list[Sample] = []
        for sample in self._in_time(samples):
            for tally in tallies:
                answer = self._labelled_answer(tally, sample)
                if answer is not None and whole:
                    tally.answers.append(answer)
                elif answer is not None:
                    tally.add(self.task.accuracy(answer, sample.truth))
            used.append(sample)
        self._note_calibration()
        if whole:
            _score_groups(tallies, used)
        self.against, self.data = "labels", f"{len(used)} labelled samples"
        return tallies

    def on_inputs(self) -> list[Tally]:
        """Return the tallies against the original's answers at full size; nothing when there is no usable input or it
        finds nothing in them.
        """
        tallies = [Tally(variant) for variant in self.order.variants]
        found = Score(0.0, 0.0, "")
        samples = unlabelled(self.order.held_out or self.order.calibration, self.order.samples_max)
        self.sample_set = digest_of(samples)
        looked_at, problems = 0, list[str]()
        for sample in self._in_time(samples):
            looked_at += 1
            try:
                reference = self._answer(self.order.inspection.model, self._decoded(sample, self.full))
            except BadInput as error:  # unusable for every variant
                problems.append(f"{sample.path.name}: {error}")
                continue
            found = found + self.task.similarity(reference, reference)
            for tally in tallies:
                answer = reference if self._is_reference(tally) else self._answer_or_problem(tally, sample)
                if answer is not None:
                    tally.add(self.task.similarity(answer, reference))
        size = f" at {self.full.height}x{self.full.width}" if self.full else ""
        count = max(tally.samples for tally in tallies)
        self.against, self.data = "fp32", f"{count} calibration inputs, against the answers of the original{size}"
        if self.order.held_out:
            count, unread = self._unreadable([p for p in self.order.calibration if p not in self.order.held_out])
            looked_at, problems = looked_at + count, [*problems, *unread]
        self.unused = unused_inputs(len(self.order.calibration), looked_at, problems)
        if samples and not problems and not found.weight:
            came = len(self.order.calibration)
            self.unused = f"{came} calibration inputs came, and the original finds nothing in those that were looked at"
        return tallies if found.weight else []

    def on_noise(self) -> list[Tally]:
        """Against the output tensors of the original at the same size."""
        tallies = [Tally(variant) for variant in self.order.variants]
        for tally in tallies:
            for feeds in synthetic_feeds(self.order.inspection, self.order.task, tally.size, SYNTHETIC_SAMPLES):
                try:
                    expected = self._runner(self.order.inspection.model).run(feeds)
                    tally.add(nearness(self._runner(tally.variant.path).run(feeds), expected))
                except BadModel as error:
                    tally.problem = str(error)
                    break
            tally.sample_set = f"synthetic {tally.size or ''}".strip()
        self.against, self.evidence = "fp32", Evidence.NOISE
        self.data = f"{SYNTHETIC_SAMPLES} synthetic inputs, outputs against the original at the same input size"
        return tallies

    def accuracy(self, tally: Tally) -> Accuracy | None:
        """The figure of one variant; None where it could not be run."""
        if tally.problem or tally.score is None:
            tally.problem = tally.problem or "no sample could be used"
            return None
        value = points(round(tally.score.value, 6))
        metric, scores = tally.score.metric, tuple(tally.scores)
        sample_set = tally.sample_set or self.sample_set
        evidence = Evidence.CALIBRATION if self._is_its_own(tally.variant) else self.evidence
        return Accuracy(
            value,
            metric,
            self.against,
            tally.samples,
            self.data,
            scores,
            unused=self.unused,
            sample_set=sample_set,
            evidence=evidence,
        )

    def _is_its_own(self, variant: MadeVariant) -> bool:
        """Whether a variant is compared on the samples that it was calibrated with."""
        is_calibrated = variant.precision is Precision.INT8 and not variant.is_original
        on_inputs = self.evidence is Evidence.SAMPLES and self.against == "fp32"
        return is_calibrated and on_inputs and not self.order.held_out

    def padding(self, tally: Tally) -> Padding | None:
        """How inputs of the variant may be made larger; None where they may not, or all are of one size."""
        if tally.problem or tally.size is not None or self.order.task.state:
            return None
        inspection, run = self.order.inspection, self._runner(tally.variant.path).run
        return find_padding(run, tally.variant.inputs, inspection.axes, self._shown())

    def _shown(self) -> Iterator[Shown]:
        """Samples as the search for a padding wants them: labelled ones, else calibration inputs, else noise."""
        until_ns = self.now_ns() + round(PADDING_S * NS_PER_S)
        samples = labelled(self.order.evaluation, PADDING_SAMPLES)
        for sample in samples or unlabelled(self.order.calibration, PADDING_SAMPLES):
            if self.now_ns() > until_ns:
                return
            try:
                inputs = self._decoded(sample, None)
            except BadInput:  # as above: unusable for every variant
                continue
            yield Shown(inputs.steps, partial(self._worth, sample, inputs) if self.order.task.kind in READ else None)
        if not samples and not self.order.calibration:
            trial = self.order.inspection.trial
            for number, more in enumerate(NOISE_SIZES):
                extent = replace(trial, length=trial.length + more, width=trial.width + more)
                yield Shown(
                    [
                        synthetic(
                            self.order.inspection.inputs, self.order.inspection.axes, self.order.task, extent, number
                        )
                    ]
                )

    def _worth(
        self, sample: Sample, inputs: Decoded, outputs: list[dict[str, np.ndarray]], own: list[dict[str, np.ndarray]]
    ) -> Score:
        """Of the answer that is read in the outputs: by what is true of the sample, else by what is read in its own."""
        answer = self.task.encode(outputs, inputs, self.order.task).body
        if sample.truth:
            return self.task.accuracy(answer, sample.truth)
        return self.task.similarity(answer, self.task.encode(own, inputs, self.order.task).body)

    def _in_time(self, samples: Sequence[Sample]) -> Iterator[Sample]:
        for number, sample in enumerate(samples):
            if number and self.now_ns() > self.until_ns:
                return
            self.report(number / len(samples), f"sample {number + 1} of {len(samples)}")
            yield sample

    def _note_calibration(self) -> None:
        """See whether calibration inputs beside a labelled set can be read: int8 is calibrated with them. Of the
        original alone, as others share them.
        """
        if not any(variant.is_original for variant in self.order.variants):
            return
        self.unused = unused_inputs(len(self.order.calibration), *self._unreadable(self.order.calibration))

    def _unreadable(self, paths: Sequence[str]) -> tuple[int, list[str]]:
        """Return how many inputs were looked at, and why each of those that cannot be read cannot."""
        looked_at, problems = 0, list[str]()
        for sample in self._in_time(unlabelled(paths, self.order.samples_max)):
            looked_at += 1
            try:
                self._decoded(sample, self.full)
            except BadInput as error:
                problems.append(f"{sample.path.name}: {error}")
        return looked_at, problems

    def _is_reference(self, tally: Tally) -> bool:
        return tally.variant.path == self.order.inspection.model and tally.size in (None, self.full)

    def _runner(self, path: str) -> Runner:
        if path not in self.runners:
            self.runners[path] = Runner(path)
        return self.runners[path]

    def _decoded(self, sample: Sample, size: Size | None) -> Decoded:
        return decoded(sample, self.order.task, target_of(self.order.inspection, size, self.order.assets))

    def _answer(self, path: str, inputs: Decoded) -> Answer:
        outputs, _ = run_steps(inputs, self.order.task, self._runner(path).run)
        return self.task.encode(outputs, inputs, self.order.task).body

    def _labelled_answer(self, tally: Tally, sample: Sample) -> Answer | None:
        try:
            return self._answer_or_problem(tally, sample)
        except BadInput as error:  # the file, not the variant
            raise BadMetadata(reason=f"evaluation/{sample.path.name}: {error}") from error

    def _answer_or_problem(self, tally: Tally, sample: Sample) -> Answer | None:
        """The variant's answer; None once the variant has failed on any sample."""
        if tally.problem:
            return None
        inputs = self._decoded(sample, tally.size or self.full)
        try:
            return self._answer(tally.variant.path, inputs)
        except BadInput as error:
            tally.problem = f"{sample.path.name}: {error}"
            return None


def unused_inputs(came: int, looked_at: int, problems: Sequence[str]) -> str:
    """Return how many calibration inputs came, how many could be read, and why the first of the others could not;
    empty where all that were looked at could.
    """
    if not problems:
        return ""
    read = looked_at - len(problems)
    of = "" if looked_at == came else f" of the {looked_at} that were looked at"
    return (
        f"{came} calibration input{'s' if came != 1 else ''} came, {read or 'none'}{of} could be read; the first that "
        f"could not is {problems[0]}"
    )


def _score_groups(tallies: Sequence[Tally], samples: Sequence[Sample]) -> None:
    """Retrieval among all samples: an embedding is right when its nearest other one is of the same group."""
    groups = [sample.truth["group"] for sample in samples]
    for tally in tallies:
        if not tally.problem:
            vectors = [vector for answer in tally.answers for vector in vectors_of(answer)]
            tally.score, tally.samples = retrieval(vectors, groups), len(samples)
