"""Edge-MultiAI's own figures: window, history window, score, replacement with the sizes of Table II, atomicity."""

from typing import Any

import pytest

from appliance.lab.plan import plan_one
from appliance.policies.residency.base import ApplicationState, Option, ResidencyProblem
from appliance.policies.residency.iws_bfe import scores
from appliance.policies.residency.windows import is_maximalist, window
from tests.instances.residency import application, problem


def _state(name: str, **more: Any) -> ApplicationState:
    return ApplicationState(name, (Option("only", 1, 1, 90.0, 30),), "only", **more)


def only(name: str, size_mb: float) -> dict[str, Any]:
    """An application with one variant, resident and not expected soon."""
    variant = {"name": "FP32", "size_mb": size_mb, "accuracy": 90.0, "load_ms": size_mb}
    return {"name": name, "variants": [variant], "resident": "FP32", "next_request_s": None}


def test_request_window_is_that_of_figure_3() -> None:
    """t 1000, Δ 50, θ 30: loaded at 920, kept to 1050; both ends are inside."""
    state = _state("a", next_request_ns=1000)
    assert window(state, 50) == (920, 1050)
    inside = [t for t in (919, 920, 1050, 1051) if is_maximalist(state, ResidencyProblem(t, 9, 0, 50, (state,), "a"))]
    assert inside == [920, 1050]


def test_eviction_score_is_that_of_equation_3() -> None:
    """Far away and seldom unexpected goes first; not expected at all counts as far as the farthest."""
    near, far, never = _state("A2", next_request_ns=10), _state("A5", next_request_ns=20), _state("A6")
    asked = ResidencyProblem(0, 9, 0, 50, (near, far, never), "A1", unexpected={"A2": 0.5, "A5": 0.1})
    assert scores(asked, [near, far]) == [0.25, 0.9]
    assert scores(asked, [near, far, never])[2] == 1.0


def _three_loaded(**more: Any) -> dict[str, Any]:
    """Scores 0.9, 0.5 and 0.2 for text, sentence and image: 183.3 MB free, 535.1 needed."""
    others = [
        application(name, "FP32", next_request_s=1100.0, unexpected_probability=1 - score)
        for name, score in (("text_classification", 0.9), ("sentence_prediction", 0.5), ("image_classification", 0.2))
    ]
    return problem([application("face_recognition"), *others], "face_recognition", policy="iws-bfe", **more)


def test_iws_bfe_replaces_one_variant_with_the_sizes_of_table_2() -> None:
    """One replacement is enough, and what it frees beyond the need is used at once."""
    answer: Any = plan_one(_three_loaded())
    assert answer["actions"] == [
        {"application": "text_classification", "from": "FP32", "to": "INT8"},
        {"application": "face_recognition", "from": None, "to": "FP32"},
    ]
    assert (answer["serve"], answer["free_mb"]) == ("FP32", pytest.approx(550.0 - 535.1))


def test_application_requested_within_the_history_window_is_no_victim() -> None:
    """Of A2, A3 and A5 the application requested within H is no candidate, whatever its score."""
    written = _three_loaded()
    written["applications"][1]["last_request_s"] = 998.0
    answer: Any = plan_one(written)
    assert answer["actions"][0]["application"] == "sentence_prediction"


def test_plan_tries_the_next_smaller_variant_from_the_unmodified_state() -> None:
    """Where all replacements do not suffice for a variant, the next smaller one is tried from the unmodified state."""
    tight = problem(
        [application("face_recognition"), application("speech_recognition", "FP16")], "face_recognition", memory_mb=400
    )
    answer: Any = plan_one({**tight, "policy": "iws-bfe"})
    # FP32 cannot fit, FP16 not beside INT8 of the other; INT8 fits into what is free.
    assert answer["actions"] == [{"application": "face_recognition", "from": None, "to": "INT8"}]


