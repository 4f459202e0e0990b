"""Fetching: the answers of good and bad hosts, names that lead elsewhere, certificates, and what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpcore2
import pytest

from mindserve.chat.media import fetch as fetch_module
from mindserve.chat.media.faults import MediaFault
from mindserve.chat.media.fetch import Fetcher, Pinned, Resolving
from mindserve.chat.media.limits import MediaLimits, SizeLimit
from mindserve.chat.media.remote import parse_remote
from tests.mindserve.chat.media.web import DEAD, PUBLIC, Web, running_web, write_certificate

NAMES: dict[str, Any] = {
    "media.test": [PUBLIC],
    "other.test": [PUBLIC],
    "dead.test": [DEAD],
    "half-dead.test": [DEAD, PUBLIC],
    "private.test": ["10.0.0.5"],
    "mixed.test": [PUBLIC, "127.0.0.1"],
    "metadata.test": ["169.254.169.254"],
    "mapped.test": ["::ffff:127.0.0.1"],
    "nat64.test": ["64:ff9b::a9fe:a9fe"],
    "none.test": [],
    "odd.test": ["not an address"],
    "unicode.test": UnicodeError("label too long"),
}
LISTED = ("unknown.test", "rebinding.test", PUBLIC, "hanging.test", *NAMES)
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody, and is made in no time."""
LIMIT = SizeLimit(10_000, "maxImageSize")
UNREACHABLE = "cannot be fetched: its host cannot be reached"

Limits = Callable[..., MediaLimits]


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with running_web(dict(NAMES)) as running:
        yield running


@pytest.fixture
async def fetch(web: Web, limits: Limits) -> AsyncIterator[Callable[..., Any]]:
    """Fetch a URL with the real vetting; the resolver and the dialler are the web's."""
    fetchers: list[Fetcher] = []

    async def go(url: str, limit: SizeLimit = LIMIT, **settings: Any) -> tuple[bytes, int]:
        some = limits(allowed_hosts=LISTED, **settings)
        fetchers.append(Fetcher(some, resolve=web.resolve, dialler=web, ssl_context=NO_TLS))
        taken: list[int] = []
        data = await fetchers[-1].fetch(parse_remote(url, some), limit, taken.append)
        return bytes(data), sum(taken)

    yield go
    for fetcher in fetchers:
        fetcher.close()


async def refusal(going: Any) -> MediaFault:
    with pytest.raises(MediaFault) as caught:
        await going
    return caught.value


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/ok", b"hello"),
        ("/chunks", b"abcde"),
        ("/until-close", b"to the end"),
        ("/identity", b"plain"),
        ("/q?id=42&sig=a%2Fb+c", b"you asked for /q?id=42&sig=a%2Fb+c"),
        ("", b"you asked for /"),
        ("?x", b"you asked for /?x"),
        ("/\u56fe\u7247", b"you asked for /%E5%9B%BE%E7%89%87"),
    ],
)
async def test_files_are_fetched(fetch: Any, path: str, body: bytes) -> None:
    assert await fetch(f"http://media.test{path}") == (body, len(body))


async def test_what_is_sent(fetch: Any, web: Web) -> None:
    await fetch("http://MEDIA.test/ok")
    await fetch(f"http://{PUBLIC}/ok")
    assert web.looked_up == ["media.test"]
    assert web.dialled == [PUBLIC, PUBLIC]
    by_name, by_address = (headers for _, headers in web.requests)
    assert by_name == {
        "host": "media.test",
        "accept": "*/*",
        "accept-encoding": "identity",
        "user-agent": "mindserve",
        "connection": "close",
    }
    assert by_address["host"] == PUBLIC


async def test_proxies_of_the_environment_are_not_used(fetch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert await fetch("http://media.test/ok") == (b"hello", 5)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/redirect", "status 302, and only 200 is taken"),
        ("/metadata", "status 307"),
        ("/partial", "status 206"),
        ("/missing", "status 404"),
        ("/failing", "status 503"),
        ("/gzip", "sends it compressed, and was asked not to"),
        ("/br", "sends it compressed"),
        ("/declared", "holds 1073741824 bytes; at most 10000 are allowed (setting maxImageSize)"),
        ("/declared-badly", "no valid HTTP"),
        ("/declared-negative", "no valid HTTP"),
        ("/declared-twice", "no valid HTTP"),
        ("/declared-hugely", "no valid HTTP"),
        ("/short", "broke off"),
        ("/short-chunk", "broke off"),
        ("/bad-chunk", "no valid HTTP"),
        ("/junk", "no valid HTTP"),
        ("/nothing", "broke off"),
        ("/headers", "no valid HTTP"),
        ("/empty", "holds no data"),
        ("/endless", " bytes or more; at most 10000 are allowed (setting maxImageSize)"),
    ],
)
async def test_bad_answers(fetch: Any, web: Web, path: str, words: str) -> None:
    """Refused with what the limit is; one request is all that was sent, and the connection is closed."""
    fault = await refusal(fetch(f"http://media.test{path}"))
    assert words in fault.text
    assert PUBLIC not in fault.text
    assert "secret" not in fault.text
    assert len(web.requests) == len(web.dialled) == 1
    await web.idle()


