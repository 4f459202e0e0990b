"""Messages come out as they went in."""

from pathlib import Path

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
    Ready,
    Setup,
    Step,
    ToCore,
    decode_from_core,
    decode_setup,
    decode_to_core,
    encode,
)
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineStats, FinishReason, SamplingParams, SequenceEvent, TokenTiming

REQUEST = ask("r", [0, 2**31 - 1], 5, sampling=SamplingParams(seed=2**64 - 1), stop_token_ids=(1, 2))
EVENT = SequenceEvent("r", 0, [7], [TokenTiming(1, 2, 3.5)], FinishReason.EOS, 4, 5)


@pytest.mark.parametrize("message", [Add(REQUEST, 1.25), Abort("r"), Close()])
def test_to_core(message: ToCore) -> None:
    assert decode_to_core(encode(message)) == message


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


def test_setup_carries_all_options() -> None:
    options = EngineOptions(model_path=Path("/m/ä.gguf"), kv_memory_gb=1.5, prefix_cache=False)
    setup = Setup(options=options, requests_address="a", results_address="b", parent_pid=1, heartbeat_s=0.5)
    assert decode_setup(encode(setup)) == setup
