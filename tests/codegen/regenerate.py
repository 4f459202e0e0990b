"""`python -m tests.codegen.regenerate` writes the golden outputs anew; read the diff before committing it."""

from __future__ import annotations

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
from codegen.dialects import view
from codegen.document import load

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
SPECS = HERE / "specs"
_GENERATORS = {
    "models": models,
    "rules": rules,
    "operations": operations,
    "defaults": defaults,
    "constants": constants,
    "reference": reference,
}
_WANTED = {
    "answers": ("models", "operations", "reference"),
    "bounds": ("models",),
    "nullability": ("models", "defaults"),
    "open_maps": ("models", "reference"),
    "rules": ("models", "rules", "constants", "reference"),
    "unions": ("models", "reference"),
}


def outputs() -> dict[str, str]:
    """File name below `golden/` -> what the generator makes of the tiny spec of that name."""
    made = {}
    for name, kinds in _WANTED.items():
        document = load(SPECS / f"{name}.yaml").data
        for kind in kinds:
            made[f"{name}.{kind}.golden"] = _GENERATORS[kind].generate(document)
    document = load(SPECS / "dialects.yaml").data
    vllm, openai = view(document, "vllm"), view(document, "openai")
    made["dialects.models.golden"] = models.generate(vllm)
    made["dialects.openai_models.golden"] = differing_models.generate(vllm, openai, first_module="models")
    made["dialects.client_models.golden"] = client_models.generate(vllm)
    made["dialects.client_openai_models.golden"] = client_models.generate_differing(vllm, openai, first_module="models")
    made["dialects.client_params.golden"] = client_params.generate(vllm, openai)
    made["dialects.rules.golden"] = rules.generate(document)
    made["dialects.playground.golden"] = playground.generate({"vllm": vllm, "openai": openai})
    readings = "# Readings\n\nSee C1.\n\n| id | reading |\n|---|---|\n| R1 | as C1 says |\n| C1 | `R1` <b> & C2 |\n"
    made["dialects.page.golden"] = reference_page.generate(reference.generate(openai), readings)
    for dialect, data in (("vllm", vllm), ("openai", openai)):
        made[f"dialects.{dialect}.golden"] = reference.generate(data, dialect=dialect)
    schema = load(SPECS / "config" / "config.schema.yaml").data
    made["config.models.golden"] = config_models.generate(schema)
    made["config.reference.golden"] = config_reference.generate(schema)
    return made


def main() -> None:
    """Write all of them and take away those that nothing makes any more."""
    made = outputs()
    GOLDEN.mkdir(exist_ok=True)
    for path in set(GOLDEN.iterdir()) - {GOLDEN / name for name in made}:
        path.unlink()
    for name, text in made.items():
        (GOLDEN / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
