"""The part of a spec that becomes models: schemas without what models do not carry."""

from __future__ import annotations

from codegen.document import JsonObject
from codegen.profile.keywords import RULE_BACKED, is_conditional
from codegen.sites import UNION_KEYWORDS

# Texts of fields stand in the reference, not in every model. Defaults stand in `defaults.py`: in a model an absent
# field stays absent (UNSET), because the document gives "not set" and "set to the default" different meanings.
_DROPPED = RULE_BACKED | {"default", "title", "example", "examples", "externalDocs", "$comment", "deprecated"}


def models_document(document: JsonObject, *, texts: bool = False) -> JsonObject:
    """An OpenAPI document with the component schemas alone, ready for the model generator; `texts`: of fields too."""
    schemas = document.get("components", {}).get("schemas", {})
    return {
        "openapi": document["openapi"],
        "info": {"title": document["info"]["title"], "version": document["info"]["version"]},
        "paths": {},
        "components": {"schemas": {name: _component(schema, texts) for name, schema in schemas.items()}},
    }


def _component(schema: JsonObject, texts: bool) -> JsonObject:
    view = _view(schema, texts)
    if "description" in schema:
        view = {"description": schema["description"], **view}
    return view


def _view(schema: JsonObject, texts: bool) -> JsonObject:
    view: JsonObject = {}
    for key, value in schema.items():
        if key in _DROPPED or key == "description" or key.startswith("x-"):
            continue
        if key == "properties":
            view[key] = {name: _property(item, texts) for name, item in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            view[key] = _view(value, texts)
        elif key in (*UNION_KEYWORDS, "allOf"):
            parts = [_view(item, texts) for item in value if not is_conditional(item)]
            view |= {key: parts} if parts else {}
        else:
            view[key] = value
    return view


def _property(schema: JsonObject, texts: bool) -> JsonObject:
    text = {"description": schema["description"]} if texts and "description" in schema else {}
    return {**text, **_view(schema, texts)}
