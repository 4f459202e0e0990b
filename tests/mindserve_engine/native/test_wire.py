"""Messages come out as they went in."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from loops import ask, fake_info

from mindserve_engine.native.wire import (
    Abort,
    Add,
    Alive,
    Close,
    Dying,
    FromCore,
    Loading,
    OtherVersion,
    Ready,
    Setup,
    Step,
    ToCore,
    decode_from_core,
    decode_setup,
    encode,
    pack,
    protocol,
    unpack,
)
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import (
    EngineStats,
    FinishReason,
    MediaItem,
    MediaKind,
    SamplingParams,
    SequenceEvent,
    TokenTiming,
)

REQUEST = ask("r", [0, 2**31 - 1], 5, sampling=SamplingParams(seed=2**64 - 1), stop_token_ids=(1, 2))
EVENT = SequenceEvent("r", 0, [7], [TokenTiming(1, 2, 3.5)], FinishReason.EOS, 4, 5)


def media_item(start: int, data: bytes) -> MediaItem:
    return MediaItem(
        kind=MediaKind.AUDIO, start=start, num_tokens=1, shape=(len(data) // 4,), data=data, digest=bytes(32)
    )


SEEN = msgspec.structs.replace(REQUEST, media=(media_item(0, b"abcd"), media_item(1, b"x" * 10**6)))


@pytest.mark.parametrize("message", [Add(REQUEST, 1.25), Add(SEEN, 0.5), Abort("r"), Close()])
def test_to_core(message: ToCore) -> None:
    assert unpack(pack(message)) == message


def test_what_media_hold_is_not_copied_into_the_message() -> None:
    message, *held = pack(Add(SEEN, 0.5))
    assert len(message) < 1000
    assert [data is item.data for data, item in zip(held, SEEN.media, strict=True)] == [True, True]


@pytest.mark.parametrize(
    "message",
    [
        Loading("weights", 0.5),
        Ready(fake_info(2, 4, eos=(3,)), EngineStats(num_blocks=2)),
        Dying("why"),
        Alive(),
        Step(EngineStats(num_running=1), events=[EVENT], aborted=["b"]),
    ],
)
def test_from_core(message: FromCore) -> None:
    assert decode_from_core(encode(message)) == message


SETUP = Setup(
    protocol=protocol(),
    options=EngineOptions(model_path=Path("/m/ä.gguf"), kv_memory_gb=1.5, prefix_cache=False),
    socket_directory=Path("/tmp/x"),
    parent_pid=1,
    heartbeat_s=0.5,
)


def test_setup_carries_all_options() -> None:
    assert decode_setup(encode(SETUP)) == SETUP


@pytest.mark.parametrize(
    "sent",
    [
        {**msgspec.to_builtins(SETUP, enc_hook=str), "protocol": "older"},
        {"protocol": "newer", "everything": "else has changed"},
        {},
        {"protocol": 7},
        ["no", "map"],
    ],
)
def test_setup_of_another_version_is_told_from_a_broken_one(sent: object) -> None:
    with pytest.raises(OtherVersion):
        decode_setup(msgspec.msgpack.encode(sent))


def test_protocol_is_the_same_in_every_process() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "from mindserve_engine.native.wire import protocol; print(protocol())"],
        env={**os.environ, "PYTHONHASHSEED": "123"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == protocol()
