"""Frames: the paper's means, who waits for whom, and that a seed says all."""

import pytest

from reproduce.band.frames import DISTREAM, EAGLEEYE, Workflow, crowded, frames


def means(workflow: Workflow) -> dict[str, float]:
    """Requests a frame, by network."""
    names = [task.network for frame in frames(workflow, 4000, 1) for task in frame]
    return {name: names.count(name) / 4000 for name in sorted(set(names))}


def test_frames_have_the_papers_mean_requests() -> None:
    """6.0, 1.5, 5.2 and 2.3 requests a frame; 5.0, 5.6 and 0.7."""
    paper = {"RetinaFace": 6.0, "FSRNet": 1.5, "ArcFace-MobileNet": 5.2, "ArcFace-ResNet50": 2.3}
    assert means(EAGLEEYE) == pytest.approx(paper, rel=0.05)
    paper = {"EfficientDet-Lite": 5.0, "EfficientNet-Lite1": 5.6, "EfficientNet-Lite2": 0.7}
    assert means(DISTREAM) == pytest.approx(paper, rel=0.05)


def test_frame_tasks_follow_the_networks_they_depend_on() -> None:
    for frame in frames(EAGLEEYE, 200, 2):
        for index, task in enumerate(frame):
            before = None if task.after is None else frame[task.after].network
            expected: dict[str, set[str | None]] = {
                "RetinaFace": {None},
                "FSRNet": {"RetinaFace"},
                "ArcFace-MobileNet": {"RetinaFace"},
                "ArcFace-ResNet50": {"RetinaFace", "FSRNet"},
            }
            assert before in expected[task.network]
            assert task.after is None or task.after < index


def test_crowded_frames_have_more_requests() -> None:
    assert min(map(len, crowded(EAGLEEYE, 20, 3))) > 1.3 * sum(map(len, frames(EAGLEEYE, 200, 3))) / 200


def test_frames_depend_on_the_seed_alone() -> None:
    assert frames(EAGLEEYE, 10, 4) == frames(EAGLEEYE, 10, 4)
    assert frames(EAGLEEYE, 10, 4) != frames(EAGLEEYE, 10, 5)
