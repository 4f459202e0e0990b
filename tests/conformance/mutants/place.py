"""A good server with room for a fault in front of it, and the suite run against it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from conformance.capabilities import capability_names
from conformance.profile import Profile
from conformance.results import CaseResult, Report
from conformance.run import run_suite
from conformance.settings import Settings
from mindserve.config.settings import Dialect, ServeSettings
from tests.conformance.mutants.faults import Mutant
from tests.conformance.mutants.proxy import Fault, Proxy
from tests.serving import MODEL, Live, Model, running

MAX_REQUEST_BYTES: Final = 40 << 20
MAX_TOKENS: Final = 512
MAX_PROMPT_TOKENS: Final = 1000
"""Of prompts that are sent; the scripted engine takes longer ones."""


@dataclass(frozen=True)
class Place:
    """The good server behind the proxy that a fault is put into."""

    live: Live
    proxy: Proxy
    can: frozenset[str]
    """What the good server can do, and the cases need."""
    dialect: Dialect = Dialect.VLLM
    likely_token: int | None = None
    """See ``Profile``."""

    async def run(self, fault: Fault, profile: Profile, only: frozenset[str] | None = None, **bounds: Any) -> Report:
        settings = Settings(base_url=self.live.url, model=MODEL, only=only, profile=profile, **bounds)
        with self.proxy.having(fault):
            return await run_suite(settings)

    async def result_of(self, mutant: Mutant) -> CaseResult:
        """What the server can do is not found out: a fault may hide it."""
        able = (self.can | mutant.features) - mutant.lacks
        profile = Profile(
            dialect=self.dialect,
            likely_token=self.likely_token,
            max_body_bytes=MAX_REQUEST_BYTES,
            max_prompt_tokens=MAX_PROMPT_TOKENS,
            max_tokens=MAX_TOKENS,
            capabilities={name: name in able for name in capability_names()},
        )
        [result] = (await self.run(mutant.fault, profile, frozenset({mutant.case}), **mutant.bounds)).cases
        return result


@asynccontextmanager
async def place_before(
    model: Model, can: frozenset[str], dialect: Dialect = Dialect.VLLM, likely_token: int | None = None
) -> AsyncIterator[Place]:
    """Serves ``model`` with a proxy in front of it."""
    proxies: list[Proxy] = []

    def around(app: object) -> Proxy:
        proxies.append(Proxy(app))
        return proxies[0]

    settings = ServeSettings(
        model_name=MODEL, dialect=dialect, max_request_bytes=MAX_REQUEST_BYTES, max_iter_times=MAX_TOKENS
    )
    async with running(model, settings, around=around) as live:
        yield Place(live, proxies[0], can, dialect, likely_token)
