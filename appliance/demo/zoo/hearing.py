"""Recipes of the networks for sound and sentences: voice activity, pitch, notes, meaning."""

import shutil

import numpy as np
import numpy.typing as npt

from appliance.demo.zoo.annotations import SENTENCES
from appliance.demo.zoo.inputs import (
    pieces,
    rttm_segments,
    samples_of,
    write_arrays,
    write_sounds,
    write_texts,
    write_truth,
)
from appliance.demo.zoo.recipes import RecipeContext

RATE_HZ = 16_000
PIECE_SAMPLES = 8_192
"""What a microphone sends at once: 16 chunks of 32 ms."""
READING = "sense_and_sensibility_01_austen_64kb-0{}.wav"
DIALOGUE_BEGINS_S = 7


def silero(context: RecipeContext) -> None:
    """Silero voice activity, current."""
    _voice_activity(context, "silero")


def silero_small(context: RecipeContext) -> None:
    """Silero voice activity from an earlier, smaller package."""
    _voice_activity(context, "silero5")


def _voice_activity(context: RecipeContext, key: str) -> None:
    shutil.copyfile(context.file(key, "silero_vad.onnx"), context.model)
    state = [{"input": "state", "output": "stateN", "shape": [2, 1, 128], "datatype": "FP32"}]
    params = {"sample_rate_hz": RATE_HZ, "chunk_samples": 512, "context_samples": 64}
    context.metadata("voice-activity", params=params, state=state, constants={"sr": RATE_HZ})
    samples, rate_hz = samples_of(context.file("dialogue", "sample.wav"))
    segments = rttm_segments(context.file("dialogue", "sample.rttm").read_text())
    begin = int(LABELLED_FROM_S * rate_hz)
    shifted = [{name: round(value - LABELLED_FROM_S, 3) for name, value in part.items()} for part in segments]
    files = write_sounds(context.evaluation, [samples[begin:]], rate_hz)
    write_truth(context.evaluation, files, [{"segments": shifted}])
    write_sounds(context.inputs, pieces(samples, PIECE_SAMPLES), rate_hz)
    write_sounds(context.calibration, pieces(samples, 3 * rate_hz), rate_hz)


LABELLED_FROM_S = 6.5
"""The dialogue is labelled from its first turn at 6.69 s on."""


def pitch(context: RecipeContext) -> None:
    """SwiftF0: the pitch of a voice every 16 ms, as plain tensors."""
    shutil.copyfile(context.file("swift", "model.onnx"), context.model)
    context.metadata("tensor", constants={"fmin": 60, "fmax": 500})
    rows = [{"audio": piece[np.newaxis]} for piece in _voice(context, seconds=1)]
    write_arrays(context.inputs, rows)
    write_arrays(context.calibration, rows[:16])


def notes(context: RecipeContext) -> None:
    """Basic Pitch: a piano roll of two seconds of sound."""
    shutil.copyfile(context.file("pitch", "nmp.onnx"), context.model)
    context.metadata("tensor")
    rows = [{"serving_default_input_2:0": _at_22050(piece)} for piece in _voice(context, seconds=2)]
    write_arrays(context.inputs, rows)
    write_arrays(context.calibration, rows[:8])


def _voice(context: RecipeContext, seconds: int) -> list[npt.NDArray[np.float32]]:
    """Speech in -1..1 at 16 kHz, in pieces."""
    if "speech" in context.has:
        readings = [context.file("speech", READING.format(number)) for number in (870, 880, 890, 920, 930)]
        samples = np.concatenate([samples_of(path)[0] for path in readings])
    else:
        samples = samples_of(context.file("dialogue", "sample.wav"))[0][DIALOGUE_BEGINS_S * RATE_HZ :]
    return [piece.astype(np.float32) / np.float32(32768) for piece in pieces(samples, seconds * RATE_HZ)]


def _at_22050(piece: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """16 to 22.05 kHz by straight lines (speech has little near the edge), FP32[1, 43844, 1]."""
    wanted = np.arange(43_844) * (RATE_HZ / 22_050)
    heard: npt.NDArray[np.float32] = np.interp(wanted, np.arange(len(piece)), piece).astype(np.float32)
    return heard.reshape(1, -1, 1)


def minilm(context: RecipeContext) -> None:
    """all-MiniLM-L6-v2: sentences that mean the same lie near one another."""
    shutil.copyfile(context.file("minilm", "model.onnx"), context.model)
    shutil.copyfile(context.file("tokenizer", "tokenizer.json"), context.folder / "tokenizer.json")
    context.metadata("text-embedding", params={"pooling": "mean", "normalise": 1, "tokens_max": 128})
    sentences = [sentence for pair in SENTENCES for sentence in pair]
    files = write_texts(context.evaluation, sentences)
    write_truth(context.evaluation, files, [{"group": index // 2} for index in range(len(sentences))])
    write_texts(context.inputs, sentences)
    write_texts(context.calibration, sentences)
