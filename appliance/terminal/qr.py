"""QR codes for terminals."""

import numpy as np

_QUIET = 4
"""Modules around the code that cameras need."""
_BLOCKS = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}
"""(upper module is dark, lower one is) → a character: light modules are drawn, for terminals are dark."""


def qr_lines(text: str) -> list[str]:
    """A text as lines of half blocks, two rows of modules each, with the quiet zone."""
    dark = _modules(text)
    if len(dark) % 2:
        dark = np.vstack([dark, np.zeros((1, dark.shape[1]), bool)])
    pairs = zip(dark[::2], dark[1::2], strict=True)
    return ["".join(_BLOCKS[bool(a), bool(b)] for a, b in zip(upper, lower, strict=True)) for upper, lower in pairs]


def _modules(text: str) -> "np.ndarray":
    """Which modules are dark, the quiet zone included."""
    import cv2  # large, and seldom needed

    drawn = cv2.QRCodeEncoder.create().encode(text)  # with a border of its own
    inside = np.argwhere(drawn == 0)
    (top, left), (bottom, right) = inside.min(axis=0), inside.max(axis=0)
    return np.pad(drawn[top : bottom + 1, left : right + 1] == 0, _QUIET)
