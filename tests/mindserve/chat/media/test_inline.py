"""Base64 in pieces is what it is as a whole."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve.chat.media import inline
from mindserve.chat.media.faults import Abandoned, MediaFault
from mindserve.chat.media.inline import Inline, decode_inline

RFC_4648 = re.compile(r"(?=.)(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def never() -> bool:
    return False


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "_PIECE_CHARACTERS", 8)


@given(data=st.binary(min_size=1, max_size=100), head=st.integers(0, 30))
def test_bytes_survive(data: bytes, head: int) -> None:
    assert decode_inline(Inline("x" * head + base64.b64encode(data).decode(), head), never) == data


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("size", range(1, 40))
def test_bytes_survive_in_pieces(size: int) -> None:
    data = bytes(range(size))
    assert decode_inline(Inline(base64.b64encode(data).decode()), never) == data


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("text", [
    "QUJ", "QUJDRA", "QUJDRA==QUJD", "QU=DQUJD", "QUI=QUJDQUJDQUJD", "QUJDQUI=QUJDQUJD", "QUJDQUJDQUI=QUJD",
    "QUJD QUJ", "QUJDQUJ\n", "QU-_", "====", "=QUJ", "A===", "QUJé", "éééé", "QUJD\x00\x00\x00\x00", "%3D%3D=",
    "QUJD====", "QUJDQUJD====", "QUJD=",
])  # fmt: skip
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(MediaFault, match="is not Base64"):
        decode_inline(Inline(text), never)


@given(text=st.text(alphabet="QUJD=+/ \n-é", max_size=24))
def test_base64_is_what_rfc_4648_says(text: str) -> None:
    """The standard library takes padding that nothing needs, too ("QUJD=")."""
    expected = base64.b64decode(text) if RFC_4648.fullmatch(text) else None
    try:
        found: bytearray | None = decode_inline(Inline(text), never)
    except MediaFault:
        found = None
    assert found == expected


@pytest.mark.usefixtures("small_pieces")
def test_work_for_a_request_that_is_over_stops() -> None:
    asked = iter([False, False, True])
    with pytest.raises(Abandoned):
        decode_inline(Inline("QUJDQUJD" * 100), lambda: next(asked))
    assert next(asked, None) is None
