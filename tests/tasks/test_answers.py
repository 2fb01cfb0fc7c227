"""What an answer says in labels and scores, and what follows from it."""

import pytest

from appliance.domain.pipeline import Pick, PickBy, Region, When
from appliance.tasks.answers import Judgement, holds, joined, judgements, picked


def region(score: float, label: str = "", side: float = 10.0) -> Region:
    return Region(((0, 0), (side, 0), (side, side), (0, side)), True, score, label)


def test_answer_of_every_kind_yields_labels_and_scores() -> None:
    labels = [{"label": "180", "index": 1, "score": 0.8}, {"label": "0", "index": 0, "score": 0.2}]
    objects = [{"label": "car", "score": 0.9, "box": []}, {"label": "dog", "score": 0.4, "box": []}]
    assert judgements({"labels": labels}) == [("180", 0.8)]
    assert judgements({"objects": objects}) == [("car", 0.9), ("dog", 0.4)]
    assert judgements({"regions": [{"score": 0.7, "quad": []}]}) == [("", 0.7)]
    assert judgements({"text": "EXIT", "score": 0.6}) == [("EXIT", 0.6)]
    assert judgements({"embedding": [1.0]}) == []


@pytest.mark.parametrize(
    ("when", "found", "is_so"),
    [
        (When("s"), [], True),
        (When("s", score_min=0.1), [], False),
        (When("s", labels=("car",)), [("car", 0.2)], True),
        (When("s", labels=("car",), score_min=0.5), [("car", 0.2)], False),
        (When("s", labels=("car", "bus")), [("dog", 0.9), ("bus", 0.1)], True),
        (When("s", labels_not=("180",)), [("0", 0.9)], True),
        (When("s", labels_not=("180",)), [("180", 0.9)], False),
        (When("s", labels_not=("180",), score_min=0.95), [("180", 0.9)], False),
        (When("s", labels_not=("dog",)), [("car", 0.9), ("dog", 0.3)], False),
    ],
)
def test_stage_condition_holds_for_matching_labels_and_scores(when: When, found: list[Judgement], is_so: bool) -> None:
    assert holds(when, found) is is_so


def test_pick_stage_takes_the_best_regions() -> None:
    """By the answer's score, else the region's, or by size; ties go to the first; labels are a condition."""
    pick = Pick(name="p", best=2)
    regions = [region(0.5), region(0.9), region(0.9), region(0.1)]
    assert picked(pick, [(one, None) for one in regions]) == {1, 2}
    answers: list[list[Judgement]] = [[("a", 0.9)], [("b", 0.2)], [("a", 0.3)], []]
    assert picked(pick, list(zip(regions, answers, strict=True))) == {0, 2}
    labelled = Pick(name="p", best=3, labels=("b",))
    assert picked(labelled, list(zip(regions, answers, strict=True))) == {1}
    sizes = [region(0.9, side=3), region(0.1, side=30), region(0.5, side=4)]
    assert picked(Pick(name="p", best=1, by=PickBy.SIZE), [(one, None) for one in sizes]) == {1}


def test_join_stage_puts_answers_together() -> None:
    first, second = {"text": "NO", "score": 0.9}, {"text": "EXIT", "score": 0.8}
    assert joined([first, second]) == {"text": "NO\nEXIT", "answers": [first, second]}
    assert joined([first, {"labels": []}]) == {"answers": [first, {"labels": []}]}
    assert joined([]) == {"text": "", "answers": []}
