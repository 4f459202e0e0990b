"""Which models an answer has in which dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from mindserve_client._generated import models, openai_models
from mindserve_client.base import ContractModel
from mindserve_client.options import DialectName

CompletionT = TypeVar("CompletionT", bound=ContractModel)
ChunkT = TypeVar("ChunkT", bound=ContractModel)


@dataclass(frozen=True, slots=True)
class Answers(Generic[CompletionT, ChunkT]):
    """The models of one dialect's answers."""

    completion: type[CompletionT]
    chunk: type[ChunkT]


ANSWERS: Final[dict[DialectName, Answers[Any, Any]]] = {
    "vllm": Answers(models.ChatCompletion, models.ChatCompletionChunk),
    "openai": Answers(openai_models.ChatCompletion, openai_models.ChatCompletionChunk),
}
