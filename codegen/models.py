"""msgspec models from the component schemas, made by datamodel-code-generator."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from codegen.datamodel import MSGSPEC_FROM_OPENAPI, run
from codegen.diagnostics import Diagnostic, SpecRefused
from codegen.document import JsonObject
from codegen.model_view import models_document
from codegen.pointer import join
from codegen.property_order import in_property_order
from codegen.sites import SCHEMAS, component_sites, directions, rule_ids

_DROPPED_BOUND = re.compile(
    r"msgspec\.Meta takes the number constraints of an int only within the 64-bit range, .*; "
    r"(?P<model>\w+)\.(?P<field>\w+) is generated without th"
)


def generate(document: JsonObject) -> str:
    """The source of the models module, without header; raises `SpecRefused` for what the generator complains about."""
    source, complaints = run(models_document(document), MSGSPEC_FROM_OPENAPI)
    allowed = _allowed_losses(document)
    faults = [Diagnostic(SCHEMAS, "generator", text) for text in complaints if not _is_allowed(text, allowed)]
    if faults:
        raise SpecRefused(faults)
    source = in_property_order(source, document)
    faults = [*undecodable(source)]
    if faults:
        raise SpecRefused(faults)
    return source


def _allowed_losses(document: JsonObject) -> set[tuple[str, str]]:
    """(component, field) of the constraints that may be dropped: an x-rule enforces them, or no client sends them."""
    ways = directions(document)
    return {
        (site.component, site.name)
        for site in component_sites(document)
        if rule_ids(site.schema) or ways.only_sent_by_server(site.component)
    }


def _is_allowed(complaint: str, allowed: set[tuple[str, str]]) -> bool:
    match = _DROPPED_BOUND.match(complaint)
    return match is not None and (match["model"], match["field"]) in allowed


@contextmanager
def loaded(source: str, name: str = "codegen_models_on_trial") -> Iterator[types.ModuleType]:
    """The module that `source` makes, for as long as the block runs."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    try:
        exec(compile(source, f"<{name}>", "exec"), module.__dict__)  # noqa: S102 (our own output)
        yield module
    finally:
        del sys.modules[name]


def undecodable(source: str) -> Iterator[Diagnostic]:
    """Models that msgspec cannot build a decoder for: found when generating, not when the server starts."""
    with loaded(source) as module:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and issubclass(value, msgspec.Struct) and value is not msgspec.Struct:
                try:
                    msgspec.json.Decoder(value)
                except (TypeError, ValueError) as error:
                    yield Diagnostic(join(SCHEMAS, name), "decoder", str(error))
