"""Engines whose processes run the fake model."""

from __future__ import annotations

from pathlib import Path

from loops import ask

from mindserve_engine.native.process import NativeEngine
from mindserve_engine.options import EngineOptions


def make_engine(runner: str = "load_runner", model_path: Path = Path("none"), **options: object) -> NativeEngine:
    return NativeEngine(EngineOptions(model_path=model_path, runner=f"fake_core:{runner}", **options))


async def answer(engine: NativeEngine, request_id: str, prompt: list[int]) -> list[int]:
    generation = await engine.admit(ask(request_id, prompt, 4))
    return [token_id async for event in generation for token_id in event.token_ids]
