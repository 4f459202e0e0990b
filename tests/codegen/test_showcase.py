"""Change one bound in a copy of the spec and regenerate: server, SDK, rules, reference follow, with no other edit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codegen.__main__ import main
from codegen.dialects import DIALECTS
from codegen.outputs import API, CLIENT, REFERENCES

REFERENCE = REFERENCES["vllm"]

ROOT = Path(__file__).parents[2]
STOPS = {"stop": ["x" * 20_000, "y" * 20_000]}

# Runs inside the copied tree: what its server makes of each body before the engine is asked.
VERDICTS = """
import json, sys
from pathlib import Path
import mindserve
from mindserve.api.checks import check_request
from mindserve.api.decode import decode_request
from mindserve.api.dialect import dialect_named
from mindserve.config.settings import Dialect, ServeSettings
from mindserve.errors import RequestRefused

DIALECT = dialect_named(Dialect(sys.argv[1]))

def verdict(fields):
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    try:
        request = decode_request(json.dumps(body).encode(), DIALECT.requests, max_json_depth=64)
        check_request(request, DIALECT.rules, ServeSettings(model_name="m"))
    except RequestRefused as refused:
        return str(refused)
    return None

schema = json.loads(DIALECT.requests.document)["components"]["schemas"]["ChatCompletionRequest"]
json.dump({
    "home": str(Path(mindserve.__file__).parents[1]),
    "verdicts": [verdict(fields) for fields in json.load(sys.stdin)],
    "published": schema["properties"]["top_logprobs"]["maximum"],
}, sys.stdout)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the contract and of the sources, as they are."""
    shutil.copytree(ROOT / "spec", tmp_path / "spec")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def _edit_and_generate(tree: Path, old: str, new: str) -> None:
    spec = tree / "spec" / "openapi.yaml"
    text = spec.read_text("utf-8")
    assert text.count(old) == 1, old
    spec.write_text(text.replace(old, new), "utf-8")
    assert main(["--spec", str(spec), "--out", str(tree)]) == 0


def _ask(tree: Path, *bodies: dict[str, Any], dialect: str = "vllm") -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", VERDICTS, dialect],
        input=json.dumps(bodies),
        env={**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
        cwd=tree,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["home"] == str(tree / "src")
    return answer


def _changed_files(tree: Path) -> set[Path]:
    files = [path.relative_to(tree) for path in tree.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path for path in files if (tree / path).read_bytes() != (ROOT / path).read_bytes()}


def _maximum_of(field: str, old: str, new: str) -> tuple[str, str]:
    """The text of the field's schema down to its maximum, before and after."""
    text = (ROOT / "spec" / "openapi.yaml").read_text("utf-8")
    start = text.index(f"\n        {field}:\n")
    end = text.index(f"          maximum: {old}\n", start)
    before = text[start:end]
    return f"{before}          maximum: {old}\n", f"{before}          maximum: {new}\n"


def test_a_bound_of_a_field(tree: Path) -> None:
    bodies = [{"logprobs": True, "top_logprobs": number} for number in (20, 21, 22)]
    before = _ask(tree, *bodies)
    assert [verdict is None for verdict in before["verdicts"]] == [True, False, False]

    _edit_and_generate(tree, *_maximum_of("top_logprobs", "20", "21"))

    after = _ask(tree, *bodies)
    assert [verdict is None for verdict in after["verdicts"]] == [True, True, False]
    assert "20" in before["verdicts"][1]
    assert "21" in after["verdicts"][2]
    assert (before["published"], after["published"]) == (20, 21)
    sdk = (tree / CLIENT / "models.py").read_text("utf-8")
    assert "top_logprobs: Annotated[StrictInt | None, Field(ge=0, le=21)]" in sdk
    row = next(
        line for line in (tree / REFERENCE).read_text("utf-8").splitlines() if "`top_logprobs` | integer" in line
    )
    assert "≥ 0, ≤ 21" in row


