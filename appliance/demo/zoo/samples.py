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
READING = "speech/sense_and_sensibility_01_austen_64kb-0{}.wav"
DRAWN_SIGNS = ("EXIT 12", "Platform 4", "Way in", "Gate B7", "Hello World", "Mind the gap", "Open 9 to 5", "No entry")
UNLABELLED = ("samples/data/apple.jpg", "samples/data/fruits.jpg", "photos/rocket.jpg")
"""Photos that no single ImageNet class fits."""
PAGES = (*(f"samples/text/scenetext0{number}.jpg" for number in (1, 2, 3, 5)), "samples/data/imageTextN.png")
FOOTBALLER = ("samples/data/messi5.jpg", (225, 92, 257, 135))
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

    def picture(self, file: str) -> Picture:
        return media.picture(self.path(file))

    def frames(self, file: str, numbers: Iterable[int]) -> list[Picture]:
        return media.frames(self.path(file), numbers)


def write(name: str, source: Source, folder: Path) -> None:
    """Write inputs/, calibration/, and evaluation/ where there are truths, as the function `name` gives them."""
    made = MAKERS[name](source)
    media.write(folder / "inputs", made.inputs, made.suffix)
    media.write(folder / "calibration", made.calibration, made.suffix)
    if made.evaluation:
        media.write_labelled(folder / "evaluation", made.evaluation, made.suffix)


def _street(source: Source) -> Samples:
    """Walkers; without their clip, cyclists and a bus."""
    if source.has(WALKERS):
        return Samples(source.frames(WALKERS, range(360, 480)), source.frames(WALKERS, spread(32, 795)))
    return Samples(source.frames(STREET, range(76, 190)), source.frames(STREET, spread(32, 250)))


def quad_of(numbers: Sequence[int]) -> Quad:
    """Four corners from eight numbers, or from the left, top, right and bottom of a level line."""
    if len(numbers) == 4:
        left, top, right, bottom = numbers
        numbers = (left, top, right, top, right, bottom, left, bottom)
    return [list(numbers[at : at + 2]) for at in range(0, 8, 2)]


def _texts(source: Source) -> Iterator[tuple[Picture, list[tuple[str, Quad]]]]:
    """Photos with real text and all its lines; without them, frames with a taxi's sign and frames with drawn signs."""
    is_photographed = source.has(TRUTHS["text_pictures"][0]["file"])
    for entry in TRUTHS["text_pictures" if is_photographed else "text_frames"]:
        file, lines = entry["file"], [(text, quad_of(numbers)) for text, *numbers in entry["lines"]]
        yield source.picture(file) if is_photographed else source.frames(file, [entry["frame"]])[0], lines
    if not is_photographed:
        yield from _drawn(source, len(DRAWN_SIGNS))


def _drawn(source: Source, count: int) -> Iterator[tuple[Picture, list[tuple[str, Quad]]]]:
    """Real street frames with a drawn sign each; between the cuts of the clip, where no real text is readable."""
    for index, frame in enumerate(source.frames(STREET, spread(count, 100, start=142))):
        text = DRAWN_SIGNS[index % len(DRAWN_SIGNS)]
        place = (40 + 23 * (index % 9), 24 + 11 * (index % 7))
        image, corners = media.with_sign(frame, text, place, 16 + 4 * (index % 4), white_on_blue=index % 2 == 0)
        yield image, [(text, [list(corner) for corner in corners])]


def _signs(source: Source) -> Samples:
    seen = list(_texts(source))
    images = [image for image, _ in seen]
    labelled = [(image, {"regions": [{"quad": quad} for _, quad in lines]}) for image, lines in seen]
    return Samples(images, [*images, *(image for image, _ in _drawn(source, 16))][:24], labelled)


def _lines(source: Source) -> Samples:
    seen, drawn = (
        [(cut_line(image, quad), {"text": text}) for image, lines in texts for text, quad in lines]
        for texts in (_texts(source), _drawn(source, 24))
    )
    readable = [(image, truth) for image, truth in seen if image.shape[0] >= MIN_LINE_HEIGHT]
    return Samples([image for image, _ in readable], [image for image, _ in (*seen, *drawn)][:40], readable, ".png")


def _faces(source: Source) -> Samples:
    labelled = [
        (
            source.frames(file, [number])[0] if file == TALKING_HEAD else source.picture(file),
            {"objects": [{"box": box}]},
        )
        for file, number, *box in TRUTHS["faces"]
        if source.has(file)
    ]
    calibration = source.frames(TALKING_HEAD, spread(24, 120)) + source.frames(STREET, spread(8, 250))
    return Samples(source.frames(TALKING_HEAD, range(120)), calibration, labelled)


