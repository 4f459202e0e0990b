"""The messages between the engine's client side and its process, as msgpack arrays. One message per step comes back."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any, Final

import msgspec
import msgspec.inspect

from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineInfo, EngineStats, GenerationRequest, SequenceEvent, Vocabulary

OTHER_VERSION_STATUS: Final = 76
"""With which a process ends that cannot understand its parent (EX_PROTOCOL of sysexits.h): older and newer versions
can tell each other so, whatever else has changed."""


class OtherVersion(Exception):
    """The other end speaks another protocol: its code was replaced while this process lived."""


class Setup(msgspec.Struct, frozen=True):
    """What a new process is told on its standard input."""

    protocol: str
    """``protocol()`` of the parent."""
    options: EngineOptions
    socket_directory: Path
    """Only this user can enter it. The process removes it once it is connected to both sockets."""
    parent_pid: int
    heartbeat_s: float
    """A process that loads or idles says that it is alive this often."""

    @property
    def requests_address(self) -> str:
        """ZeroMQ endpoint the process receives ``ToCore`` from."""
        return f"ipc://{self.socket_directory}/requests"

    @property
    def results_address(self) -> str:
        """ZeroMQ endpoint the process sends ``FromCore`` to."""
        return f"ipc://{self.socket_directory}/results"


class Add(msgspec.Struct, frozen=True, array_like=True, tag="add"):
    request: GenerationRequest
    arrived: float
    """Seconds of the machine's monotonic clock, which all its processes share."""


class Learn(msgspec.Struct, frozen=True, array_like=True, tag="learn"):
    vocabulary: Vocabulary


class Abort(msgspec.Struct, frozen=True, array_like=True, tag="abort"):
    request_id: str
    index: int | None = None
    """One sequence of the request; ``None``: the request."""


class Close(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    pass


ToCore = Add | Abort | Learn | Close


class Loading(msgspec.Struct, frozen=True, array_like=True, tag="loading"):
    what: str
    share: float
    """How far it is, 0..1."""


class Alive(msgspec.Struct, frozen=True, array_like=True, tag="alive"):
    """The heartbeat of a process that is loading."""


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    info: EngineInfo
    stats: EngineStats


class Dying(msgspec.Struct, frozen=True, array_like=True, tag="dying"):
    """The process ends by itself, after this message."""

    reason: str
    """One line."""


class Step(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    """What one turn of the loop brought; without any contents it is a heartbeat."""

    stats: EngineStats
    events: list[SequenceEvent] = []
    aborted: list[str] = []
    """Requests that were dropped as asked."""


FromCore = Loading | Alive | Ready | Dying | Step


class _Head(msgspec.Struct):
    """What is read of a ``Setup`` of any version."""

    protocol: str = ""


@functools.cache
def protocol() -> str:
    """Names the messages as this version has them: another one whenever a field is added, dropped or changed."""
    layout = repr(msgspec.inspect.multi_type_info([Setup, ToCore, FromCore]))
    return hashlib.blake2b(layout.encode(), digest_size=8).hexdigest()


def _to_path(kind: type, value: Any) -> Any:
    if kind is not Path:
        raise NotImplementedError(f"{kind} does not travel to the engine's process")
    return Path(value)


_encoder = msgspec.msgpack.Encoder(enc_hook=str)
_head_decoder = msgspec.msgpack.Decoder(_Head)
_setup_decoder = msgspec.msgpack.Decoder(Setup, dec_hook=_to_path)
_to_core_decoder = msgspec.msgpack.Decoder(ToCore)
_from_core_decoder = msgspec.msgpack.Decoder(FromCore)


def encode(message: Setup | ToCore | FromCore) -> bytes:
    return _encoder.encode(message)


def pack(message: ToCore) -> list[bytes]:
    """A message to the process in parts: what media hold stands in parts of its own, which nobody copies."""
    if not isinstance(message, Add) or not message.request.media:
        return [encode(message)]
    media = message.request.media
    bare = tuple(msgspec.structs.replace(item, data=b"") for item in media)
    request = msgspec.structs.replace(message.request, media=bare)
    return [encode(Add(request, message.arrived)), *(item.data for item in media)]


def unpack(parts: list[bytes]) -> ToCore:
    """The message of which ``pack`` made the parts."""
    message = _to_core_decoder.decode(parts[0])
    if not isinstance(message, Add) or not message.request.media:
        return message
    whole = zip(message.request.media, parts[1:], strict=True)
    media = tuple(msgspec.structs.replace(item, data=data) for item, data in whole)
    return Add(msgspec.structs.replace(message.request, media=media), message.arrived)


def decode_setup(data: bytes) -> Setup:
    """Raises ``OtherVersion`` when the parent's messages are not those of this process."""
    try:
        sent = _head_decoder.decode(data).protocol
    except msgspec.DecodeError as error:
        raise OtherVersion from error
    if sent != protocol():
        raise OtherVersion
    return _setup_decoder.decode(data)


def decode_from_core(data: bytes) -> FromCore:
    """Raises ``msgspec.DecodeError`` for what is no message."""
    return _from_core_decoder.decode(data)
