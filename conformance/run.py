"""Runs cases against a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from conformance.bodies import Body
from conformance.case import CHAT, Call, Case, Known
from conformance.catalogue import select
from conformance.client import Client, Exchange, Limits, Sent, Trouble, open_client
from conformance.contract import load_contract
from conformance.dialects import spoken
from conformance.discover import Discovery, discover
from conformance.judge import judge
from conformance.oracle.seen import Seen
from conformance.profile import Profile
from conformance.results import CaseResult, Report, Result, judged
from conformance.settings import DEFAULT_CONCURRENCY, REQUEST_TIMEOUT_S, TOTAL_TIMEOUT_S, Settings, headers_of

Progress = Callable[[CaseResult], None]
NUM_COMPARISONS: Final = 3
"""How often a question is asked in its forms until the answers agree, see ``_run_all``."""


@dataclass
class _Run:
    """What the cases of a run share."""

    settings: Settings
    client: Client
    found: Discovery
    model: str
    lost: str | None = None
    """Why the server can no longer be reached; the remaining cases are not tried."""

    @property
    def profile(self) -> Profile:
        return self.settings.profile


async def run_suite(settings: Settings, progress: Progress = lambda _: None) -> Report:
    """Run the cases that ``settings`` select. ``progress`` is told of each case as it is done.

    No answer of a server raises. Raises ``SuiteError`` for a selection that names nothing, and for a model that is not
    served.
    """
    cases = select(settings.only, settings.profile.dialect)
    started, start = datetime.now(UTC), time.monotonic()
    total_s = settings.total_timeout_s or settings.profile.total_s or TOTAL_TIMEOUT_S
    results: dict[str, CaseResult] = {}
    found = Discovery({})

    def take(result: CaseResult) -> None:
        results[result.case.id] = result
        progress(result)

    headers = headers_of(settings)
    try:
        async with (
            asyncio.timeout(total_s),
            open_client(settings.base_url, limits_of(settings), headers, verify=settings.verify) as client,
        ):
            found = await discover(client, settings)
            run = _Run(settings, client, found, settings.model, found.lost)
            await _run_all(run, cases, take)
    except TimeoutError:
        pass  # what is not done is told below
    for case in cases:
        if case.id not in results:
            take(CaseResult(case, Result.UNREACHABLE, f"not done within the {total_s:g} s of the run"))
    return Report(
        base_url=settings.base_url,
        model=settings.model,
        dialect=settings.profile.dialect,
        started=started.isoformat(timespec="seconds"),
        duration_s=time.monotonic() - start,
        capabilities=found.capabilities,
        cases=[results[case.id] for case in cases],
        secrets=frozenset(headers.values()),
    )


def limits_of(settings: Settings) -> Limits:
    """The settings' own bounds, else the profile's, else the suite's."""
    profile = settings.profile
    return Limits(
        request_timeout_s=settings.request_timeout_s or profile.request_s or REQUEST_TIMEOUT_S,
        max_body_bytes=settings.max_body_bytes,
        max_events=settings.max_events,
        concurrency=settings.concurrency or profile.concurrency or DEFAULT_CONCURRENCY,
        rate=settings.rate or profile.rate,
    )


async def _run_all(run: _Run, cases: tuple[Case, ...], take: Progress) -> None:
    """As many workers as requests may run at a time; then, one by one, what compares answers.

    On many servers the last bits of a computation depend on what else is being computed, and with them now and then a
    token. Alone, a server can repeat itself.
    """
    await _run_together(run, [case for case in cases if not _compares(case)], take)
    for case in cases:
        if _compares(case):
            take(await _run_case(run, case))


def _compares(case: Case) -> bool:
    """Answers of a computing model; what a script says is always the same."""
    return bool(case.expect.same_as or case.expect.unlike) and case.reply is None


async def _run_together(run: _Run, cases: list[Case], take: Progress) -> None:
    waiting = iter(cases)

    async def work() -> None:
        for case in waiting:
            take(await _run_case(run, case))

    async with asyncio.TaskGroup() as group:
        for _ in range(limits_of(run.settings).concurrency):
            group.create_task(work())


async def _run_case(run: _Run, case: Case) -> CaseResult:
    """One case; a fault of the suite itself becomes its result."""
    if run.lost is not None:
        return CaseResult(case, Result.UNREACHABLE, run.lost)
    for name in sorted(case.needs):
        capability = run.found.capabilities.get(name)
        if capability is None or not capability.present:
            evidence = capability.evidence if capability else "it is not known"
            return CaseResult(case, Result.UNSUPPORTED, f"{name}: {evidence}")
    try:
        return await _ask(run, case)
    except Exception as error:
        return CaseResult(case, Result.ERROR, f"{type(error).__name__}: {error}")


async def _ask(run: _Run, case: Case) -> CaseResult:
    for _ in range(NUM_COMPARISONS if _compares(case) else 1):
        result = await _ask_once(run, case)
        if not {"same-answer", "same-usage"} & set(result.invariants):
            break
    return result


async def _ask_once(run: _Run, case: Case) -> CaseResult:
    seen = await _see(run, case.call)
    exchanges = [seen.exchange]
    if seen.exchange.trouble is None and seen.exchange.status == case.expect.status:
        expect = case.expect
        asked = ((expect.same_as, seen.others), (expect.unlike, seen.unlike), (expect.longer_than, seen.shorter))
        for changes, answers in asked:
            for change in changes:
                answers.append(await _see(run, Call(headers=case.call.headers, change=change)))
                exchanges.append(answers[-1].exchange)
    gone = next((one for one in exchanges if one.trouble is Trouble.UNREACHABLE), None)
    if gone is not None:
        run.lost = gone.reason
        return CaseResult(case, Result.UNREACHABLE, gone.reason, (), tuple(exchanges))
    return judged(case, judge(case, seen), tuple(exchanges))


async def _see(run: _Run, call: Call) -> Seen:
    known = Known(run.profile.max_prompt_tokens, run.profile.likely_token)
    body = call.json_body(run.model, run.found.adapter, known)
    exchange = await _send(run, call, body)
    contract = load_contract(spoken(call.headers, run.profile.dialect))
    return Seen(contract, run.profile, run.model, body, exchange)


async def _send(run: _Run, call: Call, body: Body | None) -> Exchange:
    """A chat request is JSON unless the case says otherwise."""
    headers = dict(call.headers)
    if call.path == CHAT and call.method == "POST" and "Content-Type" not in headers:
        headers["Content-Type"] = "application/json"
    content = call.content(body, run.model, run.profile.max_body_bytes)
    path = call.path.replace("{model}", quote(run.model))
    return await run.client.send(Sent(call.method, path, headers, content, call.without))
