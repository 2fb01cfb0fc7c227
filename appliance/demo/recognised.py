"""An answer in a few words, so that a person sees that it is real: the objects in a frame, the words on a sign.

Pure: plain JSON in, text out. The shapes of the answers are those of `POST /v1/applications/{a}/predict`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from appliance.domain.catalogue import TaskKind

Answer = Mapping[str, Any]

WORDS_MAX = 60
"""Characters of one recognised thing, so that a line stays a line."""


def in_words(task: str, answer: Answer) -> str:
    """What was recognised; empty where there is nothing to tell (no face in the frame, silence)."""
    teller = _TELLERS.get(TaskKind(task))
    words = teller(answer) if teller else ""
    return words if len(words) <= WORDS_MAX else words[: WORDS_MAX - 1] + "…"


def _top_label(answer: Answer) -> str:
    best = answer["labels"][0]
    first_name = str(best["label"]).split(",", maxsplit=1)[0]  # ImageNet's labels list synonyms
    return f"{first_name} {best['score']:.0%}"


def _objects(answer: Answer) -> str:
    counts = Counter(found["label"] for found in answer["objects"])
    return ", ".join(f"{count} {label}" if count > 1 else str(label) for label, count in counts.most_common(5))


def _faces(answer: Answer) -> str:
    faces = answer["objects"]
    if not faces:
        return ""
    left, top, right, bottom = (round(side) for side in faces[0]["box"])
    more = f" and {len(faces) - 1} more" if len(faces) > 1 else ""
    return f"a face of {right - left}×{bottom - top} px at ({left}, {top}){more}"


def _regions(answer: Answer) -> str:
    count = len(answer["regions"])
    return f"{count} place{'s' if count > 1 else ''} with text" if count else ""


def _text(answer: Answer) -> str:
    return f"“{answer['text']}”" if answer["text"].strip() else ""


def _speech(answer: Answer) -> str:
    segments: Sequence[Mapping[str, float]] = answer["segments"]
    if not segments:
        return ""
    spans = ", ".join(f"{part['start_s']:.1f}–{part['end_s']:.1f} s" for part in segments[:3])
    return f"speech at {spans}"


def _tensors(answer: Answer) -> str:
    """The middle value of each output of numbers: of a pitch detector, the pitch itself."""
    middles = []
    for name, entry in answer["outputs"].items():
        values = sorted(value for value in entry["data"] if isinstance(value, int | float))
        if values:
            middles.append(f"{name} {values[len(values) // 2]:.4g}")
    return ", ".join(middles)


_TELLERS: Mapping[TaskKind, Callable[[Answer], str]] = {
    TaskKind.IMAGE_CLASSIFICATION: _top_label,
    TaskKind.OBJECT_DETECTION: _objects,
    TaskKind.FACE_DETECTION: _faces,
    TaskKind.TEXT_DETECTION: _regions,
    TaskKind.TEXT_RECOGNITION: _text,
    TaskKind.VOICE_ACTIVITY: _speech,
    TaskKind.TENSOR: _tensors,
}


class Nearest:
    """Tells of an embedding which of the things seen before is nearest to it.

    Bounded: the oldest is forgotten first.
    """

    def __init__(self, known_max: int = 64) -> None:
        self._known: dict[str, list[float]] = {}
        self._known_max = known_max

    def in_words(self, name: str, vector: list[float]) -> str:
        """`“name” ≈ “other” 0.83` (their cosine); empty while nothing else is known. Vectors have unit length."""
        others = ((other, _dot(vector, known)) for other, known in self._known.items() if other != name)
        best = max(others, key=lambda pair: pair[1], default=None)
        self._known.pop(name, None)
        self._known[name] = vector
        if len(self._known) > self._known_max:
            del self._known[next(iter(self._known))]
        return "" if best is None else f"“{_short(name)}” ≈ “{_short(best[0])}” {best[1]:.2f}"


def _short(name: str, characters: int = 32) -> str:
    return name if len(name) <= characters else name[: characters - 1] + "…"


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
