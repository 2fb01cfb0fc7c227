"""The inputs of the zoo's networks, out of real pictures, clips, speech and sentences, with truths read off by eye."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from appliance.demo.zoo import media, toys
from appliance.demo.zoo.catalogue import read_table
from appliance.demo.zoo.media import RATE_HZ, Picture, cut_line, cut_square, pieces, spread

TALKING_HEAD = "clips/carphone_pristine.mp4"
STREET = "clips/bikes.mp4"
WALKERS = "samples/data/vtest.avi"
DIALOGUE = "dialogue/sample.wav"
MIN_LINE_HEIGHT = 12
"""Lower lines are guesswork for a person too."""
LABELLED_FROM_S = 6.5
"""The dialogue is labelled from its first turn at 6.69 s on."""

TRUTHS = read_table("truths.toml")
Quad = list[list[int]]
Labelled = tuple[Any, dict[str, Any]]
"""An input, and its truth."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Pictures and sounds that devices send, that int8 is calibrated with, and that accuracy is measured on."""

    inputs: Sequence[Any]
    calibration: Iterable[Any]
    evaluation: Sequence[Labelled] = ()
    suffix: str = ".jpg"


@dataclass(frozen=True, slots=True)
class Source:
    """Files of packages, by `package/file`, as far as their packages are at hand."""

    path: Callable[[str], Path]
    packages: frozenset[str]

    def has(self, file: str) -> bool:
        return file.split("/", maxsplit=1)[0] in self.packages

    def frames(self, file: str, numbers: Iterable[int]) -> list[Picture]:
        """Of a clip."""
        return media.frames(self.path(file), numbers)

    def picture(self, file: str, number: int = 0) -> Picture:
        """A photo, or a frame of a clip."""
        return self.frames(file, [number])[0] if file.endswith(".mp4") else media.picture(self.path(file))


def write(name: str, source: Source, folder: Path) -> None:
    """Write inputs/, calibration/, and evaluation/ where there are truths, as the function `name` gives them."""
    made = MAKERS[name](source)
    media.write(folder / "inputs", made.inputs, made.suffix)
    media.write(folder / "calibration", made.calibration, made.suffix)
    if made.evaluation:
        media.write_labelled(folder / "evaluation", made.evaluation, made.suffix)


def street(source: Source) -> Samples:
    """Walkers; without their clip, cyclists and a bus."""
    clip, shown, total = (WALKERS, range(360, 480), 795) if source.has(WALKERS) else (STREET, range(76, 190), 250)
    return Samples(source.frames(clip, shown), source.frames(clip, spread(32, total)))


def quad_of(numbers: Sequence[int]) -> Quad:
    """Four corners from eight numbers, or from the left, top, right and bottom of a level line."""
    if len(numbers) == 4:
        left, top, right, bottom = numbers
        numbers = (left, top, right, top, right, bottom, left, bottom)
    return [list(numbers[at : at + 2]) for at in range(0, 8, 2)]


def _texts(source: Source) -> Iterator[tuple[Picture, list[tuple[str, Quad]]]]:
    """Photos with real text and all its lines; without them, frames with a taxi's sign and frames with drawn signs."""
    is_photographed = source.has(TRUTHS["pages"][0])
    for entry in TRUTHS["text_pictures" if is_photographed else "text_frames"]:
        lines = [(text, quad_of(numbers)) for text, *numbers in entry["lines"]]
        yield source.picture(entry["file"], entry.get("frame", 0)), lines
    if not is_photographed:
        yield from _drawn(source, len(TRUTHS["drawn_signs"]))


def _drawn(source: Source, count: int) -> Iterator[tuple[Picture, list[tuple[str, Quad]]]]:
    """Real street frames with a drawn sign each; between the cuts of the clip, where no real text is readable."""
    for index, frame in enumerate(source.frames(STREET, spread(count, 100, start=142))):
        text = TRUTHS["drawn_signs"][index % len(TRUTHS["drawn_signs"])]
        place = (40 + 23 * (index % 9), 24 + 11 * (index % 7))
        image, corners = media.with_sign(frame, text, place, 16 + 4 * (index % 4), white_on_blue=index % 2 == 0)
        yield image, [(text, [list(corner) for corner in corners])]


def signs(source: Source) -> Samples:
    """Pictures with text, and where it is."""
    labelled = [(image, {"regions": [{"quad": quad} for _, quad in lines]}) for image, lines in _texts(source)]
    images = [image for image, _ in labelled]
    return Samples(images, [*images, *(image for image, _ in _drawn(source, 16))][:24], labelled)


def lines(source: Source) -> Samples:
    """Lines of text, cut out of those pictures."""
    seen, drawn = (
        [(cut_line(image, quad), {"text": text}) for image, written in texts for text, quad in written]
        for texts in (_texts(source), _drawn(source, 24))
    )
    readable = [(image, truth) for image, truth in seen if image.shape[0] >= MIN_LINE_HEIGHT]
    return Samples([image for image, _ in readable], [image for image, _ in (*seen, *drawn)][:40], readable, ".png")


