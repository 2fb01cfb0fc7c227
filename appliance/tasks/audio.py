"""Sound in, where somebody speaks out; a stream may come in pieces of any length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from appliance.domain.catalogue import TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadMetadata
from appliance.tasks.base import Answer, Arrays, Decoded, Media, Score, Target, fed_inputs, number, with_constants
from appliance.tasks.datatypes import cast
from appliance.tasks.metrics import agreement, truth_list
from appliance.tasks.resampling import resample
from appliance.tasks.wav import read_wav

SPEECH_MIN = 0.5
_HYSTERESIS = 0.15
"""Speech that has begun goes on until the probability is this far below `SPEECH_MIN`."""
_SILENCE_MIN_S = 0.1
_SPEECH_MIN_S = 0.1


@dataclass(frozen=True, slots=True)
class Stream:
    """Where a piece lies in its stream, and what is left over for the next one."""

    chunk_s: float
    chunks_before: int
    speaking: bool
    samples: np.ndarray
    context: np.ndarray


class VoiceActivity:
    """Silero VAD and its like: chunks of 512 samples at 16 kHz, each behind the last 64 of the one before.

    A piece's end that fills no chunk is carried to the next piece of the sequence; alone, it is not looked at.
    Params: `sample_rate_hz` 16000, `chunk_samples`, `context_samples` (`_chunk_of`), `speech_min` 0.5, `seconds_max`
    120.
    """

    kind = TaskKind.VOICE_ACTIVITY

    def check(self, spec: TaskSpec, target: Target) -> None:
        """As `tasks.base.ChecksModel`."""
        _chunk_of(spec, _fed_input(spec, target))
        states = {pair.output for pair in spec.state}
        if all(tensor.name in states for tensor in target.outputs):
            raise _no_probability()

    def decode(self, media: Media, spec: TaskSpec, target: Target, carry: Arrays) -> Decoded:
        rate_hz = int(number(spec, "sample_rate_hz", 16_000))
        feed = _fed_input(spec, target)
        chunk, before = _chunk_of(spec, feed)
        heard, heard_hz = read_wav(media.body, number(spec, "seconds_max", 120))
        samples = np.concatenate([carry.get("samples", np.zeros(0, np.float32)), resample(heard, heard_hz, rate_hz)])
        padded = np.concatenate([carry.get("context", np.zeros(before, np.float32)), samples])
        count = len(samples) // chunk
        constants = with_constants({}, spec, target)
        steps = [
            {feed.name: cast(padded[np.newaxis, at : at + before + chunk], feed.datatype), **constants}
            for at in range(0, count * chunk, chunk)
        ]
        known = carry.get("stream", np.zeros(2, np.int64))
        stream = Stream(
            chunk / rate_hz,
            int(known[0]),
            bool(known[1]),
            samples[count * chunk :].copy(),
            padded[count * chunk : count * chunk + before].copy(),
        )
        return Decoded(steps, stream)

    def encode(self, outputs: list[dict[str, np.ndarray]], decoded: Decoded, spec: TaskSpec) -> Answer:
        stream: Stream = decoded.context
        probabilities = [_probability(step, spec) for step in outputs]
        speech_min = number(spec, "speech_min", SPEECH_MIN)
        segments, speaking = speech_segments(probabilities, stream.chunk_s, stream.speaking, speech_min)
        start_s = stream.chunks_before * stream.chunk_s
        speech = sum(end - start for start, end in segments)
        duration_s = len(probabilities) * stream.chunk_s
        body = {
            "probabilities": [round(probability, 4) for probability in probabilities],
            "start_s": round(start_s, 3),
            "step_ms": round(stream.chunk_s * 1000, 3),
            "segments": [
                {"start_s": round(start_s + start, 3), "end_s": round(start_s + end, 3)} for start, end in segments
            ],
            "speech_share": round(speech / duration_s, 4) if duration_s else 0.0,
        }
        position = np.array([stream.chunks_before + len(probabilities), speaking], np.int64)
        return Answer(body, {"samples": stream.samples, "context": stream.context, "stream": position})

    def similarity(self, answer: Mapping[str, Any], reference: Mapping[str, Any]) -> Score:
        return agreement(_is_speech(answer["probabilities"]), _is_speech(reference["probabilities"]))

    def accuracy(self, answer: Mapping[str, Any], truth: Mapping[str, Any]) -> Score:
        step_s = answer["step_ms"] / 1000
        segments = [(part["start_s"], part.get("end_s", np.inf)) for part in truth_list(truth, "segments", "start_s")]
        middles = answer.get("start_s", 0.0) + (np.arange(len(answer["probabilities"])) + 0.5) * step_s
        return agreement(
            _is_speech(answer["probabilities"]), [any(start <= at < end for start, end in segments) for at in middles]
        )


def _fed_input(spec: TaskSpec, target: Target) -> TensorSpec:
    fitting = [tensor for tensor in fed_inputs(spec, target) if len(tensor.shape) == 2]
    if not fitting:
        raise BadMetadata(
            reason="the model has no input [1, samples] for sound; change its shape, or upload it with the task tensor"
        )
    return fitting[0]


def _chunk_of(spec: TaskSpec, feed: TensorSpec) -> tuple[int, int]:
    """(samples of a chunk, samples of the one before that go in front): as stated, else as the network's window has
    it, else 512 at 16 kHz or 256, behind an eighth of it. Raises: BadMetadata where they do not fill the window.
    """
    window = feed.shape[1]
    usual = 512 if number(spec, "sample_rate_hz", 16_000) >= 16_000 else 256
    stated = {name: int(number(spec, name, 0)) for name in ("chunk_samples", "context_samples") if name in spec.params}
    chunk, before = stated.get("chunk_samples"), stated.get("context_samples")
    if chunk is None and before is None:
        chunk, before = (usual, usual // 8) if window in (-1, usual + usual // 8) else (window, 0)
    elif chunk is None:
        chunk = usual if window == -1 else window - (before or 0)
    elif before is None:
        before = chunk // 8 if window == -1 else window - chunk
    assert before is not None
    if chunk < 1 or before < 0 or (window != -1 and chunk + before != window):
        raise BadMetadata(
            reason=f"params.chunk_samples ({chunk}, at least 1) and params.context_samples ({before}, at least 0) must "
            f"together be {'what the network takes' if window == -1 else window}, the window of input {feed.name!r}; "
            "state others, or neither"
        )
    return chunk, before


def _probability(outputs: Mapping[str, np.ndarray], spec: TaskSpec) -> float:
    """The one number among the outputs that are no state."""
    states = {pair.output for pair in spec.state}
    for name, array in outputs.items():
        if name not in states and array.size >= 1:
            return float(np.nan_to_num(array.ravel()[-1]))
    raise _no_probability()


def _no_probability() -> BadMetadata:
    return BadMetadata(reason="the model has no output that could be the probability of speech")


def _is_speech(probabilities: Sequence[float]) -> list[bool]:
    return [probability >= SPEECH_MIN for probability in probabilities]


def speech_segments(
    probabilities: Sequence[float], chunk_s: float, speaking: bool = False, speech_min: float = SPEECH_MIN
) -> tuple[list[tuple[float, float]], bool]:
    """((start, end) in seconds of this piece, whether somebody still speaks at its end).

    Begins at `speech_min`, ends below it by a margin; gaps under 0.1 s are bridged and bursts under 0.1 s dropped,
    unless they touch an end of the piece, where the rest of them may lie in its neighbour.
    """
    runs: list[list[int]] = []
    for at, probability in enumerate(probabilities):
        bound = speech_min - _HYSTERESIS if speaking else speech_min
        speaking = probability >= bound
        if not speaking:
            continue
        if runs and (at - runs[-1][1]) * chunk_s < _SILENCE_MIN_S:
            runs[-1][1] = at + 1
        else:
            runs.append([at, at + 1])
    last = len(probabilities)
    kept = [
        (start, end) for start, end in runs if (end - start) * chunk_s >= _SPEECH_MIN_S or start == 0 or end == last
    ]
    return [(start * chunk_s, end * chunk_s) for start, end in kept], speaking