def _people(source: Source) -> Samples:
    """Crops of faces, several of each person."""
    marked = {number: box for file, number, *box in TRUTHS["faces"] if file == TALKING_HEAD}
    heads = zip(source.frames(TALKING_HEAD, marked), marked.values(), strict=True)
    crops = [(cut_square(image, box, 0.1), {"group": "driver"}) for image, box in heads]
    astronaut = next((file, box) for file, _, *box in TRUTHS["faces"] if file != TALKING_HEAD)
    for name, (file, box) in (("astronaut", astronaut), ("footballer", FOOTBALLER)):
        if source.has(file):
            image = source.picture(file)
            crops += [(cut_square(image, box, margin), {"group": name}) for margin in (0.02, 0.1, 0.2)]
    images = [image for image, _ in crops]
    moving = [cut_square(i, (45, 35, 105, 100), 0.15) for i in source.frames(TALKING_HEAD, spread(28, 120))]
    return Samples(images, [*moving, *images[-4:]], crops)


def _photos(source: Source) -> Samples:
    """Few photos tell more when their middles and mirror images are judged too; calibration has cuts of them."""
    labelled = [(source.picture(f), {"label": label}) for f, label in TRUTHS["photo_classes"].items() if source.has(f)]
    photos = [photo for photo, _ in labelled] + [source.picture(file) for file in UNLABELLED if source.has(file)]
    views = [(view, truth) for photo, truth in labelled for view in _views(photo)]
    cuts = [cut for photo in photos for cut in _corners(photo)] + source.frames(STREET, spread(8, 250))
    return Samples(photos + source.frames(STREET, spread(12, 250)), cuts[:40], views)


def _views(photo: Picture) -> Iterator[Picture]:
    height, width = photo.shape[:2]
    for view in (photo, photo[height // 12 : height - height // 12, width // 12 : width - width // 12]):
        yield from (view, view[:, ::-1].copy())


def _corners(photo: Picture) -> Iterator[Picture]:
    height, width = photo.shape[:2]
    side = round(min(height, width) * 0.8)
    for top, left in ((0, 0), (height - side, width - side)):
        yield photo[top : top + side, left : left + side]


def _turned_pages(source: Source) -> Samples:
    turned = [
        (np.rot90(page, -quarter).copy(), {"label": str(90 * quarter)})
        for page in map(source.picture, PAGES)
        for quarter in range(4)
    ]
    images = [image for image, _ in turned]
    return Samples(images, [image[image.shape[0] // 8 :, image.shape[1] // 8 :] for image in images], turned)


def _dialogue(source: Source) -> Samples:
    """What a microphone sends at once: 16 chunks of 32 ms."""
    heard = media.sound(source.path(DIALOGUE))
    segments = media.speech_in(source.path("dialogue/sample.rttm").read_text(), LABELLED_FROM_S)
    labelled = [(heard[int(LABELLED_FROM_S * RATE_HZ) :], {"segments": segments})]
    return Samples(pieces(heard, 8_192), pieces(heard, 3 * RATE_HZ), labelled, ".wav")


def _voice(source: Source) -> Samples:
    rows = [{"audio": piece[np.newaxis]} for piece in _spoken(source, seconds=1)]
    return Samples(rows, rows[:16], suffix=".npz")


def _voice_at_22050(source: Source) -> Samples:
    """16 to 22.05 kHz by straight lines: speech has little near the edge."""
    wanted = np.arange(43_844) * (RATE_HZ / 22_050)
    heard = (np.interp(wanted, np.arange(len(piece)), piece) for piece in _spoken(source, seconds=2))
    rows = [{"serving_default_input_2:0": piece.astype(np.float32).reshape(1, -1, 1)} for piece in heard]
    return Samples(rows, rows[:8], suffix=".npz")


def _spoken(source: Source, seconds: int) -> list[Any]:
    """Speech in -1..1, in pieces."""
    if source.has(READING):
        numbers = (870, 880, 890, 920, 930)
        heard = np.concatenate([media.sound(source.path(READING.format(number))) for number in numbers])
    else:
        heard = media.sound(source.path(DIALOGUE))[7 * RATE_HZ :]
    return [piece.astype(np.float32) / np.float32(32768) for piece in pieces(heard, seconds * RATE_HZ)]


def _sentences(source: Source) -> Samples:
    labelled = [(text, {"group": group}) for group, pair in enumerate(TRUTHS["sentences"]) for text in pair]
    texts = [text for text, _ in labelled]
    return Samples(texts, texts, labelled, ".txt")


def _numerals(source: Source) -> Samples:
    drawn = toys.drawn_numerals()
    labelled = drawn.labelled()
    return Samples([image for image, _ in labelled], drawn.images[: toys.CALIBRATED], labelled, ".png")


MAKERS: dict[str, Callable[[Source], Samples]] = {
    "street": _street,
    "signs": _signs,
    "lines": _lines,
    "faces": _faces,
    "people": _people,
    "photos": _photos,
    "turned_pages": _turned_pages,
    "dialogue": _dialogue,
    "voice": _voice,
    "voice_at_22050": _voice_at_22050,
    "sentences": _sentences,
    "numerals": _numerals,
}
