from __future__ import annotations

import pytest

from tests.mindserve.chat.media.decoding.pools import slow_picture


@pytest.fixture(scope="session")
def slow() -> bytes:
    """A picture that is decoded for minutes, unless the number of its scans is limited."""
    return slow_picture()
