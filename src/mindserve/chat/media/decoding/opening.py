"""Opens a video or audio file with FFmpeg's libraries so that they read its bytes and nothing else.

The format is forced: a library that may guess takes a playlist for one and opens what it names, local files and
sockets, even when the bytes come from memory. No protocol is allowed, so no reference inside a file is followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

import av
import av.container
import av.stream

from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve.chat.media.decoding.sniff import KINDS, Container

_FORMATS: Final = {
    Container.MP4: "mp4",
    Container.AVI: "avi",
    Container.WMV: "asf",
    Container.MP3: "mp3",
    Container.WAV: "wav",
    Container.FLAC: "flac",
}
_MAX_STREAMS: Final = 32

av.logging.set_level(None)


@contextmanager
def opened(file: BinaryIO, container: Container, **options: str) -> Iterator[av.container.InputContainer]:
    """``file`` from its start. What the libraries raise inside becomes ``MediaRejected``, their lack of memory too:
    a file can ask for any amount."""
    file.seek(0)
    bounds = {"protocol_whitelist": "", "threads": "1", "max_streams": str(_MAX_STREAMS)}
    try:
        with av.open(
            file, mode="r", format=_FORMATS[container], metadata_errors="replace", options={**bounds, **options}
        ) as input_container:
            yield input_container
    except MediaRejected:
        raise
    except MemoryError as error:
        raise MediaRejected(f"the {KINDS[container]} takes more memory to decode than is allowed") from error
    except (av.FFmpegError, ArithmeticError, ValueError) as error:
        raise MediaRejected(f"the bytes are no valid {container.value} {KINDS[container]}") from error


def ignore_others(container: av.container.InputContainer, stream: Any) -> None:
    """Packets of other streams are skipped where they are found."""
    for other in container.streams:
        if other.index != stream.index:
            other.discard = av.stream.Discard.all
