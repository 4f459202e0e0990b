"""A recording to samples as the model hears them. Runs in the processes that decode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

import av
import av.container
import numpy as np
import numpy.typing as npt
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.opening import ignore_others, opened
from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve.chat.media.decoding.sizes import num_audio_tokens
from mindserve.chat.media.decoding.sniff import Container
from mindserve_engine.types import MediaModel

_PCM: Final = ("alaw", "f32le", "f64le", "mulaw", "s16le", "s24le", "s32le", "u8")
CODECS: Final = {
    Container.WAV: frozenset(f"pcm_{coding}" for coding in _PCM),
    Container.FLAC: frozenset({"flac"}),
    Container.MP3: frozenset({"mp3", "mp3float"}),
}


def decode_audio(
    file: BinaryIO, container: Container, model: MediaModel, limits: DecodeLimits
) -> npt.NDArray[np.float32]:
    """(samples,) in -1..1 at ``model.sample_rate``: the mean of the channels. Raises ``MediaRejected``.

    The length is that of the samples that come, not what the file says of itself.
    """
    with opened(file, container, codec_whitelist=",".join(sorted(CODECS[container]))) as opened_container:
        stream = _audio_stream(opened_container, container, limits)
        if container is Container.FLAC and opened_container.duration is not None:
            _is_too_long(opened_container.duration / av.time_base, model, limits)
        parts = list(_resampled(opened_container, stream, model, limits))
    samples = np.concatenate([np.zeros(0, np.float32), *parts])
    if not np.isfinite(samples).all():
        raise MediaRejected("the audio has samples that are no finite numbers")
    if len(samples) < limits.min_audio_s * model.sample_rate or not num_audio_tokens(len(samples), model):
        duration_ms = 1000 * len(samples) / model.sample_rate
        raise MediaRejected(f"the audio is {duration_ms:.0f} ms long, the least is {1000 * limits.min_audio_s:g} ms")
    return samples.clip(-1.0, 1.0)[: min(model.max_samples, int(limits.max_audio_s * model.sample_rate))]


def _audio_stream(container: av.container.InputContainer, kind: Container, limits: DecodeLimits) -> AudioStream:
    stream = next(iter(container.streams.audio), None)
    if stream is None or stream.codec_context is None or stream.codec_context.name not in CODECS[kind]:
        raise MediaRejected(f"the {kind.value} file has no sound of a coding that is taken")
    ignore_others(container, stream)
    context = stream.codec_context
    context.thread_count = 1
    if not context.sample_rate or not context.layout.nb_channels:
        raise MediaRejected(f"the bytes are no valid {kind.value} audio")
    if not limits.min_sample_rate <= context.sample_rate <= limits.max_sample_rate:
        raise MediaRejected(
            f"the audio has {context.sample_rate} samples per second, "
            f"not {limits.min_sample_rate} to {limits.max_sample_rate}"
        )
    if context.layout.nb_channels > limits.max_channels:
        raise MediaRejected(f"the audio has {context.layout.nb_channels} channels, not 1 to {limits.max_channels}")
    return stream


def _resampled(
    container: av.container.InputContainer, stream: AudioStream, model: MediaModel, limits: DecodeLimits
) -> Iterator[npt.NDArray[np.float32]]:
    """The resampler keeps the channels: its own mean of two would be 3 dB too loud."""
    resampler: av.AudioResampler | None = None
    num_samples = 0
    is_too_long = False
    for frame in container.decode(stream):
        num_samples += frame.samples
        is_too_long = _is_too_long(num_samples / stream.codec_context.sample_rate, model, limits)
        if resampler is None:
            resampler = av.AudioResampler(format="fltp", layout=frame.layout, rate=model.sample_rate)
        yield from map(_mean, resampler.resample(frame))
        if is_too_long:
            break  # what follows would be cut
    if resampler is not None:
        yield from map(_mean, resampler.resample(None))


def _mean(frame: AudioFrame) -> npt.NDArray[np.float32]:
    mean: npt.NDArray[np.float32] = frame.to_ndarray().mean(axis=0, dtype=np.float32)
    return mean


def _is_too_long(duration_s: float, model: MediaModel, limits: DecodeLimits) -> bool:
    """Whether it must be cut. Raises ``MediaRejected`` where nothing is cut."""
    longest_s = min(limits.max_audio_s, model.max_samples / model.sample_rate)
    if duration_s > longest_s and not limits.truncate_audio:
        raise MediaRejected(f"the audio is longer than {longest_s:g} s, the limit")
    return duration_s > longest_s