async def test_an_endless_answer_is_read_to_the_limit_and_no_further(web: Web, limits: Limits) -> None:
    some = limits(allowed_hosts=LISTED)
    taken: list[int] = []
    fetcher = Fetcher(some, resolve=web.resolve, dialler=web, ssl_context=NO_TLS)
    with pytest.raises(MediaFault):
        await fetcher.fetch(parse_remote("http://media.test/endless", some), LIMIT, taken.append)
    fetcher.close()
    assert sum(taken) <= LIMIT.max_bytes


async def test_crumbs_are_refused(fetch: Any, web: Web) -> None:
    fault = await refusal(fetch("http://media.test/crumbs", SizeLimit(10**7, "x")))
    assert fault.text == "cannot be fetched: its host sends it in crumbs"
    await web.idle()


async def test_others_have_their_turn_while_small_pieces_come(web: Web, limits: Limits) -> None:
    """All of them are there when the first is read, so that nothing has to be waited for."""
    turns = 0
    seen: list[int] = []

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    some = limits(allowed_hosts=LISTED)
    fetcher = Fetcher(some, resolve=web.resolve, dialler=web, ssl_context=NO_TLS)
    beside = asyncio.create_task(other())
    url = parse_remote("http://media.test/small-pieces", some)
    assert len(await fetcher.fetch(url, LIMIT, lambda _: seen.append(turns))) == 900
    beside.cancel()
    fetcher.close()
    assert len(set(seen)) >= 900 // 64


async def test_exactly_the_limit(fetch: Any) -> None:
    assert (await fetch("http://media.test/ok", SizeLimit(5, "x")))[0] == b"hello"
    assert (await fetch("http://media.test/chunks", SizeLimit(5, "x")))[0] == b"abcde"
    assert "at most 4" in (await refusal(fetch("http://media.test/ok", SizeLimit(4, "x")))).text
    assert "or more; at most 4" in (await refusal(fetch("http://media.test/chunks", SizeLimit(4, "x")))).text


@pytest.mark.parametrize("path", ["/hang", "/hang-in-head", "/hang-in-body"])
async def test_a_silent_host(fetch: Any, web: Web, path: str) -> None:
    fault = await refusal(fetch(f"http://media.test{path}", read_timeout_s=0.1))
    assert fault.text == "cannot be fetched: its host sent nothing for 0.1 s (setting readTimeout)"
    await web.idle()


@pytest.mark.parametrize("path", ["/drip", "/hang"])
async def test_a_slow_host(fetch: Any, web: Web, path: str) -> None:
    """A byte now and then satisfies the limit of silence, not that of the whole."""
    going = fetch(f"http://media.test{path}", SizeLimit(10**7, "x"), fetch_timeout_s=0.2)
    assert (await refusal(going)).text == "did not arrive within 0.2 s (setting fetchTimeout)"
    await web.idle()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("private.test", "10.0.0.5"),
        ("metadata.test", "169.254.169.254"),
        ("mapped.test", "::ffff:127.0.0.1"),
        ("nat64.test", "64:ff9b::a9fe:a9fe"),
        ("mixed.test", "127.0.0.1"),
        ("none.test", "none at all"),
        ("odd.test", "not an address"),
        ("unknown.test", "Name or service not known"),
        ("unicode.test", "label too long"),
    ],
)
async def test_names_that_lead_elsewhere(fetch: Any, web: Web, host: str, reason: str) -> None:
    """The client learns nothing of addresses and resolvers, the log does; nobody is dialled."""
    fault = await refusal(fetch(f"http://{host}/ok"))
    assert fault.text == UNREACHABLE
    assert reason in fault.reason
    assert web.dialled == []


async def test_networks_of_the_settings_may_be_dialled(fetch: Any, web: Web) -> None:
    assert await fetch("http://private.test/ok", allowed_networks=("10.0.0.0/8",)) == (b"hello", 5)
    assert web.dialled == ["10.0.0.5"]


async def test_a_name_that_is_bound_anew_is_dialled_where_it_was_vetted(fetch: Any, web: Web) -> None:
    web.names["rebinding.test"] = [[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]]
    assert await fetch("http://rebinding.test/ok") == (b"hello", 5)
    assert (web.looked_up, web.dialled) == (["rebinding.test"], [PUBLIC])
    assert (await refusal(fetch("http://rebinding.test/ok"))).text == UNREACHABLE
    assert web.dialled == [PUBLIC]


