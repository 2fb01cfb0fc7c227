"""What a person says is to be seen and heard in the zoo's inputs: truths read off the pictures by eye, in pixels of the
original.

Pictures are named by carrier key and file. Nothing here was taken from a network's answer without being looked at.
"""

from dataclasses import dataclass

Point = tuple[int, int]
Box = tuple[int, int, int, int]
"""x1, y1, x2, y2."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text and its four corners, clockwise from the top left."""

    text: str
    quad: tuple[Point, Point, Point, Point]


@dataclass(frozen=True, slots=True)
class TextPicture:
    """A picture all of whose lines of text are listed."""

    carrier: str
    file: str
    lines: tuple[Line, ...]
    frame: int | None = None
    """Number of the frame, where the file is a video."""


def _flat(text: str, left: int, top: int, right: int, bottom: int) -> Line:
    return Line(text, ((left, top), (right, top), (right, bottom), (left, bottom)))


TEXT_PICTURES = (
    TextPicture(
        "samples",
        "text/scenetext01.jpg",
        (
            _flat("NOTICE", 275, 35, 427, 76),
            _flat("DOUBLE", 276, 85, 424, 122),
            _flat("PARKING", 275, 128, 425, 164),
            _flat("PROHIBITED", 274, 172, 422, 206),
            _flat("AT ALL TIMES", 282, 213, 409, 251),
            _flat("The", 223, 504, 238, 518),
            Line("Washington", ((211, 516), (249, 523), (247, 536), (209, 530))),
            _flat("Post", 220, 534, 238, 549),
        ),
    ),
    TextPicture(
        "samples",
        "text/scenetext02.jpg",
        (
            Line("Sports Centre", ((435, 612), (788, 637), (783, 704), (431, 679))),
            Line("Wivenhoe Park", ((434, 684), (799, 718), (794, 774), (429, 741))),
            Line("Conference Centre", ((435, 753), (896, 790), (891, 851), (430, 813))),
            Line("Car Parks", ((435, 828), (685, 846), (681, 908), (431, 890))),
        ),
    ),
    TextPicture(
        "samples",
        "text/scenetext03.jpg",
        (
            _flat("the", 129, 574, 188, 610),
            Line("copy centre", ((199, 554), (619, 537), (622, 614), (202, 631))),
        ),
    ),
    TextPicture(
        "samples",
        "text/scenetext04.jpg",
        (
            _flat("GM 125", 423, 416, 553, 458),
            Line("Gimmco", ((676, 366), (734, 378), (732, 400), (674, 388))),
        ),
    ),
    TextPicture(
        "samples",
        "text/scenetext05.jpg",
        (
            Line("NO PARKING", ((92, 170), (227, 184), (223, 221), (88, 207))),
            Line("NO PARKING", ((476, 313), (691, 330), (686, 392), (471, 374))),
        ),
    ),
    TextPicture(
        "samples",
        "text/scenetext06.jpg",
        (
            _flat("priory", 294, 156, 332, 175),
            _flat("galleries", 289, 175, 337, 193),
            _flat("at", 308, 194, 318, 202),
            _flat("the ship", 295, 202, 330, 215),
            Line("priory galleries at the ship", ((241, 281), (591, 295), (590, 325), (240, 311))),
        ),
    ),
    TextPicture(
        "samples",
        "data/imageTextN.png",
        (
            _flat("technical details are too complex to cover in the book itself.", 30, 17, 350, 32),
            _flat(
                "In teaching our courses, we have found it useful for the students to attempt a number of",
                *(49, 36, 529, 52),
            ),
            _flat(
                "small implementation projects, which often build on one another, in order to get them used to",
                *(29, 54, 529, 71),
            ),
            _flat(
                "working with real-world images and the challenges that these present. The students are then",
                *(29, 72, 529, 89),
            ),
            _flat(
                "asked to choose an individual topic for each of their small-group, final projects. (Sometimes",
                *(30, 90, 529, 108),
            ),
            _flat(
                "these projects even turn into conference papers!) The exercises at the end of each chapter",
                *(30, 109, 529, 127),
            ),
            _flat(
                "contain numerous suggestions for smaller mid-term projects, as well as more open-ended",
                *(30, 128, 529, 145),
            ),
            _flat(
                "problems whose solutions are still active research topics. Wherever possible, I encourage",
                *(29, 146, 529, 164),
            ),
            _flat(
                "students to try their algorithms on their own personal photographs, since this better motivates",
                *(28, 165, 529, 182),
            ),
            _flat(
                "them, often leads to creative variants on the problems, and better acquaints them with the",
                *(29, 183, 529, 200),
            ),
            _flat("variety and complexity of real-world imagery.", 29, 201, 278, 219),
            _flat(
                "In formulating and solving computer vision problems, I have often found it useful to draw",
                *(49, 221, 529, 237),
            ),
            _flat("inspiration from three high-level approaches:", 30, 239, 272, 255),
        ),
    ),
)

