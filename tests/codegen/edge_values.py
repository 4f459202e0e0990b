"""Bodies on both sides of every bound, drawn from a JSON Schema: valid field by field, then with up to two faults."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema_rs
from hypothesis import strategies as st

from codegen.sites import UNION_KEYWORDS, dereferenced

Json = Any
_LONGEST = 40_000
_ANYTHING = st.sampled_from(
    [
        *(None, True, False, 0, 1, -1, 2, 2.0, 0.5, 1e300, 2**31, 2**63, 2**64 - 1, 2**64, -(2**63) - 1),
        *("", "1", "true", "x", "é\U0001f600", "none", "user", "tool", [], [None], ["x"], [1.0], {}, {"type": "text"}),
    ]
)


def bodies(document: Json, schema: Json) -> st.SearchStrategy[Json]:
    """Values of `schema` of which none, one or two places have been changed to a near miss or to something else."""
    valid = _objects(document, schema, 0)

    @st.composite
    def body(draw: st.DrawFn) -> Json:
        made = copy.deepcopy(draw(valid))
        for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
            _spoil(draw, made)
        return made

    return body()


def _spoil(draw: st.DrawFn, body: Json) -> None:
    places = _places(body)
    if not places:
        return
    holder, key = draw(st.sampled_from(places))
    if draw(st.integers(0, 4)) == 0:
        del holder[key]
    else:
        holder[key] = draw(_near(holder[key]))


def _places(value: Json) -> list[tuple[Json, str | int]]:
    """(container, key) of every value inside."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [place for key in keys for place in _places(value[key])]


def _near(value: Json) -> st.SearchStrategy[Json]:
    if isinstance(value, bool) or value is None:
        return _ANYTHING
    if isinstance(value, int | float):
        return st.one_of(st.sampled_from([value - 1, value + 1, float(value), value / 2, str(value)]), _ANYTHING)
    if isinstance(value, str):
        return st.one_of(st.sampled_from([value + "x", value[1:], [value]]), _ANYTHING)
    return _ANYTHING


def _values(document: Json, schema: Json) -> st.SearchStrategy[Json]:
    schema = dereferenced(document, schema)
    members = [member for key in UNION_KEYWORDS for member in schema.get(key, [])]
    if members:
        return st.one_of([st.deferred(lambda member=member: _values(document, member)) for member in members])
    if "const" in schema or "enum" in schema:
        return st.sampled_from([schema["const"]] if "const" in schema else schema["enum"])
    kinds = schema.get("type", [])
    of_kinds = [_of_kind(document, schema, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    return st.one_of(of_kinds) if of_kinds else _allowed(schema, _ANYTHING)


def _allowed(schema: Json, values: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return values.filter(jsonschema_rs.Draft202012Validator(schema).is_valid)


def _of_kind(document: Json, schema: Json, kind: str) -> st.SearchStrategy[Json]:
    match kind:
        case "object" if "properties" in schema and "allOf" in schema:
            # Conditions between fields: enough optional fields for them to hold.
            whole = {**schema, "components": document["components"]}
            return _objects(document, schema, 2).filter(jsonschema_rs.Draft202012Validator(whole).is_valid)
        case "object" if "properties" in schema:
            return _objects(document, schema, 0)
        case "object":
            keys = [*schema.get("then", {}).get("properties", {}), "unheard_of"]
            return _allowed(schema, st.dictionaries(st.sampled_from(keys), _ANYTHING, max_size=2))
        case "array":
            item = st.deferred(lambda: _values(document, schema.get("items", {})))
            sizes = st.sampled_from([size for size in _sizes(schema, "Items") if size <= 4])
            return sizes.flatmap(lambda size: st.lists(item, min_size=size, max_size=size))
        case "string":
            texts = ["x" * size for size in _sizes(schema, "Length")]
            return _allowed(schema, st.sampled_from(texts))
        case "integer" | "number":
            return _allowed(schema, st.sampled_from(_numbers(schema, kind)))
        case "boolean":
            return st.booleans()
    return st.none()


def _numbers(schema: Json, kind: str) -> list[Json]:
    bounds = [schema[key] for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum") if key in schema]
    step = 1 if kind == "integer" else 0.001
    near = [number for bound in bounds for number in (bound - step, bound, bound + step)]
    return [*near, 1] if kind == "integer" else [*near, 1, 0.5]


def _sizes(schema: Json, suffix: str) -> list[int]:
    least, most = schema.get(f"min{suffix}", 0), schema.get(f"max{suffix}", 2)
    return [size for size in (least, least + 1, most) if least <= size <= min(most, _LONGEST)]


def _objects(document: Json, schema: Json, least: int) -> st.SearchStrategy[Json]:
    properties, required = schema["properties"], schema.get("required", [])
    optional = [name for name in properties if name not in required]
    fields = {
        name: st.deferred(lambda field=field: _values(document, field))  # made once, when first needed
        for name, field in properties.items()
    }

    @st.composite
    def body(draw: st.DrawFn) -> Json:
        sizes = {"min_size": min(least, len(optional)), "max_size": 4}
        chosen = draw(st.lists(st.sampled_from(optional), unique=True, **sizes)) if optional else []
        made = {name: draw(fields[name]) for name in [*required, *chosen]}
        return {**made, "unheard_of": [1]} if draw(st.integers(0, 9)) == 0 else made

    return body()
