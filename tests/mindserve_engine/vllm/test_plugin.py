"""What is put into vLLM's registry for releases that ask it, not the processors, for the largest items."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mindserve_engine.vllm.plugin import _example


@dataclass
class Processor:
    asked: list[dict[str, int]] = field(default_factory=list)

    def get_dummy_mm_inputs(self, mm_counts: dict[str, int]) -> str:
        self.asked.append(mm_counts)
        return "the largest"


@dataclass
class Registry:
    made: list[Any] = field(default_factory=list)
    processor: Processor = field(default_factory=Processor)

    def create_processor(self, model_config: Any) -> Processor:
        self.made.append(model_config)
        return self.processor


def test_the_processor_that_is_there_is_asked() -> None:
    registry, processor = Registry(), Processor()
    assert _example(registry, "model", mm_counts={"image": 1}, processor=processor) == "the largest"
    assert (processor.asked, registry.made) == ([{"image": 1}], [])


def test_one_is_made_where_there_is_none() -> None:
    registry = Registry()
    assert _example(registry, "model", mm_counts={"video": 2}, cache=None) == "the largest"
    assert (registry.processor.asked, registry.made) == ([{"video": 2}], ["model"])
