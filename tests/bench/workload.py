"""Prompts of a wanted length, each different, so that no prefix cache helps unless that is what is measured."""

from __future__ import annotations

import random

import httpx2

# Plain English words that nearly every tokenizer holds as one token, so that the length is steered by their number.
_WORDS = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
    "car",
    "city",
    "name",
    "president",
    "team",
    "minute",
    "idea",
    "kid",
    "body",
    "information",
    "back",
]


class PromptMaker:
    """Makes prompts that the server counts as ``num_tokens`` (chat template included)."""

    def __init__(self, num_tokens: int, seed: int = 0) -> None:
        self.num_tokens = num_tokens
        self._random = random.Random(seed)
        self._num_words = max(1, num_tokens - 40)

    def make(self) -> str:
        return " ".join(self._random.choice(_WORDS) for _ in range(self._num_words))

    async def calibrate(self, client: httpx2.AsyncClient, url: str, model: str) -> int:
        """Ask the server how long a prompt is and correct the number of words; returns the length reached."""
        length = 0
        for _ in range(6):
            body = {"model": model, "messages": [{"role": "user", "content": self.make()}], "max_tokens": 1}
            response = await client.post(f"{url}/v1/chat/completions", json=body)
            response.raise_for_status()
            length = response.json()["usage"]["prompt_tokens"]
            if length == self.num_tokens:
                break
            self._num_words = max(1, self._num_words + self.num_tokens - length)
        return length
