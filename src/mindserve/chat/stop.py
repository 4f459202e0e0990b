"""The search for stop strings in text that arrives in pieces.

Which match counts is defined on the whole text, so it cannot depend on how the text was split: **the match that ends
first**; of several that end at the same character, the longest. (A reader who looks at the text character by character
sees exactly that one first.) Text is given out as soon as it can no longer be the beginning of a match.

The strings are compiled into an Aho-Corasick automaton: the search takes time linear in the text, whatever the strings.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class StopResult(msgspec.Struct, frozen=True):
    """``text`` may be shown now. ``matched`` is the stop string found; nothing comes out after it."""

    text: str
    matched: str | None = None


class StopStrings:
    """Stop strings compiled for searching. Immutable: the sequences of a request share one.

    Building takes time linear in the total length (about 20 ms for the 32,768 characters a request may carry).
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = tuple(dict.fromkeys(stops))
        if "" in self.stops:
            raise ValueError("a stop string cannot be empty")
        self.first_characters = frozenset(stop[0] for stop in self.stops)
        self.children: list[dict[str, int]] = [{}]
        self.depth = [0]
        """Characters of the stop string read at a node."""
        self.owner = [0]
        """A stop string that begins with the characters read at a node."""
        self.match_length = [0]
        """Length of the longest stop string that ends at a node, 0 for none."""
        for index in range(len(self.stops)):
            self._insert(index)
        self.fallback = self._link()
        """The node of the longest proper suffix that begins a stop string."""

    def _insert(self, index: int) -> None:
        node = 0
        for character in self.stops[index]:
            child = self.children[node].get(character)
            if child is None:
                child = self.children[node][character] = len(self.children)
                self.children.append({})
                self.depth.append(self.depth[node] + 1)
                self.owner.append(index)
                self.match_length.append(0)
            node = child
        self.match_length[node] = len(self.stops[index])

    def _link(self) -> list[int]:
        children, match_length = self.children, self.match_length
        fallback = [0] * len(children)
        breadth_first = list(children[0].values())
        for node in breadth_first:  # grows while it is walked
            for character, child in children[node].items():
                suffix = fallback[node]
                while suffix and character not in children[suffix]:
                    suffix = fallback[suffix]
                fallback[child] = children[suffix].get(character, 0)
                match_length[child] = match_length[child] or match_length[fallback[child]]
                breadth_first.append(child)
        return fallback


class StopSearch:
    """One sequence's search. Feed it text until it reports a match or the text ends, then ``finish``."""

    def __init__(self, stops: Sequence[str] | StopStrings, *, include: bool = False) -> None:
        """``include``: the matched string itself is given out too, and nothing after it."""
        self._strings = stops if isinstance(stops, StopStrings) else StopStrings(stops)
        self._include = include
        self._node = 0
        """The text held back is the one that leads to this node."""

    def feed(self, text: str) -> StopResult:
        strings = self._strings
        node = self._node
        if node == 0 and strings.first_characters.isdisjoint(text):
            return StopResult(text)
        children, fallback, match_length = strings.children, strings.fallback, strings.match_length
        for position, character in enumerate(text):
            while node and character not in children[node]:
                node = fallback[node]
            node = children[node].get(character, 0)
            if match_length[node]:
                return self._match(node, text[: position + 1])
        held_before = self._held()
        self._node = node
        return StopResult(_join(held_before, text, num_kept=strings.depth[node]))

    def finish(self) -> str:
        """The text has ended: what was held back is no stop string."""
        held = self._held()
        self._node = 0
        return held

    def _held(self) -> str:
        strings = self._strings
        return strings.stops[strings.owner[self._node]][: strings.depth[self._node]] if self._node else ""

    def _match(self, node: int, text: str) -> StopResult:
        length = self._strings.match_length[node]
        owner = self._strings.stops[self._strings.owner[node]][: self._strings.depth[node]]
        result = _join(self._held(), text, num_kept=0 if self._include else length)
        self._node = 0
        return StopResult(result, owner[-length:])


def _join(held: str, text: str, *, num_kept: int) -> str:
    """``held + text`` without its last ``num_kept`` characters, in time linear in the result."""
    size = len(held) + len(text) - num_kept
    return held[:size] if size <= len(held) else held + text[: size - len(held)]
