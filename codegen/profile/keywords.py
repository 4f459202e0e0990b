"""Which JSON Schema keywords reach the generated models, and which need a rule or must not be used."""

from __future__ import annotations

from collections.abc import Iterator

from codegen.diagnostics import Diagnostic
from codegen.document import JsonObject
from codegen.pointer import join
from codegen.sites import Position, Site, rule_ids

CARRIED = frozenset(
    {
        *("type", "properties", "required", "items", "additionalProperties", "minimum", "maximum"),
        *("exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern", "minItems"),
        *("maxItems", "minProperties", "maxProperties", "enum", "const", "anyOf", "oneOf", "allOf"),
        *("$ref", "discriminator", "multipleOf", "default", "format"),
    }
)
ANNOTATIONS = frozenset({"title", "description", "example", "examples", "deprecated", "externalDocs", "$comment"})
# JSON Schema can say these and the oracle obeys them, but no model carries them: the server enforces them by a rule.
RULE_BACKED = frozenset(
    {
        *("if", "then", "else", "not", "dependentRequired", "dependentSchemas", "uniqueItems"),
        *("propertyNames", "patternProperties", "contains", "minContains", "maxContains"),
        *("unevaluatedProperties", "unevaluatedItems", "contentMediaType", "contentEncoding"),
    }
)
CONSTRAINTS = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength"),
        *("maxLength", "pattern", "format", "minItems", "maxItems", "minProperties", "maxProperties"),
        *("uniqueItems", "enum", "const"),
    }
)


def is_conditional(schema: JsonObject) -> bool:
    """True for an `allOf` part that only adds conditions: it is checked by a rule and is no part of a model."""
    keys = {key for key in schema if not key.startswith("x-")} - ANNOTATIONS
    return bool(keys) and keys <= RULE_BACKED


def check(site: Site, *, sent_by_server: bool) -> Iterator[Diagnostic]:
    """Refuse keywords that the generator would lose without a word."""
    for keyword in site.schema:
        if keyword.startswith("x-") or keyword in CARRIED or keyword in ANNOTATIONS:
            continue
        pointer = join(site.pointer, keyword)
        if keyword == "nullable":
            yield Diagnostic(pointer, "A2", "nullability is written in the type: [T, 'null']")
        elif keyword not in RULE_BACKED:
            yield Diagnostic(pointer, "lost", f"the generator does not carry `{keyword}`")
        elif not (sent_by_server or _is_backed(site)):
            code = "A8" if keyword in ("if", "then", "else", "dependentRequired", "dependentSchemas") else "lost"
            yield Diagnostic(pointer, code, f"`{keyword}` is lost in the models: name the `x-rule` that enforces it")


def _is_backed(site: Site) -> bool:
    """The rule is named beside the keyword; for items, members and parts also on the field that they belong to."""
    return bool(rule_ids(site.schema) or (site.position is not Position.PROPERTY and rule_ids(site.parent)))
