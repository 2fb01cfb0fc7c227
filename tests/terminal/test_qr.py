"""A camera reads what is drawn."""

import cv2
import numpy as np
import pytest

from appliance.terminal.qr import qr_lines

_BITS = {"█": (255, 255), "▀": (255, 0), "▄": (0, 255), " ": (0, 0)}


@pytest.mark.parametrize(
    "text", ["https://192.168.1.7:8443/#sign-in=" + "Zk3v9cXo1nYwR5tLq8sGmJ2dHb7aPfUe4iKxN0yVrTQ", "short"]
)
def test_qr_code_on_a_terminal_is_read_as_its_text(text: str) -> None:
    rows = [half for line in qr_lines(text) for half in zip(*(_BITS[one] for one in line), strict=True)]
    picture = np.kron(np.array(rows, np.uint8), np.ones((6, 6), np.uint8)).astype(np.uint8)
    read, *_ = cv2.QRCodeDetector().detectAndDecode(picture)
    assert read == text