async def test_addresses_are_tried_in_turn(fetch: Any, web: Web) -> None:
    assert await fetch("http://half-dead.test/ok") == (b"hello", 5)
    assert web.dialled == [DEAD, PUBLIC]
    fault = await refusal(fetch("http://dead.test/ok"))
    assert fault.text == UNREACHABLE
    assert DEAD in fault.reason


async def test_name_servers_that_do_not_answer(fetch: Any, web: Web) -> None:
    async def hang() -> list[str]:
        await asyncio.Event().wait()
        return []

    web.names["hanging.test"] = hang
    assert (await refusal(fetch("http://hanging.test/ok", connect_timeout_s=0.05))).text == UNREACHABLE


async def test_only_the_vetted_host_is_dialled(web: Web) -> None:
    backend = Pinned("media.test", [PUBLIC], web)
    with pytest.raises(httpcore2.ConnectError):
        await backend.connect_tcp("other.test", 80)
    with pytest.raises(httpcore2.ConnectError):
        await backend.connect_unix_socket("/run/some.sock")
    assert web.dialled == []


async def test_certificates_are_checked_for_the_name(limits: Limits, tmp_path: Path) -> None:
    """Two names at one address, a certificate for one of them: each is judged by its own name."""
    certificate, key = write_certificate(tmp_path, "media.test")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=certificate)
    some = limits(allowed_hosts=LISTED)
    async with running_web(dict(NAMES), server) as web:
        fetcher = Fetcher(some, resolve=web.resolve, dialler=web, ssl_context=trusting)
        stranger = Fetcher(some, resolve=web.resolve, dialler=web)

        async def get(fetcher: Fetcher, url: str) -> bytes:
            return bytes(await fetcher.fetch(parse_remote(url, some), LIMIT, lambda _: None))

        assert await get(fetcher, "https://media.test/ok") == b"hello"
        for one, url in ((fetcher, "https://other.test/ok"), (stranger, "https://media.test/ok")):
            fault = await refusal(get(one, url))
            assert fault.text == UNREACHABLE
            assert "certificate" in fault.reason.lower()
        assert await get(fetcher, "https://media.test/ok") == b"hello"
        assert web.sni == ["media.test", "other.test", "media.test", "media.test"]
        assert [headers["host"] for _, headers in web.requests] == ["media.test"] * 2
        fetcher.close()
        stranger.close()


async def test_no_descriptor_is_left(fetch: Any, web: Web) -> None:
    def num_sockets() -> int:
        return sum(path.is_socket() for path in Path("/proc/self/fd").iterdir())

    for path in ("/ok", "/short", "/endless", "/missing"):  # warm up
        await _ignore(fetch(f"http://media.test{path}"))
    await web.idle()
    before = num_sockets()
    for _ in range(5):
        for path in ("/ok", "/short", "/endless", "/missing", "/junk", "/declared", "/gzip"):
            await _ignore(fetch(f"http://media.test{path}"))
        await _ignore(fetch("http://media.test/hang-in-body", read_timeout_s=0.02))
        await _ignore(fetch("http://private.test/ok"))
    await web.idle()
    for _ in range(10):  # transports close in a later turn of the loop
        await asyncio.sleep(0)
    assert num_sockets() <= before


async def _ignore(going: Any) -> None:
    with contextlib.suppress(MediaFault):
        await going


async def test_the_systems_resolver_has_threads_of_its_own() -> None:
    resolving = Resolving()
    assert set(await resolving("127.0.0.1", 80)) == {"127.0.0.1"}
    with pytest.raises(OSError):
        await resolving("no such name.invalid", 80)
    resolving.close()


async def test_a_name_is_looked_up_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty that ask for a host whose name servers are silent take one thread; others are answered beside them."""
    asked: list[str] = []
    answer = threading.Event()

    def look_up(host: str, port: int) -> list[str]:
        asked.append(host)
        if host == "silent.test":
            answer.wait()
        return [f"{host}:{port}"]

    monkeypatch.setattr(fetch_module, "_look_up", look_up)
    resolving = fetch_module.Resolving()
    waiting = [asyncio.create_task(resolving("silent.test", 443)) for _ in range(20)]
    assert await resolving("other.test", 80) == ["other.test:80"]
    waiting[0].cancel()
    answer.set()
    assert await asyncio.gather(*waiting[1:]) == [["silent.test:443"]] * 19
    assert sorted(asked) == ["other.test", "silent.test"]
    assert await resolving("silent.test", 443) == ["silent.test:443"]
    resolving.close()
