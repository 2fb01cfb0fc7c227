"""Sound: every kind of WAV gives the same samples, rates change without aliases, and a stream in pieces equals the
whole.
"""

import io
import struct
import wave
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.catalogue import StateSpec, TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadMedia, BadMetadata
from appliance.tasks import TASKS
from appliance.tasks.audio import speech_segments
from appliance.tasks.base import Media, Target, run_steps
from appliance.tasks.resampling import resample
from appliance.tasks.wav import read_wav
from tests.harness.lanes import examples

TASK = TASKS[TaskKind.VOICE_ACTIVITY]
SPEC = TaskSpec(
    TaskKind.VOICE_ACTIVITY,
    state=(StateSpec("state", "stateN", (1, 1)),),
    constants={"sr": 16000.0},
    params={"sample_rate_hz": 16000.0},
)
TARGET = Target(
    (TensorSpec("input", "FP32", (-1, -1)), TensorSpec("state", "FP32", (1, 1)), TensorSpec("sr", "INT64", ())), ()
)


def tone(hertz: float, rate: int = 16_000, seconds: float = 0.5) -> np.ndarray:
    return np.asarray(0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate), np.float32)


def wav(samples: np.ndarray, rate: int = 16_000, bits: int = 16, channels: int = 1) -> bytes:
    """A file by the standard library; several channels repeat the one."""
    frames = np.repeat(samples[:, None], channels, axis=1).ravel()
    if bits == 8:
        data = ((frames * 127).round() + 128).astype(np.uint8).tobytes()
    else:
        whole = (frames.astype(np.float64) * (2 ** (bits - 1) - 1)).round().astype("<i4")
        data = whole.view(np.uint8).reshape(-1, 4)[:, : bits // 8].tobytes()
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(bits // 8)
        writer.setframerate(rate)
        writer.writeframes(data)
    return file.getvalue()


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"WAVE" + b"".join(
        kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) & 1) for kind, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def format_chunk(coding: int, bits: int, channels: int = 1, rate: int = 16_000, more: bytes = b"") -> bytes:
    frame = channels * bits // 8
    return struct.pack("<HHIIHH", coding, channels, rate, rate * frame, frame, bits) + more


@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize(("bits", "error"), [(8, 1 / 100), (16, 1e-4), (24, 1e-6), (32, 1e-6)])
def test_wav_of_every_width_and_channel_count_gives_the_same_samples(bits: int, error: float, channels: int) -> None:
    samples, rate = read_wav(wav(tone(440), 22_050, bits, channels))
    assert (rate, samples.dtype, samples.shape) == (22_050, np.dtype(np.float32), (8000,))
    np.testing.assert_allclose(samples, tone(440), atol=error)


def test_wav_channels_are_averaged() -> None:
    data = np.array([[1000, 3000], [-2000, 0]], "<i2").tobytes()
    samples, _ = read_wav(riff((b"fmt ", format_chunk(1, 16, 2)), (b"data", data)))
    np.testing.assert_allclose(samples * 32768, [2000, -1000])


def test_wav_forms_beyond_the_standard_library_are_read() -> None:
    """Extensible headers, floats, odd chunks in between, lengths left open by a pipe."""
    wanted = tone(300)
    extensible = format_chunk(0xFFFE, 24, more=struct.pack("<HHIH", 22, 24, 4, 1) + bytes(14))
    pcm = (wanted * (2**23 - 1)).round().astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    for body in (
        riff((b"LIST", b"odd"), (b"fmt ", extensible), (b"data", pcm)),
        riff((b"fmt ", format_chunk(3, 32)), (b"fact", bytes(4)), (b"data", wanted.astype("<f4").tobytes())),
        riff((b"fmt ", format_chunk(3, 64)), (b"data", wanted.astype("<f8").tobytes()), (b"LIST", b"tail")),
    ):
        np.testing.assert_allclose(read_wav(body)[0], wanted, atol=1e-6)
    piped = bytearray(wav(wanted))
    piped[4:8] = piped[40:44] = b"\xff\xff\xff\xff"
    assert len(read_wav(bytes(piped))[0]) == len(wanted)


@pytest.mark.parametrize("file_length", [0, 36], ids=["none", "of the header"])
def test_wav_without_recorded_length_is_read_to_the_end(file_length: int) -> None:
    """An empty chunk that others follow stays empty."""
    wanted = tone(300)
    stopped = bytearray(wav(wanted))
    stopped[4:8], stopped[40:44] = struct.pack("<I", file_length), bytes(4)
    np.testing.assert_array_equal(read_wav(bytes(stopped))[0], read_wav(wav(wanted))[0])
    empty = riff((b"fmt ", format_chunk(1, 16)), (b"data", b""), (b"LIST", b"tail"))
    assert read_wav(empty)[0].size == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_wav_with_nan_or_infinite_samples_is_refused(value: float) -> None:
    samples = np.array([0.0, value], "<f4").tobytes()
    with pytest.raises(BadMedia, match="no numbers"):
        read_wav(riff((b"fmt ", format_chunk(3, 32)), (b"data", samples)))


@pytest.mark.parametrize("percent", range(0, 100, 10))
def test_truncated_wav_is_refused(percent: int) -> None:
    """Cut at every tenth."""
    body = wav(tone(440))
    with pytest.raises(BadMedia):
        read_wav(body[: len(body) * percent // 100])


@pytest.mark.parametrize(
    "chunk",
    [
        format_chunk(2, 4),
        format_chunk(1, 12),
        format_chunk(3, 16),
        format_chunk(1, 16, 0),
        format_chunk(1, 16, rate=7),
        b"short",
    ],
)
def test_wav_of_unsupported_format_is_refused(chunk: bytes) -> None:
    """ADPCM, odd widths, no channels, absurd rates."""
    with pytest.raises(BadMedia):
        read_wav(riff((b"fmt ", chunk), (b"data", bytes(100))))
    with pytest.raises(BadMedia, match="before its format"):
        read_wav(riff((b"data", bytes(100)), (b"fmt ", chunk)))


@pytest.mark.parametrize(
    ("begin", "name"),
    [
        (b"ID3\x03\0\0", "an MP3 file"),
        (b"\xff\xfb\x90\x64", "an MP3 file"),
        (b"OggS\0\x02", "an Ogg file"),
        (b"fLaC\0\0", "a FLAC file"),
        (b"\0\0\0\x20ftypM4A ", "an M4A or MP4 file"),
        (b"\xff\xf1\x50\x80", "an AAC file"),
        (b"FORM\0\0\x10\0AIFF", "an AIFF file"),
    ],
)
def test_sound_of_another_format_is_refused_by_name(begin: bytes, name: str) -> None:
    with pytest.raises(BadMedia, match=f"this is {name}, which the box does not read: send a WAV file"):
        read_wav(begin + bytes(200))


def test_wav_with_millions_of_chunks_is_refused() -> None:
    """Before any sound."""
    with pytest.raises(BadMedia, match="chunks"):
        read_wav(b"RIFF" + bytes(4) + b"WAVE" + bytes(8) * 1_000_000)


@given(st.binary(max_size=120))
def test_random_bytes_as_wav_give_samples_or_bad_media(tail: bytes) -> None:
    for body in (tail, b"RIFF\0\0\0\0WAVE" + tail, riff((b"fmt ", format_chunk(1, 16))) + tail):
        try:
            samples, _ = read_wav(body)
        except BadMedia:
            continue
        assert samples.ndim == 1


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 32_000, 44_100, 48_000, 96_000])
def test_resampled_tone_keeps_frequency_and_amplitude(rate: int) -> None:
    """1 kHz sampled at any rate is 1 kHz at 16 kHz, in place and in strength."""
    found = resample(tone(1000, rate), rate, 16_000)
    wanted = tone(1000)
    assert abs(len(found) - len(wanted)) <= 1
    middle = slice(400, 7600)
    np.testing.assert_allclose(found[middle], wanted[middle], atol=5e-3)


def test_resampling_removes_frequencies_above_nyquist() -> None:
    """10 kHz cannot be told at 16 kHz: the tone must vanish instead of sounding as 6 kHz."""
    assert np.abs(resample(tone(10_000, 48_000), 48_000, 16_000)[200:-200]).max() < 5e-3


@given(st.integers(4000, 192_000), st.integers(0, 3000))
@examples(gate=40)
def test_resampled_length_follows_the_rates(rate: int, count: int) -> None:
    """Any rate and length: the duration stays, a constant stays itself."""
    found = resample(np.full(count, 0.25, np.float32), rate, 16_000)
    assert abs(len(found) - count * 16_000 / rate) <= 2
    np.testing.assert_allclose(found, 0.25, atol=1e-4)


def loudness(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A detector with a memory: how loud it is lately; it also sees the context."""
    assert inputs["input"].shape == (1, 576)
    assert inputs["sr"] == 16_000
    now = np.abs(inputs["input"]).mean(keepdims=True) * 3
    state = 0.5 * inputs["state"] + 0.5 * now
    return {"output": state, "stateN": state}


def test_audio_stream_in_pieces_has_the_probabilities_of_the_whole() -> None:
    """However the sound is cut: samples, context and state are carried."""
    quiet = np.zeros(9000, np.float32)
    sound = np.concatenate([quiet, tone(300, seconds=1.0), quiet, tone(500, seconds=0.7), quiet])
    decoded = TASK.decode(Media(wav(sound)), SPEC, TARGET, {})
    whole = TASK.encode(run_steps(decoded, SPEC, loudness)[0], decoded, SPEC).body
    assert len(whole["probabilities"]) == len(sound) // 512
    for sizes in ([100] * 700, [511, 513, 7, 4096] * 20, [50_000, 1, 20_000]):
        carry: Any = {}
        state: dict[str, np.ndarray] = {}
        probabilities: list[float] = []
        starts, at = [], 0
        for size in sizes:
            piece = sound[at : at + size]
            at += size
            decoded = TASK.decode(Media(wav(piece)), SPEC, TARGET, carry)
            outputs, state = run_steps(decoded, SPEC, loudness, state)
            answer = TASK.encode(outputs, decoded, SPEC)
            carry = answer.carry
            starts.append((answer.body["start_s"], len(probabilities)))
            probabilities += answer.body["probabilities"]
        assert probabilities == whole["probabilities"][: len(probabilities)]
        assert len(probabilities) == min(at, len(sound)) // 512
        assert all(start == pytest.approx(before * 0.032, abs=1e-3) for start, before in starts)


def test_speech_segments_and_share_are_those_of_the_loud_part() -> None:
    """In seconds of the stream."""
    sound = np.concatenate([np.zeros(16_000), tone(300, seconds=1.0), np.zeros(16_000)]).astype(np.float32)
    decoded = TASK.decode(Media(wav(sound, 16_000, 24, 2)), SPEC, TARGET, {})
    body = TASK.encode(run_steps(decoded, SPEC, loudness)[0], decoded, SPEC).body
    assert body["step_ms"] == 32
    ((start, end),) = [(part["start_s"], part["end_s"]) for part in body["segments"]]
    assert start == pytest.approx(1.0, abs=0.1)
    assert end == pytest.approx(2.0, abs=0.1)
    assert body["speech_share"] == pytest.approx((end - start) / (93 * 0.032), abs=0.01)
    assert TASK.accuracy(body, {"segments": [{"start_s": 1.0, "end_s": 2.0}]}).value > 0.9
    assert TASK.accuracy(body, {"segments": []}).value == pytest.approx(2 / 3, abs=0.05)
    assert TASK.similarity(body, body).value == 1.0


def test_audio_too_short_has_no_answer_and_too_long_is_refused() -> None:
    """Less than a chunk has no answer yet; more than the bound is asked for in pieces."""
    decoded = TASK.decode(Media(wav(np.zeros(100, np.float32))), SPEC, TARGET, {})
    assert decoded.steps == []
    assert TASK.encode([], decoded, SPEC).body["speech_share"] == 0.0
    with pytest.raises(BadMedia, match="longer than 120 s"):
        TASK.decode(Media(wav(np.zeros(121 * 1000, np.float32), 1000)), SPEC, TARGET, {})
    with pytest.raises(BadMetadata, match="sound"):
        TASK.decode(Media(wav(tone(1))), SPEC, Target((TensorSpec("x", "FP32", (1, 3, 8, 8)),), ()), {})


def test_speech_hysteresis_bridges_dips_and_drops_clicks() -> None:
    """An open end is kept for the next piece."""
    chunk_s = 0.032
    speech, dip, silence = [0.9] * 10, [0.4] * 5, [0.1] * 10
    assert speech_segments(speech + dip + speech + silence, chunk_s) == ([(0.0, 25 * chunk_s)], False)
    assert speech_segments([*silence, 0.9, *silence], chunk_s) == ([], False)
    assert speech_segments([*silence, 0.9], chunk_s) == ([(10 * chunk_s, 11 * chunk_s)], True)
    assert speech_segments(dip + silence, chunk_s, speaking=True) == ([(0.0, 5 * chunk_s)], False)
    assert speech_segments(speech + [0.1] * 2 + speech, chunk_s)[0] == [(0.0, 22 * chunk_s)]
    assert len(speech_segments(speech + [0.1] * 5 + speech, chunk_s)[0]) == 2


def of_window(*params: tuple[str, float], window: int = 512) -> tuple[TaskSpec, Target]:
    """A network without state that takes so many samples at once, and what is stated of it."""
    spec = TaskSpec(TaskKind.VOICE_ACTIVITY, params={"sample_rate_hz": 16000.0, **dict(params)})
    outputs = (TensorSpec("y", "FP32", (-1, 1)),)
    return spec, Target((TensorSpec("x", "FP32", (-1, window)),), outputs)


@pytest.mark.parametrize(
    ("params", "window", "chunk"),
    [
        ((), 512, 512),
        ((), 576, 512),
        ((), 1000, 1000),
        ((("context_samples", 100.0),), 512, 412),
        ((("chunk_samples", 448.0),), 512, 448),
    ],
)
def test_voice_activity_of_fixed_window_feeds_windows_of_that_size(
    params: tuple[tuple[str, float], ...], window: int, chunk: int
) -> None:
    """Whatever the size: chunk and context are chosen to fill it, and what is stated of them is kept."""
    spec, target = of_window(*params, window=window)
    decoded = TASK.decode(Media(wav(tone(440))), spec, target, {})
    assert {step["x"].shape for step in decoded.steps} == {(1, window)}
    assert len(decoded.steps) == 8000 // chunk
