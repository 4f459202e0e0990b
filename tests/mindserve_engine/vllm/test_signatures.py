"""The names and signatures of vLLM's that the engine uses, asked of the installed release: drift shows here, without
starting an engine."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vllm is not installed here")

from mindserve_engine.options import EngineOptions
from mindserve_engine.vllm.arguments import engine_arguments
from tests.vllm_releases.names import CALLS, ENGINE_ARGS, ERRORS, FIELDS, MEMBERS, RUN_HEADLESS
from tests.vllm_releases.source import Source


def found(place: str) -> Any:
    module, _, path = place.partition(":")
    thing: Any = importlib.import_module(module)
    for name in path.split("."):
        thing = getattr(thing, name)
    return thing


@pytest.mark.parametrize(("place", "names"), CALLS.items(), ids=CALLS)
def test_calls(place: str, names: tuple[str, ...]) -> None:
    assert set(names) <= set(inspect.signature(found(place)).parameters)


@pytest.mark.parametrize(("place", "names"), FIELDS.items(), ids=FIELDS)
def test_fields(place: str, names: tuple[str, ...]) -> None:
    kind = found(place)
    if dataclasses.is_dataclass(kind):
        fields = {field.name for field in dataclasses.fields(kind)}
    else:
        fields = set(kind.__struct_fields__)
    assert set(names) <= fields


def test_engine_arguments(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text("{}")
    options = EngineOptions(model_path=tmp_path, kv_memory_gb=1.0, adapters={"one": tmp_path})
    known = {field.name for field in dataclasses.fields(found(ENGINE_ARGS))}
    assert set(engine_arguments(options, lora_rank=8)) <= known


def test_errors() -> None:
    for place in ERRORS:
        assert issubclass(found(place), Exception)


def test_the_logits_processor_is_one() -> None:
    from vllm.v1.sample.logits_processor import LogitsProcessor

    from mindserve_engine.vllm.temperature import PLACE, TemperatureOutside

    assert found(PLACE) is TemperatureOutside
    assert issubclass(TemperatureOutside, LogitsProcessor)
    assert not inspect.isabstract(TemperatureOutside)


@pytest.fixture(scope="module")
def source() -> Source:
    """As releases are read that are not installed."""
    import vllm

    folder = Path(vllm.__file__).parents[1]
    return Source(lambda name: (folder / name).read_text("utf-8") if (folder / name).is_file() else None)


@pytest.mark.parametrize("place", CALLS)
def test_what_is_read_is_what_is_imported(source: Source, place: str) -> None:
    assert source.parameters(place) == set(inspect.signature(found(place)).parameters) | (
        {"cls"} if inspect.ismethod(found(place)) else set()
    )


@pytest.mark.parametrize("place", [*FIELDS, *MEMBERS])
def test_members_are_read(source: Source, place: str) -> None:
    assert set((FIELDS | MEMBERS)[place]) <= source.members(place)
    assert "no_such_name" not in source.members(place)


def test_a_further_machine_reads_arguments_alone(source: Source) -> None:
    assert "api_server_count" in source.attributes(RUN_HEADLESS, "args")
