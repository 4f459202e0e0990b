"""Token ids of a script: one per byte, the special tokens, one per piece the script generates."""

from __future__ import annotations

from typing import Final

from mindserve_engine.scripted.script import Script

END_OF_TEXT: Final = "<|endoftext|>"
TURN_START: Final = "<|im_start|>"
TURN_END: Final = "<|im_end|>"
VISION_START: Final = "<|vision_start|>"
VISION_END: Final = "<|vision_end|>"
IMAGE: Final = "<|image_pad|>"
VIDEO: Final = "<|video_pad|>"
AUDIO_START: Final = "<|audio_bos|>"
AUDIO_END: Final = "<|audio_eos|>"
AUDIO: Final = "<|AUDIO|>"
_TEXT_TOKENS: Final = (END_OF_TEXT, TURN_START, TURN_END)
_MEDIA_TOKENS: Final = (VISION_START, VISION_END, IMAGE, VIDEO, AUDIO_START, AUDIO_END, AUDIO)


def special_tokens(script: Script) -> tuple[str, ...]:
    """In the order of their ids."""
    return _TEXT_TOKENS + _MEDIA_TOKENS if script.media else _TEXT_TOKENS


class Vocabulary:
    """Ids 0..255 are the bytes themselves, then come the special tokens, then the pieces in the script's order.

    A piece that is a single byte or spells a special token is that token.
    """

    def __init__(self, script: Script) -> None:
        self.tokens: list[bytes] = [bytes([byte]) for byte in range(256)]
        self.tokens += [token.encode() for token in special_tokens(script)]
        self._ids = {token: token_id for token_id, token in enumerate(self.tokens)}
        for reply in script.replies:
            for voice in (reply, *reply.others):
                for piece in voice.pieces:
                    self._add(piece.encode("utf-8", "surrogateescape"))
        self.turn_end_id: int = self._ids[TURN_END.encode()]
        self.eos_token_ids = (self.turn_end_id, self._ids[END_OF_TEXT.encode()])

    def __len__(self) -> int:
        return len(self.tokens)

    def id_of(self, piece: str) -> int:
        """The token id of a piece of the script."""
        return self._ids[piece.encode("utf-8", "surrogateescape")]

    def decode(self, token_ids: list[int]) -> str:
        """The text of ``token_ids``, special tokens spelled out; every id must be inside the vocabulary."""
        tokens = self.tokens
        return b"".join([tokens[token_id] for token_id in token_ids]).decode("utf-8", "replace")

    def _add(self, token: bytes) -> None:
        if token not in self._ids:
            self._ids[token] = len(self.tokens)
            self.tokens.append(token)
