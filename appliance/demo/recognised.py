"""An answer in a few words, so that a person sees that it is real: the objects in a frame, the words on a sign.

Pure: plain JSON in, text out. The shapes of the answers are those of `POST /v1/applications/{a}/predict`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from appliance.domain.catalogue import TaskKind
from appliance.wire.pipelines import ItemShape

Answer = Mapping[str, Any]

WORDS_MAX = 60
"""Characters of one recognised thing, so that a line stays a line."""


def in_words(task: str, answer: Answer) -> str:
    """What was recognised; empty where there is nothing to tell (no face in the frame, silence)."""
    teller = _TELLERS.get(TaskKind(task))
    return cut(teller(answer), WORDS_MAX) if teller else ""


def frame_in_words(items: Sequence[ItemShape]) -> str:
    """The texts and things in a frame; empty where nothing was found."""
    texts, things, vectors = [], [], 0
    for item in every(items):
        answer = item.answer or {}
        if (text := str(answer.get("text", "")).strip()) != "":
            texts.append(f"“{text}”")
        elif answer.get("labels"):
            things.append(_first_name(answer["labels"][0]))
        elif answer.get("label") and not item.items:
            things.append(str(answer["label"]))
        vectors += "embedding" in answer
    told = [*texts, *_counted(things)]
    if vectors:
        told.append(f"{vectors} face{'s' if vectors > 1 else ''} described")
    return cut(", ".join(told), WORDS_MAX)


def cut_out(items: Sequence[ItemShape]) -> int:
    """Items that were cut out of a frame."""
    return sum(item.box is not None or item.quad is not None for item in every(items))


def every(items: Sequence[ItemShape]) -> Iterator[ItemShape]:
    """Of the whole tree, each before those below it."""
    for item in items:
        yield item
        yield from every(item.items)


def cut(words: str, characters: int) -> str:
    """Return at most so many characters; where some are left out, the last is an ellipsis."""
    return words if len(words) <= characters else words[: characters - 1] + "…"


def _first_name(label: Answer) -> str:
    """ImageNet's labels list synonyms."""
    return str(label["label"]).split(",", maxsplit=1)[0]


def _counted(things: Iterable[str]) -> list[str]:
    return [f"{count} {thing}" if count > 1 else thing for thing, count in Counter(things).most_common(5)]


def _faces(answer: Answer) -> str:
    faces = answer["objects"]
    if not faces:
        return ""
    left, top, right, bottom = (round(side) for side in faces[0]["box"])
    more = f" and {len(faces) - 1} more" if len(faces) > 1 else ""
    return f"a face of {right - left}×{bottom - top} px at ({left}, {top}){more}"


def _places(answer: Answer) -> str:
    count = len(answer["regions"])
    return f"{count} place{'s' if count > 1 else ''} with text" if count else ""


def _speech(answer: Answer) -> str:
    spans = ", ".join(f"{part['start_s']:.1f}–{part['end_s']:.1f} s" for part in answer["segments"][:3])
    return f"speech at {spans}" if spans else ""


def _middles(answer: Answer) -> str:
    """The middle value of each output of numbers: of a pitch detector, the pitch itself."""
    numbers = {
        name: sorted(value for value in entry["data"] if isinstance(value, int | float))
        for name, entry in answer["outputs"].items()
    }
    return ", ".join(f"{name} {values[len(values) // 2]:.4g}" for name, values in numbers.items() if values)


_TELLERS: Mapping[TaskKind, Callable[[Answer], str]] = {
    TaskKind.IMAGE_CLASSIFICATION: lambda said: f"{_first_name(said['labels'][0])} {said['labels'][0]['score']:.0%}",
    TaskKind.OBJECT_DETECTION: lambda said: ", ".join(_counted(found["label"] for found in said["objects"])),
    TaskKind.FACE_DETECTION: _faces,
    TaskKind.TEXT_DETECTION: _places,
    TaskKind.TEXT_RECOGNITION: lambda said: f"“{said['text']}”" if said["text"].strip() else "",
    TaskKind.VOICE_ACTIVITY: _speech,
    TaskKind.TENSOR: _middles,
}


class Nearest:
    """Tells of an embedding which of the last things seen before is nearest to it."""

    def __init__(self, known_max: int = 64) -> None:
        self._known: dict[str, list[float]] = {}
        self._known_max = known_max

    def in_words(self, name: str, vector: list[float]) -> str:
        """Return `name is most like other (0.83)`, with their cosine; empty while nothing else is known. Vectors have
        unit length.
        """
        self._known.pop(name, None)
        nearest = max(((_dot(vector, known), other) for other, known in self._known.items()), default=None)
        self._known[name] = vector
        if len(self._known) > self._known_max:
            del self._known[next(iter(self._known))]
        return "" if nearest is None else f"{name} is most like {nearest[1]} ({nearest[0]:.2f})"


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
