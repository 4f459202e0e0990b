"""Which files follow from the spec, and keeping the tree equal to them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path

from codegen import (
    client_models,
    client_params,
    config_models,
    config_reference,
    constants,
    defaults,
    differing_models,
    models,
    operations,
    playground,
    reference,
    reference_page,
    rules,
)
from codegen.diagnostics import Diagnostic, SpecRefused
from codegen.dialects import DIALECTS, view
from codegen.document import Document, JsonObject, as_json, load
from codegen.profile import config, lint
from codegen.profile.traceability import INTERPRETATIONS_FILE, vocabulary
from codegen.stamp import MARKER, as_comment, as_markdown, header

SPEC = Path("spec/openapi.yaml")
REFERENCES = {"vllm": Path("spec/docs/reference.md"), "openai": Path("spec/docs/reference-openai.md")}
"""By dialect."""
API = Path("src/mindserve/api/_generated")
CLIENT = Path("src/mindserve_client/_generated")
CONFIG_SCHEMA = Path("spec/config.schema.yaml")
CONFIG_REFERENCE = Path("spec/docs/config.md")
CONFIG_MODELS = Path("src/mindserve/config/_generated.py")
_DIFF_LINES = 12
_MODELS = "mindserve.api._generated.models"
_CLIENT_MODELS = "mindserve_client._generated.models"
_OF_BOTH = {
    "rules.py": rules,
    "operations.py": operations,
    "defaults.py": defaults,
    "constants.py": constants,
}
_OF_THE_CLIENT = ("rules.py", "operations.py")
"""Those of `_OF_BOTH` that the SDK has too."""
_PLAYGROUND = "playground.json"
_SERVED = ("openapi.yaml", *(f"openapi.{dialect}.json" for dialect in DIALECTS), _PLAYGROUND)
_PACKAGE_DOCSTRING = '"""The contract as code: msgspec and the standard library only."""\n'
_CLIENT_DOCSTRING = '"""The contract as code for the SDK: pydantic and the standard library only."""\n'


@dataclass(frozen=True, slots=True)
class Drift:
    """A file that is not what the spec gives: `kind` is missing, stray or changed, `diff` its first lines."""

    path: Path
    kind: str
    diff: tuple[str, ...] = ()


class HandWritten(Exception):
    """A file stands where a generated one belongs; it is never overwritten."""


def generate(spec: Path) -> dict[Path, str]:
    """Path inside the repository -> content, for all that follows from `spec` and the config schema beside it.

    Raises `SpecRefused` with the faults of both.
    """
    faults: list[Diagnostic] = []
    made: dict[Path, str] = {}
    for path, generator in ((spec, _from_openapi), (spec.with_name(CONFIG_SCHEMA.name), _from_config_schema)):
        try:
            made |= generator(load(path))
        except SpecRefused as refusal:
            faults += refusal.about(path.name).diagnostics
    if faults:
        raise SpecRefused(faults)
    return made


def _from_openapi(document: Document) -> dict[Path, str]:
    views = _views(document)
    lines = header(document, SPEC.as_posix())
    comment = as_comment(lines)
    made = {API / "__init__.py": f"{comment}{_PACKAGE_DOCSTRING}"}
    for name, module in _OF_BOTH.items():
        made[API / name] = f"{comment}\n{module.generate(document.data)}"
    first, second = views.values()
    made[API / "models.py"] = f"{comment}\n{models.generate(first)}"
    made[API / "openai_models.py"] = f"{comment}\n{differing_models.generate(first, second, first_module=_MODELS)}"
    made |= _of_the_client(first, second, comment)
    made |= {CLIENT / name: made[API / name] for name in _OF_THE_CLIENT}
    made |= _served_copies(document, views)
    readings = _readings(document)
    for dialect, data in views.items():
        text = reference.generate(data, dialect=dialect)
        made[REFERENCES[dialect]] = f"{as_markdown(lines)}\n{text}"
        made[API / f"reference.{dialect}.html"] = f"{as_markdown(lines)}{reference_page.generate(text, readings)}"
    return made


def _of_the_client(first: JsonObject, second: JsonObject, comment: str) -> dict[Path, str]:
    differing = client_models.generate_differing(first, second, first_module=_CLIENT_MODELS)
    return {
        CLIENT / "__init__.py": f"{comment}{_CLIENT_DOCSTRING}",
        CLIENT / "models.py": f"{comment}\n{client_models.generate(first)}",
        CLIENT / "openai_models.py": f"{comment}\n{differing}",
        CLIENT / "params.py": f"{comment}\n{client_params.generate(first, second)}",
    }


def _readings(document: Document) -> str:
    """The numbered readings beside the document, "" where there are none."""
    path = document.path.with_name("docs") / INTERPRETATIONS_FILE
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _views(document: Document) -> dict[str, JsonObject]:
    """The document as each dialect has it; raises `SpecRefused` with the faults of all of them."""
    words = vocabulary(document.path)
    faults = lint(document.data, words)
    if not faults:
        views = {dialect: view(document.data, dialect) for dialect in DIALECTS}
        faults = [
            replace(fault, message=f"in the dialect {dialect}: {fault.message}")
            for dialect, data in views.items()
            for fault in lint(data, words)
        ]
    if faults:
        raise SpecRefused(faults)
    return views


def _from_config_schema(document: Document) -> dict[Path, str]:
    faults = config.lint(document)
    if faults:
        raise SpecRefused(faults)
    lines = header(document, CONFIG_SCHEMA.as_posix())
    return {
        CONFIG_MODELS: f"{as_comment(lines)}\n{config_models.generate(document.data)}",
        CONFIG_REFERENCE: f"{as_markdown(lines)}\n{config_reference.generate(document.data)}",
    }


def _served_copies(document: Document, views: dict[str, JsonObject]) -> dict[Path, str]:
    """Byte for byte the source, its views and the page's fields as JSON: they have no header of ours."""
    served = {API / f"openapi.{dialect}.json": f"{as_json(data)}\n" for dialect, data in views.items()}
    return {API / "openapi.yaml": document.text, **served, API / _PLAYGROUND: f"{playground.generate(views)}\n"}