def test_smallest_variants_are_unloaded_only_after_replacing() -> None:
    """EM-24: the smallest variants leave only when replacing every variant does not make room for the requester's
    smallest."""
    written = problem(
        [application("face_recognition"), application("speech_recognition", "INT8")], "face_recognition", memory_mb=150
    )
    for policy in ("ws-bfe", "iws-bfe", "expected-utility"):
        answer: Any = plan_one({**written, "policy": policy})
        assert answer["serve"] == "INT8"
        assert answer["actions"][0] == {"application": "speech_recognition", "from": "INT8", "to": None}


def test_requester_gets_the_largest_variant_that_fits_after_an_unload() -> None:
    """EM-22: a whole variant left for the requester's smallest; the largest that fits into what is free then comes,
    not the smallest beside 424 MB.
    """
    written = problem([application("face_recognition"), only("scene_text", 560.0)], "face_recognition", memory_mb=568)
    for policy in ("ws-bfe", "iws-bfe"):
        answer: Any = plan_one({**written, "policy": policy})
        assert [(a["application"], a["to"]) for a in answer["actions"]] == [
            ("scene_text", None),
            ("face_recognition", "FP32"),
        ]


def test_iws_bfe_shrinks_the_requester_before_unloading_applications() -> None:
    """Algorithm 1 gives the requester a smaller variant before it unloads any application; the text of the paper
    unloads for the largest."""
    written = problem([application("face_recognition"), only("scene_text", 560.0)], "face_recognition", memory_mb=720)
    for policy, changes in (
        ("iws-bfe", [("face_recognition", "INT8")]),
        ("iws-bfe-unload-first", [("scene_text", None), ("face_recognition", "FP32")]),
    ):
        answer: Any = plan_one({**written, "policy": policy})
        assert [(a["application"], a["to"]) for a in answer["actions"]] == changes


def test_request_fails_when_every_other_application_is_in_its_window() -> None:
    """EM-10: no application in a window gives way; the failure changes nothing."""
    written = problem(
        [application("face_recognition"), application("speech_recognition", "FP32", next_request_s=1000.0)],
        "face_recognition",
        memory_mb=300,
    )
    for policy in ("lru", "lfe", "bfe", "ws-bfe", "iws-bfe", "expected-utility"):
        answer: Any = plan_one({**written, "policy": policy})
        assert (answer["outcome"], answer["actions"], answer["serve"]) == ("failed", [], None)


@pytest.mark.parametrize(
    ("policy", "victims"),
    [("lru", ["image_classification"]), ("lfe", ["text_classification"]), ("bfe", ["image_classification"])],
)
def test_simple_policy_unloads_by_its_own_order(policy: str, victims: list[str]) -> None:
    """LRU by age, LFE by size, BFE the least that is enough; all unload."""
    written = problem(
        [
            application("speech_recognition"),
            application("text_classification", "FP32", last_request_s=900.0),
            application("image_classification", "FP32", last_request_s=800.0),
            application("sentence_prediction", "FP32", last_request_s=950.0),
        ],
        "speech_recognition",
        memory_mb=1320,
    )
    answer: Any = plan_one({**written, "policy": policy})
    assert [a["application"] for a in answer["actions"][:-1]] == victims
    assert all(a["to"] is None for a in answer["actions"][:-1])


def test_ws_bfe_takes_an_application_with_overlapping_window_last() -> None:
    """WS-BFE takes an overlapping window's application only when the others do not suffice."""
    others = [
        application("text_classification", "FP32", next_request_s=1003.0),
        application("sentence_prediction", "FP32", next_request_s=1100.0),
    ]
    asker = application("image_classification", next_request_s=1000.5)
    for memory_mb, count in ((1100, 1), (1000, 1), (600, 2)):
        chosen: Any = plan_one(
            {**problem([asker, *others], "image_classification", memory_mb=max(memory_mb, 971)), "policy": "ws-bfe"}
        )
        assert chosen["actions"][0]["application"] == "sentence_prediction", (memory_mb, count)
