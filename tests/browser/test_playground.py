"""The playground as people use it: headless Chromium against a running server with the scripted engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mindserve.config.api_keys import ApiKeys
from mindserve.config.settings import Dialect, ServeSettings
from tests.browser.chromium import CHROMIUM, Tab
from tests.browser.using import COMPLETE, REPLIES, fill, say, text, turns
from tests.serving import MODEL, Live, Model, eventually, is_idle, running

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.asyncio(loop_scope="module"),  # starting a browser takes longer than using it
]

INVALID = "document.getElementById('field-top_logprobs').getAttribute('aria-invalid')"
GENERATED = Path(__file__).parents[2] / "src" / "mindserve" / "api" / "_generated" / "playground.json"


async def test_an_answer_streams(page: Tab, live: Live) -> None:
    await say(page, "hang")
    await page.until("document.querySelector('.turn.assistant .text')?.textContent === 'one two'")
    assert await page.value("document.querySelector('.turn.assistant').getAttribute('aria-busy')") == "true"
    assert not is_idle(live)
    assert await page.value("document.getElementById('stop').getAttribute('aria-disabled')") == "false"
    await page.press("Escape")
    await page.until("document.getElementById('status').textContent === 'Stopped.'")
    await eventually(lambda: is_idle(live))
    assert await turns(page) == ["hang", "one two"]
    await page.write("x")
    assert "one two" not in await text(page, "request")  # what was broken off goes into no request


async def test_a_conversation_and_its_wire(page: Tab) -> None:
    await say(page, "hello")
    await page.until(COMPLETE)
    assert await turns(page) == ["hello", "Good <b>day</b>"]
    events = await text(page, "events")
    assert events.count("data: {") == 3 + 1
    assert events.rstrip().endswith("data: [DONE]")
    assert "200 text/event-stream" in events
    head, _, body = (await text(page, "request")).partition("\n\n")
    assert head.splitlines()[0] == "POST /v1/chat/completions"
    assert json.loads(body)["messages"] == [{"role": "user", "content": "hello"}]  # what was sent
    await page.write("x")
    body = (await text(page, "request")).partition("\n\n")[2]  # what would be sent now
    assert [message["role"] for message in json.loads(body)["messages"]] == ["user", "assistant", "user"]
    await page.value("document.getElementById('say').value = ''")
    await say(page, "two")
    await page.until("document.querySelectorAll('.turn.assistant').length === 2")
    await page.until(COMPLETE)
    assert (await turns(page))[2:] == ["two", "first"]


async def test_what_a_model_says_is_text_and_nothing_else(page: Tab) -> None:
    said = "".join(REPLIES[3]["pieces"])
    for stream in ("true", "false"):
        await fill(page, "stream", stream)
        await say(page, "mark up")
        await page.until("document.querySelector('.turn.assistant .text')?.textContent.endsWith('&lt;')")
        await page.until(COMPLETE)
        assert (await turns(page))[1] == said
        assert "<script>window.hit = 1</script>" in await text(page, "events")
        assert (
            await page.value(
                "document.querySelectorAll('#turns :is(img, script, svg), #events :is(img, script)').length"
            )
            == 0
        )
        assert await page.value("window.hit") is None
        await page.value("document.getElementById('clear').click()")


AT_END = (
    "(({scrollHeight, scrollTop, clientHeight}) => scrollHeight - scrollTop - clientHeight < 40)"
    "(document.getElementById('turns'))"
)


async def test_a_long_answer_is_followed_and_leaves_the_form_in_sight(model: Model, browser: Tab) -> None:
    async with running(model, ServeSettings(model_name=MODEL, max_iter_times=4000)) as live:
        await browser.open(live.url + "/")
        await browser.until("document.getElementById('model').options.length > 0")
        await say(browser, "novel")
        await browser.until(COMPLETE)
        assert (await turns(browser))[1].endswith(" word1999")
        assert await browser.value(AT_END)
        assert await browser.value("document.getElementById('say').getBoundingClientRect().bottom < innerHeight")
        events = await text(browser, "events")
        assert events.count("data: {") == 2000 + 2
        assert events.rstrip().endswith("[DONE]")


async def test_who_scrolls_up_stays_there(model: Model, browser: Tab) -> None:
    async with running(model, ServeSettings(model_name=MODEL, max_iter_times=4000)) as live:
        await browser.open(live.url + "/")
        await browser.until("document.getElementById('model').options.length > 0")
        await browser.value(
            "(() => { const pane = document.getElementById('turns');"
            " new MutationObserver((_, watch) => { if (pane.scrollTop <= 100) return; watch.disconnect();"
            " pane.scrollTop = window.stayed = 100; }).observe(pane, {subtree: true, childList: true}); })()"
        )
        await say(browser, "novel")
        await browser.until(COMPLETE)
        assert await browser.value("window.stayed") == 100
        assert await browser.value("document.getElementById('turns').scrollTop") == 100
        await say(browser, "hello")  # a new message is looked at
        await browser.until("document.querySelectorAll('.turn.assistant').length === 2")
        await browser.until(COMPLETE)
        assert await browser.value(AT_END)


async def test_every_parameter_of_the_contract_has_a_control_with_its_bounds(page: Tab) -> None:
    contract = json.loads(GENERATED.read_text("utf-8"))
    for dialect in Dialect:
        await page.value(
            f"(() => {{ const one = document.getElementById('dialect'); one.value = '{dialect}';"
            " one.dispatchEvent(new Event('change')); })()"
        )
        shown = await page.value(
            "Object.fromEntries([...document.querySelectorAll('#fields [data-name]')].map((control) =>"
            " [control.dataset.name, document.getElementById(control.id + '-limits').textContent]))"
        )
        fields = [field for field in contract[dialect] if field["name"] not in ("model", "messages")]
        assert list(shown) == [field["name"] for field in fields]
        for field in fields:
            assert field["type"] in shown[field["name"]]
            assert field["bounds"] in shown[field["name"]]
        assert await page.value(
            "[...document.querySelectorAll('#fields [data-name]')].every((one) => one.labels.length === 1)"
        )


@pytest.mark.parametrize("dialect", Dialect)
async def test_a_refusal_is_told_at_its_field_and_in_the_dialect_s_shape(
    model: Model, browser: Tab, dialect: Dialect
) -> None:
    async with running(model, ServeSettings(model_name=MODEL, dialect=dialect)) as live:
        await browser.open(live.url + "/")
        await browser.until("document.getElementById('model').options.length > 0")
        await fill(browser, "top_logprobs", "21")
        assert await text(browser, "field-top_logprobs-wrong") == "top_logprobs must be: integer, ≥ 0, ≤ 20"
        await say(browser, "hello")
        await browser.until("!document.getElementById('error').hidden")
        assert "21" in await text(browser, "field-top_logprobs-wrong")  # the server's own words
        assert await browser.value(INVALID) == "true"
        shown = json.loads(await browser.value("document.querySelector('#error pre').textContent"))
        assert ("error_type" in shown) == (dialect is Dialect.VLLM)
        assert dialect is Dialect.VLLM or shown["error"]["param"] == "top_logprobs"
        await browser.value("document.querySelector('#error button').click()")
        assert await browser.value("document.activeElement.id") == "field-top_logprobs"
        await fill(browser, "top_logprobs", "")
        assert await browser.value(INVALID) is None
        await say(browser, "")
        await browser.until(COMPLETE)
        assert await browser.value("document.getElementById('error').hidden")


VALUES = [
    ("temperature", "-0.1", False),
    ("temperature", "1e3", True),
    ("temperature", "warm", False),
    ("repetition_penalty", "0", False),
    ("repetition_penalty", "2.0", True),
    ("top_k", "0", False),
    ("top_k", "-1", True),
    ("n", "1.5", False),
    ("seed", "18446744073709551615", True),
    ("seed", "18446744073709551616", False),
    ("tools", "[{", False),
    ("stop", "###", True),
]


async def test_bounds_are_told_before_anything_is_sent(page: Tab) -> None:
    for name, value, is_within in VALUES:
        await fill(page, name, value)
        assert (await text(page, f"field-{name}-wrong") == "") == is_within, (name, value)
        await fill(page, name, "")


async def test_numbers_are_sent_with_the_digits_that_were_typed(page: Tab) -> None:
    for name, value in (("seed", "18446744073709551615"), ("temperature", "1.50"), ("stop", "###"), ("n", "one")):
        await fill(page, name, value)
    body = (await text(page, "request")).partition("\n\n")[2]
    assert '"seed": 18446744073709551615' in body
    assert '"temperature": 1.50' in body
    assert '"stop": "###"' in body
    assert '"n": "one"' in body


async def test_the_chart_of_a_whole_answer_shows_the_server_s_figures(page: Tab) -> None:
    await fill(page, "stream", "false")
    await say(page, "hello")
    await page.until("document.querySelectorAll('#chart svg').length === 3")
    legend = await page.value("[...document.querySelectorAll('#chart .legend li')].map((item) => item.textContent)")
    assert legend == [
        "queue wait 5.25 ms for 3 tokens, longest 5.15 ms",
        "prefill 200 ms",
        "decode 58 ms for 2, median 30 ms",
    ]
    bars = "[...document.querySelectorAll('#chart .plot rect.{}')].map((bar) => Number(bar.getAttribute('height')))"
    waits, decode = [await page.value(bars.format(kind)) for kind in ("wait", "decode")]
    assert [round(one / waits[0] * 5149) for one in waits] == [5149, 60, 39]
    assert [round(one / decode[1] * 30) for one in decode] == [28, 30]
    labels = "[...document.querySelectorAll('#chart svg')].map((one) => one.getAttribute('aria-label'))"
    assert (await page.value(labels))[0] == "Totals: queue wait 5.25 ms, prefill 200 ms, decode 58 ms"
    rows = (
        "[...document.querySelectorAll('#chart tbody tr')].map((row) => [...row.cells].map((one) => one.textContent))"
    )
    assert await page.value(rows) == [["1", "200 ms", "5.15 ms"], ["2", "28 ms", "60 µs"], ["3", "30 ms", "39 µs"]]


async def test_a_chart_of_nothing_but_zeros(page: Tab) -> None:
    """The engine of this answer tells of no wait at all."""
    await say(page, "two")
    await page.until(COMPLETE)
    legend = await page.value("document.querySelector('#chart .legend').textContent")
    assert "queue wait 0 ms for 2 tokens, longest 0 ms" in legend
    assert "queue wait of each token" not in await text(page, "chart")


async def test_the_chart_of_a_stream_says_what_was_measured_here(page: Tab) -> None:
    """Totals and queue waits; times between events too, unless a busy machine gave the browser both at once."""
    await say(page, "hello")
    await page.until("document.querySelectorAll('#chart svg').length >= 2")
    chart = await text(page, "chart")
    assert "measured in the browser" in chart
    assert "queue wait 5.25 ms for 3 tokens" in chart


async def test_a_stream_that_breaks_off(page: Tab) -> None:
    await say(page, "fail")
    await page.until("!document.getElementById('error').hidden")
    assert "Incomplete Generation" in await text(page, "error")
    assert await turns(page) == ["fail", "one two"]


async def test_calls_and_further_sequences(page: Tab) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    await fill(page, "tools", json.dumps([tool]))
    await say(page, "call")
    await page.until(COMPLETE)
    assert 'weather({"city": "Oslo"})' in await text(page, "turns")
    await page.write("x")
    body = json.loads((await text(page, "request")).partition("\n\n")[2])
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == "weather"
    await page.value("document.getElementById('clear').click()")
    await fill(page, "tools", "")
    await fill(page, "n", "2")
    await say(page, "two")
    await page.until(COMPLETE)
    assert sorted((await turns(page))[1:]) == ["first", "second"]


async def test_a_server_with_keys_asks_for_one(model: Model, browser: Tab) -> None:
    async with running(model, ServeSettings(model_name=MODEL, api_keys=ApiKeys(("sk-secret",)))) as live:
        await browser.open(live.url + "/")
        await browser.until("!document.getElementById('key-label').hidden")
        await browser.value("document.getElementById('key').focus()")
        await browser.write("sk-secret")
        await browser.press("Tab")
        await browser.until("document.getElementById('model').options.length > 0")
        await say(browser, "hello")
        await browser.until(COMPLETE)
        assert "sk-secret" not in await browser.value("document.documentElement.outerHTML")
        kept = "JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])"
        assert "sk-secret" not in await browser.value(kept)


async def test_everything_can_be_done_with_the_keyboard(page: Tab) -> None:
    stops = []
    for _ in range(60):
        await page.press("Tab")
        stops.append(await page.value("document.activeElement.id || document.activeElement.className || 'body'"))
    wanted = await page.value(
        "[...document.querySelectorAll('select, input, textarea, button')]"
        ".filter((one) => one.offsetParent && !one.disabled).map((one) => one.id)"
    )
    assert stops[0] == "skip"
    assert set(wanted) <= set(stops)
    assert [one for one in stops if one in wanted][: len(wanted)] == wanted  # in the order in which they stand
    assert {"request", "events"} <= set(stops)
    await page.value("document.activeElement.blur(); document.getElementById('model').focus()")
    while await page.value("document.activeElement.id") != "say":
        await page.press("Tab")
    await page.write("hello")
    for _ in range(3):  # past the role and the files to the button
        await page.press("Tab")
    await page.press(" ")
    await page.until(COMPLETE)
    assert await page.value("document.activeElement.id") == "send"
    outline = await page.value("getComputedStyle(document.getElementById('send')).outlineStyle")
    assert outline == "solid"


async def test_nothing_is_asked_of_another_server(page: Tab, live: Live) -> None:
    await say(page, "hello")
    await page.until(COMPLETE)
    await page.open(live.url + "/docs")
    assert {url for url in page.requested if not url.startswith((live.url, "data:", "about:"))} == set()


@pytest.mark.parametrize("width", [320, 420, 800, 1440])
async def test_no_width_scrolls_sideways(page: Tab, live: Live, width: int) -> None:
    await page.size(width, 800)
    await fill(page, "stream", "false")
    await say(page, "hello " + "x" * 300)
    await page.until(COMPLETE)
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    await fill(page, "tools", json.dumps([tool]))
    await say(page, "call")
    await page.until("document.querySelector('.turn pre') !== null")
    assert await page.value(
        "[...document.querySelectorAll('#turns, .turn pre')].every((one) => one.scrollWidth <= one.clientWidth)"
    )
    for path in ("/docs", "/docs?dialect=openai"):
        assert await page.value("document.documentElement.scrollWidth <= innerWidth")
        await page.open(live.url + path)


CONTRAST = """(() => {
    const light = (color) => {
        const context = new OffscreenCanvas(1, 1).getContext("2d");
        context.fillStyle = color; context.fillRect(0, 0, 1, 1);
        const [red, green, blue] = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part / 255)
            .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const style = getComputedStyle(document.documentElement);
    const page = getComputedStyle(document.body).backgroundColor;
    const ratio = (one, other) => { const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
        return (high + 0.05) / (low + 0.05); };
    const color = (name) => style.getPropertyValue(name);
    return { muted: ratio(color("--muted"), page), mutedSoft: ratio(color("--muted"), color("--soft")),
        accent: ratio(color("--accent"), page), button: ratio(color("--on-accent"), color("--accent")),
        bad: ratio(color("--bad"), page), badSoft: ratio(color("--bad"), color("--bad-soft")) };
})()"""


@pytest.mark.parametrize("dark", [False, True])
async def test_texts_can_be_read_in_light_and_in_dark(page: Tab, *, dark: bool) -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1."""
    await page.size(1440, 900, dark=dark)
    background = await page.value("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") != dark
    ratios = await page.value(CONTRAST)
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}
