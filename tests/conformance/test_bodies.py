"""Base requests and what is changed in them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from conformance.bodies import Change, bases, expanded, put, steps
from conformance.contract import load_contract
from conformance.files import SuiteError


@pytest.mark.parametrize("base", bases())
def test_every_base_request_is_valid(base: str) -> None:
    load_contract().validator("ChatCompletionRequest").validate(Change(base).body("m", "a"))


def test_places_are_written_as_refusals_name_them() -> None:
    assert steps("messages[0].content[12].image_url.url") == ["messages", 0, "content", 12, "image_url", "url"]


def test_changes_are_laid_over_the_base_and_leave_it_alone() -> None:
    before = expanded(bases()["parts"])
    change = Change("parts", {"messages[0].content[1].text": "Z", "n": 2}, ("max_tokens",))
    body = change.body("served")
    assert body["messages"][0]["content"][1]["text"] == "Z"
    assert (body["model"], body["n"], "max_tokens" in body) == ("served", 2, False)
    assert bases()["parts"] == before


def test_an_adapter_is_named_where_it_is_asked() -> None:
    assert Change("adapter").body("m", "tuned")["model"] == "tuned"


def test_what_is_put_again_is_no_longer_dropped() -> None:
    change = Change(drop=("max_tokens",)).but(put={"max_tokens": 3}, drop=["model"])
    assert change.body("m") == {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 3}


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"repeat": "ab", "times": 3}, "ababab"),
        ({"items": {"repeat": "a", "times": 2}, "times": 2}, ["aa", "aa"]),
        ({"begin": "[", "repeat": "1,", "times": 2, "then": "1]"}, "[1,1,1]"),
        ({"nested": 3}, [[[]]]),
        ({"repeat": "a", "times": 2, "more": 1}, {"repeat": "a", "times": 2, "more": 1}),
        ([{"x": {"repeat": "a", "times": 1}}], [{"x": "a"}]),
    ],
)
def test_short_forms_are_written_out(short: Any, long: Any) -> None:
    assert expanded(short) == long


def test_media_are_written_out() -> None:
    whole, bare, labelled, cut = (
        expanded({"media": "picture.png", **more})
        for more in ({}, {"as": "base64"}, {"as": "audio/mpeg"}, {"as": "base64", "first": 3})
    )
    assert base64.b64decode(bare).startswith(b"\x89PNG\r\n")
    assert (whole, labelled) == (f"data:image/png;base64,{bare}", f"data:audio/mpeg;base64,{bare}")
    assert base64.b64decode(cut) == b"\x89PN"
    assert expanded({"media": "picture.png", "more": 1}) == {"media": "picture.png", "more": 1}
    with pytest.raises(SuiteError, match=r"no file nothing\.png"):
        expanded({"media": "nothing.png"})


@pytest.mark.parametrize("place", ["no.such", "messages[5].role", "model.x"])
def test_a_place_that_is_not_there_is_told(place: str) -> None:
    with pytest.raises(SuiteError, match="there is no"):
        put({"model": "m", "messages": []}, place, 1)