TEXT_FRAMES = (
    TextPicture("clips", "bikes.mp4", (Line("TAXI", ((76, 117), (229, 117), (229, 148), (76, 148))),), 67),
    TextPicture("clips", "bikes.mp4", (Line("TAXI", ((146, 125), (321, 120), (322, 157), (147, 162))),), 70),
    TextPicture("clips", "bikes.mp4", (Line("TAXI", ((163, 124), (352, 120), (352, 160), (164, 165))),), 71),
)
"""A taxi's roof sign, the one readable word in the street scenes."""

FACES: dict[tuple[str, str, int], tuple[Box, ...]] = {
    ("clips", "carphone_pristine.mp4", 0): ((64, 38, 112, 102),),
    ("clips", "carphone_pristine.mp4", 32): ((55, 38, 104, 104),),
    ("clips", "carphone_pristine.mp4", 54): ((54, 32, 104, 102),),
    ("clips", "carphone_pristine.mp4", 86): ((34, 32, 89, 97),),
    ("clips", "carphone_pristine.mp4", 108): ((39, 32, 92, 100),),
    ("clips", "carphone_pristine.mp4", 119): ((42, 32, 97, 95),),
    ("photos", "astronaut.png", 0): ((180, 67, 266, 187),),
}
"""Faces from hairline to chin by (carrier, file, frame; 0 for a photo)."""

PHOTO_CLASSES: dict[tuple[str, str], str] = {
    ("samples", "data/squirrel_cls.jpg"): "fox squirrel, eastern fox squirrel, Sciurus niger",
    ("samples", "data/baboon.jpg"): "baboon",
    ("samples", "data/orange.jpg"): "orange",
    ("samples", "data/messi5.jpg"): "soccer ball",
    ("samples", "data/home.jpg"): "palace",
    ("samples", "alphamat/input_images/plant.jpg"): "pot, flowerpot",
    ("samples", "dnn_superres/butterfly.png"): "monarch, monarch butterfly, milkweed butterfly, Danaus plexippus",
    ("samples", "hfs/data/001.jpg"): "lakeside, lakeshore",
    ("photos", "chelsea.png"): "tabby, tabby cat",
    ("photos", "coffee.png"): "espresso",
}
"""The ImageNet class that a person would choose (whole label); pictures without a clear one are not here."""

SENTENCES: tuple[tuple[str, str], ...] = (
    ("The pump in the cellar has stopped working.", "The basement pump no longer runs."),
    ("Turn off the lights in the context, please.", "Please switch the context lamps off."),
    ("The temperature in the cold store is rising.", "It is getting warmer in the refrigerated warehouse."),
    ("A parcel was left in front of the door.", "Somebody put a package at the entrance."),
    ("The battery of the sensor is almost empty.", "The sensor will soon run out of power."),
    ("There is a strong smell of gas in the hall.", "The corridor reeks of gas."),
    ("How do I get to the railway station?", "What is the way to the train station?"),
    ("The meeting was moved to Thursday afternoon.", "They postponed the discussion until Thursday after lunch."),
    ("Rain is expected in the mountains tonight.", "The forecast says it will be wet in the hills this evening."),
    ("The lift is stuck between two floors.", "The elevator halted halfway between storeys."),
    ("A dog is barking in the neighbour's garden.", "Next door a hound makes a lot of noise outside."),
    ("The conveyor belt must be cleaned every week.", "Wash the conveyor once in seven days."),
)
"""Pairs that say the same in other words."""
