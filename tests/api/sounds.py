"""Sounds as files."""

import wave
from pathlib import Path

import numpy as np


def tones(path: Path, *, rate: int, seconds: int) -> Path:
    """A tone for the first half of each second, as a WAV file with two channels."""
    times = np.arange(rate * seconds) / rate
    one = np.where(times % 1 < 0.5, 0.5 * np.sin(2 * np.pi * 440 * times), 0)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.repeat((one * 32767).astype("<i2"), 2).tobytes())
    return path