def compare(root: Path, made: dict[Path, str]) -> list[Drift]:
    """What differs below `root`, files that nobody generates any more included."""
    drifts = []
    for path, content in made.items():
        target = root / path
        if not target.is_file():
            drifts.append(Drift(path, "missing"))
        elif (found := target.read_text(encoding="utf-8")) != content:
            drifts.append(Drift(path, "changed", _diff(found, content, path)))
    return drifts + [Drift(path, "stray") for path in _strays(root, made)]


def _strays(root: Path, made: dict[Path, str]) -> list[Path]:
    files = [path for folder in (API, CLIENT) if (root / folder).is_dir() for path in (root / folder).rglob("*")]
    found = [path.relative_to(root) for path in files if path.is_file() and "__pycache__" not in path.parts]
    return sorted(set(found) - set(made))


def _diff(found: str, content: str, path: Path) -> tuple[str, ...]:
    before, after = f"{path} (as it is)", f"{path} (from the spec)"
    lines = list(difflib.unified_diff(found.splitlines(), content.splitlines(), before, after, lineterm="", n=0))
    shown = [line if len(line) <= 160 else f"{line[:157]}..." for line in lines[:_DIFF_LINES]]
    return (*shown, f"... {len(lines) - _DIFF_LINES} more lines") if len(lines) > _DIFF_LINES else tuple(shown)


def write(root: Path, made: dict[Path, str]) -> list[Drift]:
    """Make the tree below `root` equal to `made` and say what was different; raises `HandWritten` before any change."""
    drifts = compare(root, made)
    for drift in drifts:
        if drift.kind != "missing" and not _is_ours(root / drift.path):
            raise HandWritten(f"{drift.path} was not written by the generator; move it out of the way")
    for drift in drifts:
        target = root / drift.path
        if drift.kind == "stray":
            target.unlink()
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(made[drift.path], encoding="utf-8")
    return drifts


def _is_ours(target: Path) -> bool:
    """The served copies carry no header; they are known by their names in a directory that holds nothing by hand."""
    return target.name in _SERVED or MARKER in target.read_text(encoding="utf-8")[:400]
