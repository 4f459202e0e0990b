"""Samples equal the signal that was written; lengths are those of the samples that come."""

from __future__ import annotations

import io
import struct

import numpy as np
import numpy.typing as npt
import pytest

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve.chat.media.decoding.worker import decode
from mindserve_engine.types import MediaKind
from tests.mindserve.chat.media.decoding.makers import MODEL, audio_file, riff_wav, tone, wav_file

LIMITS = DecodeLimits()


def decoded(data: bytes, limits: DecodeLimits = LIMITS) -> npt.NDArray[np.float32]:
    array, seconds_per_frame = decode(MediaKind.AUDIO, io.BytesIO(data), MODEL, limits)
    assert (array.dtype, seconds_per_frame, array.ndim) == (np.float32, 0.0, 1)
    return array  # type: ignore[return-value]  # the dtype was just looked at


@pytest.mark.parametrize("kind", ["wav", "flac"])
@pytest.mark.parametrize("channels", [1, 2])
def test_at_the_rate_of_the_model_samples_are_what_was_written(kind: str, channels: int) -> None:
    signal = tone(1.0, channels=channels)
    written = (signal * 32767).round() / 32768
    data = wav_file(signal) if kind == "wav" else audio_file(signal, kind)
    np.testing.assert_allclose(decoded(data), written.mean(axis=1), atol=1e-6)


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000, 192_000])
@pytest.mark.parametrize("channels", [1, 2, 6])
def test_other_rates_are_resampled_and_channels_averaged(rate: int, channels: int) -> None:
    samples = decoded(wav_file(tone(1.0, rate, channels), rate))
    expected = tone(1.0, 16_000, channels).mean(axis=1)
    assert abs(len(samples) - 16_000) <= 1
    np.testing.assert_allclose(samples[500:15_500], expected[500:15_500], atol=2e-3)


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_an_mp3_sounds_as_what_was_written(rate: int) -> None:
    samples = decoded(audio_file(tone(1.0, rate), "mp3", rate))
    assert abs(len(samples) - 16_000) <= 1
    softer = 0.95 * tone(1.0)[:, 0]  # as the encoder makes it
    np.testing.assert_allclose(samples[2000:14_000], softer[2000:14_000], atol=2e-3)


@pytest.mark.parametrize(
    ("coding", "bits", "body"),
    [
        (1, 8, np.full(4800, 160, np.uint8).tobytes()),
        (1, 24, b"\0\0\x20" * 4800),
        (1, 32, struct.pack("<i", 2**29) * 4800),
        (3, 32, struct.pack("<f", 0.25) * 4800),
        (3, 64, struct.pack("<d", 0.25) * 4800),
    ],
)
def test_every_coding_of_a_wav_is_read(coding: int, bits: int, body: bytes) -> None:
    samples = decoded(riff_wav(body, rate=16_000, channels=1, coding=coding, bits=bits))
    assert samples.tolist() == [0.25] * 4800


@pytest.mark.parametrize("coding", [6, 7])
def test_telephone_codings_are_read(coding: int) -> None:
    assert len(decoded(riff_wav(bytes(range(256)) * 10, rate=8_000, channels=1, coding=coding, bits=8))) == 5120


def test_what_is_louder_than_full_is_cut() -> None:
    body = struct.pack("<2f", 3.0, -3.0) * 400
    assert set(decoded(riff_wav(body, rate=16_000, channels=1, coding=3, bits=32)).tolist()) == {1.0, -1.0}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused(value: float) -> None:
    samples = np.zeros(1600, "<f4")
    samples[800] = value
    with pytest.raises(MediaRejected, match="samples that are no finite numbers"):
        decoded(riff_wav(samples.tobytes(), rate=16_000, channels=1, coding=3, bits=32))


@pytest.mark.parametrize("kind", ["wav", "flac"])
@pytest.mark.parametrize("rate", [16_000, 44_100, 48_000])
def test_thirty_seconds_pass_and_one_sample_more_does_not(kind: str, rate: int) -> None:
    signal = np.zeros((30 * rate + 1, 1))
    make = (lambda s: wav_file(s, rate)) if kind == "wav" else (lambda s: audio_file(s, kind, rate))
    assert abs(len(decoded(make(signal[:-1]))) - 480_000) <= 1
    with pytest.raises(MediaRejected, match="longer than 30 s, the limit"):
        decoded(make(signal))


def test_an_mp3_of_thirty_seconds_passes() -> None:
    assert len(decoded(audio_file(np.zeros((480_000, 1)), "mp3"))) == 480_000
    with pytest.raises(MediaRejected, match="longer than 30 s"):
        decoded(audio_file(np.zeros((481_000, 1)), "mp3"))


def test_the_limit_of_the_operator_holds_when_it_is_less() -> None:
    with pytest.raises(MediaRejected, match=r"longer than 0\.5 s"):
        decoded(wav_file(tone(0.51)), DecodeLimits(max_audio_s=0.5))


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3"])
@pytest.mark.parametrize(("seconds", "limit_s"), [(31.0, 30.0), (30.0, 30.0), (2.0, 0.5)])
def test_what_is_too_long_is_cut_if_the_operator_wants_it(kind: str, seconds: float, limit_s: float) -> None:
    whole = tone(seconds)
    data = wav_file(whole) if kind == "wav" else audio_file(whole, kind)
    samples = decoded(data, DecodeLimits(max_audio_s=limit_s, truncate_audio=True))
    assert len(samples) == limit_s * 16_000
    softer = whole[: len(samples), 0] * (0.95 if kind == "mp3" else 1.0)
    np.testing.assert_allclose(samples[2000:-2000], softer[2000:-2000], atol=2e-3)


def test_no_more_is_decoded_than_is_kept() -> None:
    """Of what lies behind the end, nothing is looked at: not even whether it is a number."""
    samples = np.zeros(16_000 * 60, "<f4")
    samples[-1] = np.nan
    endless = riff_wav(samples.tobytes(), rate=16_000, channels=1, coding=3, bits=32)
    assert len(decoded(endless, DecodeLimits(truncate_audio=True))) == 480_000


def test_the_least_length() -> None:
    assert len(decoded(wav_file(tone(0.03)))) == 480
    with pytest.raises(MediaRejected, match="the audio is 29 ms long, the least is 30 ms"):
        decoded(wav_file(tone(0.029)))


def test_the_length_that_a_wav_tells_is_not_believed() -> None:
    body = wav_file(tone(0.5))[44:]
    lying = riff_wav(body, rate=16_000, channels=1, coding=1, bits=16, data_length=2**32 - 1)
    assert len(decoded(lying)) == 8000


def test_a_flac_that_does_not_tell_its_length_is_read() -> None:
    assert len(decoded(with_num_samples(audio_file(tone(0.5), "flac"), 0))) == 8000


def test_a_flac_that_tells_too_great_a_length_is_refused() -> None:
    with pytest.raises(MediaRejected, match="longer than 30 s"):
        decoded(with_num_samples(audio_file(tone(0.5), "flac"), 2**36 - 1))


def with_num_samples(flac: bytes, num_samples: int) -> bytes:
    """STREAMINFO holds the number in the low 36 bits of the 8 bytes at 18."""
    fields = int.from_bytes(flac[18:26], "big") >> 36 << 36 | num_samples
    return flac[:18] + fields.to_bytes(8, "big") + flac[26:]
