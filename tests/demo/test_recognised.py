"""Answers in a few words."""

from typing import Any

import pytest

from appliance.demo.recognised import WORDS_MAX, Nearest, in_words


@pytest.mark.parametrize(
    ("task", "answer", "words"),
    [
        (
            "image-classification",
            {"labels": [{"label": "mountain bike, off-roader", "score": 0.914}]},
            "mountain bike 91%",
        ),
        (
            "object-detection",
            {"objects": [{"label": "person"}, {"label": "car"}, {"label": "person"}]},
            "2 person, car",
        ),
        ("object-detection", {"objects": []}, ""),
        ("face-detection", {"objects": [{"box": [10.2, 20.0, 60.4, 90.0]}]}, "a face of 50×70 px at (10, 20)"),
        ("face-detection", {"objects": [{"box": [0, 0, 9, 9]}] * 3}, "a face of 9×9 px at (0, 0) and 2 more"),
        ("face-detection", {"objects": []}, ""),
        ("text-detection", {"regions": [{}, {}]}, "2 places with text"),
        ("text-recognition", {"text": "NO PARKING"}, "“NO PARKING”"),
        ("text-recognition", {"text": " "}, ""),
        ("voice-activity", {"segments": [{"start_s": 1.0, "end_s": 1.52}]}, "speech at 1.0–1.5 s"),
        ("voice-activity", {"segments": []}, ""),
        ("tensor", {"outputs": {"pitch": {"data": [100.0, None, 120.0, 110.0]}, "s": {"data": []}}}, "pitch 110"),
    ],
)
def test_answer_in_words_depends_on_the_task(task: str, answer: dict[str, Any], words: str) -> None:
    """Nothing where nothing was recognised."""
    assert in_words(task, answer) == words


def test_answer_in_words_is_cut_to_one_line() -> None:
    """A paragraph is cut."""
    words = in_words("text-recognition", {"text": "word " * 40})
    assert len(words) == WORDS_MAX
    assert words.endswith("…")


def test_embedding_in_words_names_its_nearest_neighbour() -> None:
    """The first has none; later ones name the nearest other input, never themselves."""
    nearest = Nearest()
    assert nearest.in_words("hello", [1.0, 0.0]) == ""
    assert nearest.in_words("good day", [0.8, 0.6]) == "good day is most like hello (0.80)"
    assert nearest.in_words("stone", [0.0, 1.0]) == "stone is most like good day (0.60)"
    assert nearest.in_words("hello", [1.0, 0.0]) == "hello is most like good day (0.80)"


def test_known_embeddings_are_bounded() -> None:
    """The oldest is forgotten."""
    nearest = Nearest(known_max=2)
    for name in ("a", "b", "c"):
        nearest.in_words(name, [1.0] if name == "a" else [0.5])
    assert "“a”" not in nearest.in_words("d", [1.0])
