"""Text of a request can never become a control token.

A chat template marks turns with control tokens (``<|im_end|>``), and a tokenizer finds them by their spelling, so text
that happens to hold that spelling would end a turn. Escaping the text is not enough: two harmless pieces may join into
a control token, and templates cut and strip. So it is done the other way round:

- in the template's own literals every control token is respelled as a **marker**, a secret string;
- a second tokenizer, otherwise the same, knows the control tokens under their marker spelling only.

What comes out for harmless text is what the ordinary tokenizer gives, token for token. No text of a request, however
cut or joined, holds a marker, so it gives no control token.

Control tokens are: every token flagged special; the named ones (bos, eos, pad, ...); and added tokens of the forms
``<|...|>``, ``<｜...｜>`` and ``[INST]``, which some models mark turns with but do not flag. Tokens that look like tags
(``<think>``, ``<tool_call>``) and are not flagged special are not: in a history they legitimately stand in messages.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Any, Final

from tokenizers import Tokenizer

_BOUNDARY_FORM: Final = re.compile(r"<[|｜].+[|｜]>|\[/?[A-Z_]+\]", re.DOTALL)


class ControlTokens:
    """The control tokens of a tokenizer and their secret spellings."""

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = tuple(sorted(set(literals), key=len, reverse=True))  # longest first, as tokenizers match
        secret = secrets.token_hex(16)
        # Private-use characters keep a marker apart from digits and letters beside it.
        self.markers = {literal: f"\ue0f1{secret}{index}\ue0f2" for index, literal in enumerate(self.literals)}
        self._literal_of = {marker: literal for literal, marker in self.markers.items()}
        self._literal_pattern = any_of(self.literals)
        self._marker_pattern = any_of(self._literal_of)

    def mark(self, text: str) -> str:
        """``text`` of the template, with its control tokens respelled."""
        return self._literal_pattern.sub(lambda match: self.markers[match[0]], text)

    def unmark(self, text: str) -> str:
        """For people: markers back to what they stand for."""
        return self._marker_pattern.sub(lambda match: self._literal_of[match[0]], text)

    def find(self, text: str) -> set[str]:
        """Control tokens that stand in ``text`` under their own spelling."""
        return set(self._literal_pattern.findall(text))


def any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Matches any of ``texts``, an earlier one before a later one; nothing if there are none."""
    return re.compile("|".join(map(re.escape, texts)) or r"(?!)")


def control_literals(spec: dict[str, Any], named: Iterable[str]) -> set[str]:
    """``spec`` is the parsed ``tokenizer.json``; ``named`` the tokenizer's bos, eos, pad, ... tokens."""
    added = {token["content"]: token["special"] for token in spec["added_tokens"]}
    flagged = {text for text, is_special in added.items() if is_special or _BOUNDARY_FORM.fullmatch(text)}
    return (flagged | (set(named) & set(added))) - {""}


class MarkedEncoder:
    """The tokenizer that knows control tokens under their marker spelling only. Thread-safe."""

    def __init__(self, spec: dict[str, Any], control: ControlTokens) -> None:
        """Raises ``ValueError`` when ``spec`` makes a control token out of plain text in some other way."""
        self._tokenizer = Tokenizer.from_str(json.dumps(_respell(spec, control.markers), ensure_ascii=False))
        self._renumbered = self._find_renumbered(spec, control.markers)
        control_ids = {token["id"] for token in spec["added_tokens"] if token["content"] in control.markers}
        control_ids -= _unknown_ids(spec["model"])
        for literal, marker in control.markers.items():
            if not control_ids.isdisjoint(self.encode(literal)) or len(self.encode(marker)) != 1:
                raise ValueError(f"the token {literal!r} cannot be kept apart from text")

    def encode(self, text: str, *, check_length: Callable[[int], None] | None = None) -> list[int]:
        """Ids of marked text. ``check_length`` is given their number before the list is made, and may raise: making
        a list of millions holds the interpreter lock for tens of milliseconds."""
        encoding = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]
        if check_length is not None:
            check_length(len(encoding))
        ids: list[int] = encoding.ids
        if self._renumbered:
            ids = [self._renumbered.get(token_id, token_id) for token_id in ids]
        return ids

    def _find_renumbered(self, spec: dict[str, Any], markers: dict[str, str]) -> dict[int, int]:
        """Added tokens outside the model's vocabulary are numbered on loading; the numbers must be the original's."""
        renumbered = {}
        for token in spec["added_tokens"]:
            loaded_id = self._tokenizer.token_to_id(markers.get(token["content"], token["content"]))
            if loaded_id is not None and loaded_id != token["id"]:
                renumbered[loaded_id] = token["id"]
        return renumbered


def _respell(spec: dict[str, Any], markers: dict[str, str]) -> dict[str, Any]:
    """``spec`` with control tokens under their marker spelling, and no merge that makes or takes one."""
    model = dict(spec["model"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = {markers.get(token, token): token_id for token, token_id in model["vocab"].items()}
    else:  # Unigram: pairs of token and score, the position is the id
        model["vocab"] = [[markers.get(token, token), score] for token, score in model["vocab"]]
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = markers.get(model["unk_token"], model["unk_token"])
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if markers.keys().isdisjoint(_parts_and_whole(merge))]
    added = [{**token, "content": markers.get(token["content"], token["content"])} for token in spec["added_tokens"]]
    unused = {"post_processor": None, "padding": None, "truncation": None}
    return {**spec, "model": model, "added_tokens": added, **unused}


def _unknown_ids(model: dict[str, Any]) -> set[int]:
    """The token that stands for text the vocabulary cannot spell: any text may give it, and it marks no turn."""
    if model.get("unk_id") is not None:
        return {model["unk_id"]}
    return {model["vocab"][model["unk_token"]]} if model.get("unk_token") else set()


def _parts_and_whole(merge: Any) -> tuple[str, str, str]:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left, right, left + right
