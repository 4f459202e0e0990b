"""msgspec models from the component schemas, made by datamodel-code-generator."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import msgspec
from datamodel_code_generator.__main__ import main as datamodel_codegen

from codegen.diagnostics import Diagnostic, SpecRefused
from codegen.document import JsonObject
from codegen.model_view import models_document
from codegen.pointer import join
from codegen.property_order import in_property_order
from codegen.sites import SCHEMAS, component_sites, directions, rule_ids

# The one place where the generator is configured. The preset is dated: an upgrade changes nothing behind our back.
OPTIONS = (
    "--ignore-pyproject",
    "--input-file-type=openapi",
    "--preset=standard-py311-20261027",
    "--output-model-type=msgspec.Struct",
    "--target-python-version=3.11",
    "--keyword-only",
    "--naming-strategy=full-path",
    "--enum-field-as-literal=all",
    "--use-msgspec-tagged-unions",
    "--use-schema-description",
    "--strict-refs",
    "--disable-timestamp",
)
GENERATOR_VERSION = f"datamodel-code-generator {version('datamodel-code-generator')}"
_DROPPED_BOUND = re.compile(
    r"msgspec\.Meta takes the number constraints of an int only within the 64-bit range, .*; "
    r"(?P<model>\w+)\.(?P<field>\w+) is generated without th"
)


def generate(document: JsonObject) -> str:
    """The source of the models module, without header; raises `SpecRefused` for what the generator complains about."""
    source, complaints = run_generator(models_document(document))
    allowed = _allowed_losses(document)
    faults = [Diagnostic(SCHEMAS, "generator", text) for text in complaints if not _is_allowed(text, allowed)]
    if faults:
        raise SpecRefused(faults)
    source = in_property_order(source, document)
    faults = [*undecodable(source)]
    if faults:
        raise SpecRefused(faults)
    return source


def run_generator(document: JsonObject) -> tuple[str, list[str]]:
    """(source, complaints): one run of datamodel-code-generator in this process, its warnings caught as texts."""
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given, made = Path(directory, "openapi.json"), Path(directory, "models.py")
        given.write_text(json.dumps(document), encoding="utf-8")
        status = datamodel_codegen([*OPTIONS, f"--input={given}", f"--output={made}"])
        if status != 0 or not made.exists():
            raise SpecRefused([Diagnostic(SCHEMAS, "generator", f"failed with status {int(status)}")])
        source = made.read_text(encoding="utf-8")
    body = source[source.index("from __future__") :]
    return body, [str(item.message) for item in caught]


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