def faces(source: Source) -> Samples:
    """A talking head."""
    known = (truth for truth in TRUTHS["faces"] if source.has(truth[0]))
    labelled = [(source.picture(file, number), {"objects": [{"box": box}]}) for file, number, *box in known]
    calibration = source.frames(TALKING_HEAD, spread(24, 120)) + source.frames(STREET, spread(8, 250))
    return Samples(source.frames(TALKING_HEAD, range(120)), calibration, labelled)


def people(source: Source) -> Samples:
    """Crops of faces, several of each person."""
    crops = []
    for file, number, *box in (*TRUTHS["faces"], *TRUTHS["small_faces"]):
        if source.has(file):
            image, margins = source.picture(file, number), (0.1,) if file == TALKING_HEAD else (0.02, 0.1, 0.2)
            crops += [(cut_square(image, box, margin), {"group": file}) for margin in margins]
    images = [image for image, _ in crops]
    moving = [cut_square(i, (45, 35, 105, 100), 0.15) for i in source.frames(TALKING_HEAD, spread(28, 120))]
    return Samples(images, [*moving, *images[-4:]], crops)


def photos(source: Source) -> Samples:
    """Few photos tell more when their middles and mirror images are judged too; calibration has cuts of them."""
    labelled = [(source.picture(f), {"label": label}) for f, label in TRUTHS["photo_classes"].items() if source.has(f)]
    unlabelled = map(source.picture, filter(source.has, TRUTHS["unlabelled_photos"]))
    shown = [*(photo for photo, _ in labelled), *unlabelled]
    views = [(view, truth) for photo, truth in labelled for view in _views(photo)]
    cuts = [cut for photo in shown for cut in _corners(photo)] + source.frames(STREET, spread(8, 250))
    return Samples(shown + source.frames(STREET, spread(12, 250)), cuts[:40], views)


def _views(photo: Picture) -> Iterator[Picture]:
    height, width = photo.shape[:2]
    for view in (photo, photo[height // 12 : height - height // 12, width // 12 : width - width // 12]):
        yield from (view, view[:, ::-1].copy())


def _corners(photo: Picture) -> Iterator[Picture]:
    side = round(min(photo.shape[:2]) * 0.8)
    yield from (photo[:side, :side], photo[-side:, -side:])


def turned_pages(source: Source) -> Samples:
    """Pictures with text, in four directions."""
    turned = [
        (np.rot90(page, -quarter).copy(), {"label": f"turned by {90 * quarter}°" if quarter else "upright"})
        for page in map(source.picture, TRUTHS["pages"])
        for quarter in range(4)
    ]
    images = [image for image, _ in turned]
    return Samples(images, [image[image.shape[0] // 8 :, image.shape[1] // 8 :] for image in images], turned)


def dialogue(source: Source) -> Samples:
    """What a microphone sends at once: 16 chunks of 32 ms."""
    heard = media.sound(source.path(DIALOGUE))
    segments = media.speech_in(source.path("dialogue/sample.rttm").read_text(), LABELLED_FROM_S)
    labelled = [(heard[int(LABELLED_FROM_S * RATE_HZ) :], {"segments": segments})]
    return Samples(pieces(heard, 8_192), pieces(heard, 3 * RATE_HZ), labelled, ".wav")


def voice(source: Source) -> Samples:
    """Seconds of speech."""
    rows = [{"audio": piece[np.newaxis]} for piece in _spoken(source, seconds=1)]
    return Samples(rows, rows[:16], suffix=".npz")


def voice_at_22050(source: Source) -> Samples:
    """16 to 22.05 kHz by straight lines: speech has little near the edge."""
    wanted = np.arange(43_844) * (RATE_HZ / 22_050)
    heard = (np.interp(wanted, np.arange(len(piece)), piece) for piece in _spoken(source, seconds=2))
    rows = [{"serving_default_input_2:0": piece.astype(np.float32).reshape(1, -1, 1)} for piece in heard]
    return Samples(rows, rows[:8], suffix=".npz")


def _spoken(source: Source, seconds: int) -> list[Any]:
    """Speech in -1..1, in pieces."""
    heard = (
        media.sound(source.path(DIALOGUE))[7 * RATE_HZ :]
        if source.has(DIALOGUE)
        else np.concatenate([media.sound(source.path(file)) for file in TRUTHS["reading"]])
    )
    return [piece.astype(np.float32) / np.float32(32768) for piece in pieces(heard, seconds * RATE_HZ)]


def sentences(source: Source) -> Samples:
    """Pairs that say the same."""
    labelled = [(text, {"group": group}) for group, pair in enumerate(TRUTHS["sentences"]) for text in pair]
    texts = [text for text, _ in labelled]
    return Samples(texts, texts, labelled, ".txt")


def numerals(source: Source) -> Samples:
    """Drawn ones."""
    drawn = toys.Numerals()
    labelled = drawn.labelled()
    return Samples([image for image, _ in labelled], drawn.images[: toys.CALIBRATED], labelled, ".png")


PICTURES = (street, signs, lines, faces, people, photos, turned_pages, numerals)
OTHERS = (dialogue, voice, voice_at_22050, sentences)
MAKERS = {maker.__name__: maker for maker in (*PICTURES, *OTHERS)}
"""Name in the catalogue → the function that makes the samples."""
