"""How many prompt tokens a step may hold, from how long the steps before it took.

On a CPU a full prompt step takes seconds, and whoever decodes gets no token meanwhile. So prompts that are worked on
beside decodes are cut into chunks, and a step takes about ``EngineOptions.mixed_step_ms``; a good twice as long
as one of decodes alone where that is more, so that prompts get most of the time on the slowest model, and running
answers pause for less than three times what they are used to. With nobody to wait for
them they are held back only where a step would take so long that the process seems to hang. Media are encoded
in slices between the steps.
"""

from __future__ import annotations

import math
from typing import Final

from mindserve_engine.options import EngineOptions

_FIRST: Final = 256
"""Prompt tokens of a step before anything is known of the model's speed."""
_FEWEST: Final = 16
"""However slow the model was said to be; and no fewer than there are decodes."""
_STRETCH: Final = 2.2
"""Of a step of decodes alone, by prompts that ride along."""
_URGENCY: Final = 4
"""So much more than a sequence that decodes counts one that waits for its first token."""
_LOOK_AGAIN: Final = 8
"""After so many steps in a row with prompts, one is given to the decodes: else it would never be known how long those
take since there are more of them."""
_SHARE_OF_SILENCE: Final = 0.25
"""Of the time an engine process may be silent, for a step without decodes."""


class Pacer:
    """Learns from every step that says something about the speed. Torch-free, and knows no clock."""

    def __init__(self, options: EngineOptions) -> None:
        self._least_s = options.mixed_step_ms / 1e3
        self._alone_s = options.heartbeat_timeout_s * _SHARE_OF_SILENCE
        self._decodes_s: float | None = None
        """A step of decodes alone."""
        self._steps_since_decodes = 0
        """Steps with prompts since that was last seen."""
        self._token_s: float | None = None
        """Of a prompt token in a step that takes its full time, with everything else in that step."""

    def limit(self, num_decodes: int, num_prompts: int = 1) -> int:
        """Prompt tokens for a step that runs so many decodes as well, while so many prompts wait to be worked on; at
        least 1. Where others wait behind the first prompt, more than a quarter of those that decode, steps are longer:
        nobody is served by a small batch and a long queue."""
        if self._token_s is None:
            return _FIRST
        if num_decodes and self._steps_since_decodes >= _LOOK_AGAIN:
            return 1
        target_s = self._alone_s
        if num_decodes:
            target_s = min(target_s, self._mixed_s * max(1.0, _URGENCY * (num_prompts - 1) / num_decodes))
        return max(_FEWEST, num_decodes, int(target_s / self._token_s))

    def encoding_s(self, num_decodes: int) -> float:
        """Time to work on media in a step that runs so many decodes: as long as they take, so that running answers go
        on at no less than half of their speed."""
        if num_decodes:
            return self._decodes_s or 0.0
        return self._least_s

    def note(self, num_prompt_tokens: int, seconds: float) -> None:
        """How long a step with so many prompt tokens took.

        A small step that was quick enough tells nothing: most of its time may be what every step costs. A large one
        gives a limit that is right or, as it too has that part, too low; the next step then corrects it."""
        if not num_prompt_tokens:
            # one step that was held up must not count for much; the next tells whether it was that
            at_most = math.inf if self._decodes_s is None else 2 * self._decodes_s
            self._decodes_s = min(seconds, at_most)
            self._steps_since_decodes = 0 if seconds <= at_most else _LOOK_AGAIN
            return
        self._steps_since_decodes += 1
        fills = num_prompt_tokens >= (_FIRST if self._token_s is None else self._mixed_s / self._token_s)
        if fills or seconds > self._mixed_s:
            self._token_s = max(seconds, 1e-6) / num_prompt_tokens

    @property
    def _mixed_s(self) -> float:
        """For a step of prompts and decodes."""
        return max(self._least_s, _STRETCH * (self._decodes_s or 0.0))
