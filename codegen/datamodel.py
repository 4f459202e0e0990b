"""One run of datamodel-code-generator, and all of its configuration.

The preset is dated: an upgrade of the generator changes nothing behind our back.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

from datamodel_code_generator.__main__ import main as datamodel_codegen

from codegen.diagnostics import Diagnostic, SpecRefused
from codegen.document import JsonObject

PACKAGE = "datamodel-code-generator"
VERSION = version(PACKAGE)
_COMMON = (
    "--ignore-pyproject",
    "--preset=standard-py311-20261027",
    "--target-python-version=3.11",
    "--naming-strategy=full-path",
    "--enum-field-as-literal=all",
    "--use-schema-description",
    "--strict-refs",
    "--disable-timestamp",
)
MSGSPEC_FROM_OPENAPI = (
    *_COMMON,
    "--input-file-type=openapi",
    "--output-model-type=msgspec.Struct",
    "--keyword-only",
    "--use-msgspec-tagged-unions",
)
PYDANTIC_FROM_OPENAPI = (
    *_COMMON,
    "--input-file-type=openapi",
    "--output-model-type=pydantic_v2.BaseModel",
    "--base-class=mindserve_client.base.ContractModel",
    "--no-allow-population-by-field-name",
    "--strict-types",
    *("str", "int", "float", "bool"),
    "--use-annotated",
    "--use-field-description",
)
PYDANTIC_FROM_JSON_SCHEMA = (
    *_COMMON,
    "--input-file-type=jsonschema",
    "--output-model-type=pydantic_v2.BaseModel",
    "--snake-case-field",
    "--no-allow-population-by-field-name",
    "--strict-types",
    *("str", "int", "float", "bool"),
    "--use-annotated",
    "--field-extra-keys",
    *("x-ignored", "x-extension"),
)


def run(document: JsonObject, options: tuple[str, ...]) -> tuple[str, list[str]]:
    """(source from its first import on, complaints): in this process, its warnings caught as texts."""
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given, made = Path(directory, "given.json"), Path(directory, "made.py")
        given.write_text(json.dumps(document), encoding="utf-8")
        status = datamodel_codegen([*options, f"--input={given}", f"--output={made}"])
        if status != 0 or not made.exists():
            raise SpecRefused([Diagnostic("", "generator", f"{PACKAGE} failed with status {int(status)}")])
        source = made.read_text(encoding="utf-8")
    return source[source.index("from __future__") :], [str(item.message) for item in caught]
