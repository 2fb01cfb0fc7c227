"""What the demo counts of a pipeline, and the words that it tells of a frame."""

import pytest

from appliance.clock import NS_PER_S
from appliance.demo.figures import Figures, Seen
from appliance.demo.recognised import WORDS_MAX, cut_out, frame_in_words
from appliance.wire.pipelines import ItemShape


def _read(text: str) -> ItemShape:
    read = ItemShape(stage="read", variant="fp32", answer={"text": text, "score": 0.9})
    return ItemShape(stage="lines", quad=[(0, 0), (9, 0), (9, 9), (0, 9)], answer={"score": 0.8}, items=[read])


def _thing(label: str, called: str = "") -> ItemShape:
    what = ItemShape(stage="what", answer={"labels": [{"label": called, "index": 1, "score": 0.7}]})
    answer = {"score": 0.9, "label": label}
    return ItemShape(stage="things", box=(0, 0, 9, 9), answer=answer, items=[what] if called else [])


def _frame(*items: ItemShape) -> list[ItemShape]:
    return [ItemShape(stage="find", variant="int8", answer={"regions": []}, items=list(items))]


def test_frame_in_words_tells_texts_things_and_faces() -> None:
    """Texts as they were read; things by their last label, and how many; faces by their number."""
    assert frame_in_words(_frame(_read("NO PARKING"), _read(" "), _read("GATE 7"))) == "“NO PARKING”, “GATE 7”"
    street = _frame(_thing("person"), _thing("person"), _thing("bag", "backpack, rucksack"))
    assert frame_in_words(street) == "2 person, backpack"
    face = ItemShape(stage="who", answer={"embedding": [0.1], "dimensions": 1})
    assert frame_in_words(_frame(ItemShape(stage="crop", box=(0, 0, 9, 9), items=[face]))) == "1 face described"
    assert frame_in_words(_frame()) == ""
    assert len(frame_in_words(_frame(*[_read("word " * 9)] * 5))) == WORDS_MAX


def test_cut_out_items_of_a_frame_are_counted() -> None:
    """Regions and boxes, however deep, and nothing else."""
    assert cut_out(_frame()) == 0
    assert cut_out(_frame(_read("A"), _thing("car", "cab"), _thing("person"))) == 3


def test_pipeline_figures_count_failed_frames_as_not_in_time() -> None:
    """Costs and items are means of the answered frames."""
    figures = Figures("glasses", "signs", is_pipeline=True)
    for at_s in range(4):
        seen = Seen(
            at_ns=at_s * NS_PER_S,
            latency_ms=10.0 + at_s,
            recognised=f"“{at_s % 2}”",
            is_in_time=at_s > 0,
            items=2 * at_s,
            cost_s=0.01,
        )
        figures.take(seen)
    figures.take("the queue is full")
    assert (figures.in_time, figures.sent) == (3, 5)
    assert figures.rate_per_s(3 * NS_PER_S) == pytest.approx(4 / 3)
    assert figures.rate_per_s(30 * NS_PER_S) == 0.0
    assert figures.summary() == {
        "name": "signs",
        "tenant": "glasses",
        "frames": 5,
        "answered": 4,
        "in_time": 3,
        "p50_ms": 11.0,
        "p99_ms": 13.0,
        "items_per_frame": 3.0,
        "cost_s": pytest.approx(0.01),
        "recognised": ["“0”", "“1”"],
    }


def test_pipeline_summary_without_answers_has_zeros_and_nulls() -> None:
    summary = Figures("glasses", "signs", is_pipeline=True).summary()
    assert (summary["frames"], summary["p50_ms"], summary["items_per_frame"], summary["cost_s"]) == (
        0,
        None,
        None,
        None,
    )
