"""Recipes of the networks that find lines of text in a picture and read them."""

import shutil
from collections.abc import Iterator

from appliance.demo.zoo.annotations import TEXT_FRAMES, TEXT_PICTURES, Line
from appliance.demo.zoo.inputs import Picture, cut_line, frames, picture, spread, with_sign, write_pictures, write_truth
from appliance.demo.zoo.recipes import RecipeContext

NORMAL = {"mean": [127.5], "std": [127.5], "pad_value": 127.5}
DRAWN_SIGNS = ("EXIT 12", "Platform 4", "Way in", "Gate B7", "Hello World", "Mind the gap", "Open 9 to 5", "No entry")


def find_v4(context: RecipeContext) -> None:
    """PP-OCRv4 detection."""
    _find(context, "ppocr4", "ch_PP-OCRv4_det_infer.onnx")


def read_v4(context: RecipeContext) -> None:
    """PP-OCRv4 recognition; the dictionary is inside the model file."""
    _read(context, "ppocr4", "ch_PP-OCRv4_rec_infer.onnx")


def read_v6(context: RecipeContext) -> None:
    """PP-OCRv6 recognition: 50 languages."""
    _read(context, "ppocr6", "PP-OCRv6_rec_small.onnx")


def _find(context: RecipeContext, key: str, name: str) -> None:
    shutil.copyfile(context.file(key, name), context.model)
    image = {
        "layout": "NCHW",
        "channels": "BGR",
        **NORMAL,
        "resize": "letterbox",
        "height": 576,
        "width": 768,
        "multiple": 32,
    }
    params = {"binarise": 0.3, "score_min": 0.5, "unclip": 1.6}
    context.metadata("text-detection", image=image, decoder="db", params=params)
    seen = list(pictures_with_text(context))
    files = write_pictures(context.evaluation, [image for image, _ in seen])
    truths = [{"regions": [{"quad": [list(point) for point in line.quad]} for line in lines]} for _, lines in seen]
    write_truth(context.evaluation, files, truths)
    write_pictures(context.inputs, [image for image, _ in seen])
    write_pictures(context.calibration, [*(image for image, _ in seen), *_drawn_only(context, 16)][:24])


def _read(context: RecipeContext, key: str, name: str) -> None:
    shutil.copyfile(context.file(key, name), context.model)
    image = {"layout": "NCHW", "channels": "BGR", **NORMAL, "resize": "keep-height", "height": 48, "multiple": 8}
    context.metadata("text-recognition", image=image, decoder="ctc")
    seen = [(cut_line(image, line.quad), line.text) for image, lines in pictures_with_text(context) for line in lines]
    readable = [(image, text) for image, text in seen if image.shape[0] >= MIN_LINE_HEIGHT]
    files = write_pictures(context.evaluation, [image for image, _ in readable], ".png")
    write_truth(context.evaluation, files, [{"text": text} for _, text in readable])
    write_pictures(context.inputs, [image for image, _ in readable], ".png")
    drawn = [cut_line(image, line.quad) for image, lines in _drawn(context, 24) for line in lines]
    write_pictures(context.calibration, [*(image for image, _ in seen), *drawn][:40], ".png")


MIN_LINE_HEIGHT = 12
"""Lower lines are guesswork for a person too."""


def pictures_with_text(context: RecipeContext) -> Iterator[tuple[Picture, tuple[Line, ...]]]:
    """Photos with real text and all its lines; without the photos, frames with a taxi's sign and frames with drawn
    signs.
    """
    if "samples" in context.has:
        for entry in TEXT_PICTURES:
            yield picture(context.file(entry.carrier, entry.file)), entry.lines
        return
    for entry in TEXT_FRAMES:
        yield next(frames(context.file(entry.carrier, entry.file), [entry.frame or 0]))[1], entry.lines
    yield from _drawn(context, len(DRAWN_SIGNS))


def _drawn(context: RecipeContext, count: int) -> Iterator[tuple[Picture, tuple[Line, ...]]]:
    """Real street frames with a drawn sign each; between the cuts of the clip, where no real text is readable."""
    if "clips" not in context.has:
        return
    for index, (_, frame) in enumerate(frames(context.file("clips", "bikes.mp4"), spread(count, 100, start=142))):
        text = DRAWN_SIGNS[index % len(DRAWN_SIGNS)]
        place = (40 + 23 * (index % 9), 24 + 11 * (index % 7))
        image, corners = with_sign(frame, text, place, height=16 + 4 * (index % 4), white_on_blue=index % 2 == 0)
        first, second, third, fourth = corners
        yield image, (Line(text, (first, second, third, fourth)),)


def _drawn_only(context: RecipeContext, count: int) -> list[Picture]:
    return [image for image, _ in _drawn(context, count)]
