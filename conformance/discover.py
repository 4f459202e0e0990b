"""Finds out what a server can do, by asking it. Each verdict carries its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.bodies import Body, Change, change_of
from conformance.capabilities import probes
from conformance.case import CHAT, Call
from conformance.client import Client, Exchange, Sent, Trouble
from conformance.contract import listed, load_contract
from conformance.dialects import Dialect, dialect_named
from conformance.files import SuiteError
from conformance.judge import BAD_REQUEST
from conformance.oracle.seen import NotJson, Seen, parse_json
from conformance.oracle.shapes import names_place, shortened
from conformance.results import Capability
from conformance.settings import Settings, headers_of

_HEADERS: Final = {"Content-Type": "application/json"}
ANOTHER_SEED: Final = 1
"""Than that of the base request ``drawn``."""


@dataclass(frozen=True)
class Discovery:
    """What was found out before the cases."""

    capabilities: Mapping[str, Capability]
    adapter: str | None = None
    """Name of the LoRA adapter to ask."""
    lost: str | None = None
    """Why the server cannot be reached."""


async def discover(client: Client, settings: Settings) -> Discovery:
    """Ask for every capability that the profile does not decide, the model list first.

    Raises ``SuiteError`` when the server does not serve the model.
    """
    listed = await client.send(Sent("GET", "/v1/models", {}, None))
    if listed.trouble is Trouble.UNREACHABLE:
        return Discovery({}, lost=listed.reason)
    await _check_model(client, settings, listed)
    adapter = _adapter_of(settings, listed)
    found: dict[str, Capability] = {}
    for name, probe in probes().items():
        forced = settings.profile.capabilities.get(name)
        if forced is not None:
            found[name] = Capability(name, forced, f"the profile says {'yes' if forced else 'no'}")
        elif probe["by"] == "profile":
            found[name] = Capability(name, False, "only a profile can say so")
        elif probe["by"] == "limit":
            limit = getattr(settings.profile, probe["limit"])
            found[name] = Capability(name, limit is not None, f"limits.{probe['limit']} of the profile: {limit}")
        elif probe["by"] == "key":
            has_key = any(header.lower() == "authorization" for header in headers_of(settings))
            found[name] = Capability(name, has_key, f"the run {'has' if has_key else 'has no'} header Authorization")
        elif probe["by"] == "models":
            found[name] = _adapters(name, adapter)
        else:
            found[name] = await _probed(client, settings, name, probe)
    if found["lora"].present and adapter is None:
        raise SuiteError("the profile says that there is an adapter, but neither it nor the model list names one")
    return Discovery(found, adapter)


async def _check_model(client: Client, settings: Settings, listed: Exchange) -> None:
    """Raises ``SuiteError`` for a model that the server neither lists nor answers for: every case would fail for it."""
    exchange, _ = await _chat(client, settings, Change())
    names = [one.get("id") for one in _listed_models(listed)]
    if names and settings.model not in names and exchange.status in (404, 422) and b"model" in exchange.body:
        raise SuiteError(
            f"--model: the server does not serve {settings.model!r}; it lists {', '.join(map(repr, names))}"
        )


def _listed_models(listed: Exchange) -> list[dict[str, Any]]:
    """Of the model list, as far as it has the shape of one."""
    try:
        return [one for one in parse_json(listed.body)["data"] if isinstance(one, dict)]
    except (NotJson, KeyError, TypeError):
        return []


def _adapter_of(settings: Settings, listed: Exchange) -> str | None:
    """The adapter to ask: the profile's, else the first one that the model list has."""
    if settings.profile.adapter is not None:
        return settings.profile.adapter
    adapters = (one.get("id") for one in _listed_models(listed) if one.get("parent") is not None)
    return next((name for name in adapters if isinstance(name, str)), None)


def _adapters(name: str, adapter: str | None) -> Capability:
    if adapter is None:
        return Capability(name, False, "GET /v1/models lists no model with a parent")
    return Capability(name, True, f"the adapter {adapter}")


async def _probed(client: Client, settings: Settings, name: str, probe: Mapping[str, Any]) -> Capability:
    """A capability is absent when the probe is refused as C19 has it, or its answer lacks what it should show."""
    change = change_of(probe)
    exchange, asked = await _chat(client, settings, change)
    text = shortened(exchange.body.decode("utf-8", "replace"))
    told = f"{exchange.status}: {text}"
    if probe["by"] == "refusal":
        if _is_lacking(exchange, probe, dialect_named(settings.profile.dialect)):
            return Capability(name, False, f"refused with {told}")
        is_odd = exchange.status is None or exchange.status >= BAD_REQUEST
        return Capability(name, True, f"no refusal that names the field, so it is asked: {told}" if is_odd else "taken")
    if exchange.status is None or exchange.status >= BAD_REQUEST or exchange.trouble is not None:
        # Nobody may lack what a repetition asks for, so its cases are asked and tell what is wrong.
        is_asked = probe["by"] == "repetition" and exchange.trouble is None
        return Capability(name, is_asked, f"no answer to the probe: status {told} {exchange.reason}".rstrip())
    again = None
    if probe["by"] in ("repetition", "variation"):
        other = change if probe["by"] == "repetition" else change.but(put={"seed": ANOTHER_SEED})
        again = (await _chat(client, settings, other))[0]
    shows = _shows(settings, probe, asked, exchange, again)
    return Capability(name, shows, f"{probe['says']}: {'yes' if shows else 'no'}")


def _is_lacking(exchange: Exchange, probe: Mapping[str, Any], dialect: Dialect) -> bool:
    """A validation failure whose text names the field (C19)."""
    if exchange.status != dialect.invalid:
        return False
    try:
        text = dialect.error_of(parse_json(exchange.body))["message"]
        return any(names_place(text, place) for place in listed(probe["field"]))
    except (NotJson, KeyError, TypeError):
        return False


async def _chat(client: Client, settings: Settings, change: Change) -> tuple[Exchange, Body]:
    body = change.body(settings.model)
    content = Call(change=change).content(body, settings.model)
    return await client.send(Sent("POST", CHAT, _HEADERS, content)), body


def _shows(
    settings: Settings, probe: Mapping[str, Any], asked: Body, exchange: Exchange, again: Exchange | None
) -> bool:
    """Whether the answer shows the capability. Answers out of shape show nothing: the cases judge them."""
    try:
        seen = Seen(load_contract(settings.profile.dialect), settings.profile, settings.model, asked, exchange)
        if again is not None:
            other = Seen(load_contract(settings.profile.dialect), settings.profile, settings.model, asked, again)
            is_same = seen.sequences[0].told() == other.sequences[0].told()
            return is_same is (probe["by"] == "repetition")
        if "text" in probe:
            return bool(seen.sequences[0].text == probe["text"])
        if "key" in probe:
            return any(probe["key"] in chunk for chunk in seen.chunks)
        if "no_key" in probe:
            return bool(seen.chunks) and not any(probe["no_key"] in chunk for chunk in seen.chunks)
        return bool(seen.sequences[0].reasoning)
    except (NotJson, KeyError, TypeError, IndexError, ValueError, AttributeError):
        return False