def test_nothing_but_the_spec_and_what_is_generated_differs(tree: Path) -> None:
    _edit_and_generate(tree, *_maximum_of("presence_penalty", "2.0", "3.0"))
    modules = ("__init__", "models", "openai_models", "rules", "operations", "defaults", "constants")
    names = (*(f"{name}.py" for name in modules), "openapi.yaml", "playground.json")
    of_dialects = (name for one in DIALECTS for name in (f"openapi.{one}.json", f"reference.{one}.html"))
    of_the_client = ("__init__", "models", "openai_models", "params", "rules", "operations")
    assert _changed_files(tree) == {
        Path("spec/openapi.yaml"),
        *REFERENCES.values(),
        *(API / name for name in (*names, *of_dialects)),
        *(CLIENT / f"{name}.py" for name in of_the_client),
    }
    assert _ask(tree, {"presence_penalty": 3.0}, {"presence_penalty": 3.1})["verdicts"][0] is None


def test_a_bound_of_a_rule(tree: Path) -> None:
    assert "32768" in _ask(tree, STOPS)["verdicts"][0]

    _edit_and_generate(tree, "bound: &stop_length 32768", "bound: &stop_length 40000")

    longer = {"stop": ["x" * 20_000, "y" * 20_001]}
    assert [verdict is None for verdict in _ask(tree, STOPS, longer)["verdicts"]] == [True, False]
    assert "bound=40000" in (tree / API / "rules.py").read_text("utf-8")
    assert "at most {bound} are allowed | 40,000 |" in (tree / REFERENCE).read_text("utf-8")


def test_a_bound_of_the_other_dialect(tree: Path) -> None:
    bodies = [{"logit_bias": {"1": bias}} for bias in (100, 101)]

    _edit_and_generate(tree, "minimum: -100, maximum: 100}", "minimum: -100, maximum: 101}")

    for dialect in ("vllm", "openai"):  # to the one it is an unknown field
        assert _ask(tree, *bodies, dialect=dialect)["verdicts"] == [None, None]
    (verdict,) = _ask(tree, {"logit_bias": {"1": 102}}, dialect="openai")["verdicts"]
    assert verdict == "logit_bias.1 must be a number between -100 and 101, got 102"
    assert _ask(tree, {"logit_bias": 5})["verdicts"] == [None]


def test_a_rule_of_one_dialect_becomes_a_rule_of_both(tree: Path) -> None:
    bodies = [{"n": 2, "temperature": 0}]
    assert [_ask(tree, *bodies, dialect=dialect)["verdicts"][0] is None for dialect in ("vllm", "openai")] == [
        False,
        True,
    ]

    _edit_and_generate(tree, "- id: n-needs-temperature\n          dialect: vllm\n", "- id: n-needs-temperature\n")

    assert _ask(tree, *bodies, dialect="openai")["verdicts"][0] is not None


def test_the_text_of_a_rule(tree: Path) -> None:
    _edit_and_generate(
        tree, "{field} must be at least n ({bound})", "{field} is too small: n, which is {bound}, is the least"
    )
    (verdict,) = _ask(tree, {"n": 3, "best_of": 2})["verdicts"]
    assert verdict.startswith("best_of is too small: n, which is 3, is the least")


def test_a_name_of_a_rule(tree: Path) -> None:
    fields = {"chat_template_kwargs": {"documents": "x"}}
    assert _ask(tree, fields)["verdicts"][0] is not None
    _edit_and_generate(tree, "            - documents\n", "")
    assert _ask(tree, fields)["verdicts"][0] is None


def test_a_constant(tree: Path) -> None:
    fields = {"unheard_of": [0] * 200}
    assert _ask(tree, fields)["verdicts"][0] is None
    _edit_and_generate(tree, "value: 262144", "value: 200")
    assert _ask(tree, fields)["verdicts"][0] == "the request body holds more than 200 values"
