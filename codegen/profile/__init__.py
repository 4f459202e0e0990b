"""The authoring profile of `spec/openapi.yaml`: what may be written so that nothing is lost on the way to code.

Comparisons of fields (A9) are x-rules and nothing else, so there is nothing to lint about them.
"""

from __future__ import annotations

from codegen.diagnostics import Diagnostic
from codegen.document import JsonObject
from codegen.profile import (
    constant_table,
    dialect_marks,
    keywords,
    paths,
    rule_table,
    shapes,
    structure,
    traceability,
    unions,
    values,
)
from codegen.profile.traceability import Vocabulary
from codegen.sites import component_sites, directions

CODES = {
    "A1": "a nested object with properties is a component",
    "A2": "nullability is written in the type, and listed values agree with it",
    "A3": "objects in a union are told apart by a discriminator and constants",
    "A4": "constraints stand on the members of a union",
    "A5": "a free-form map has no properties and is no component",
    "A6": "an integer bound beyond int64 names its rule",
    "A7": "additionalProperties: false names its rule",
    "A8": "a condition names its rule",
    "A10": "a response has no defaults",
    "A11": "a stream is described by its event object",
    "A12": "a field and a rule name their source",
    "bound": "a bound is a number",
    "constant": "a constant is complete and a whole number",
    "dialect": "what a keyword is in another dialect is not what it is in this",
    "default": "a default is valid for its own schema",
    "extension": "an x- key is described",
    "interpretation": "a reading is a numbered one",
    "lost": "the models carry the keyword, or a rule stands for it",
    "name": "a component's name is a class name",
    "operation": "an operation has an id of its own and answers",
    "pattern": "a pattern is a Python pattern",
    "reference": "a reference leads somewhere in the document",
    "required": "a required field exists",
    "structure": "the document is OpenAPI 3.1, its schemas are JSON Schemas",
    "rule": "a rule is complete, about a field that exists, and can be told",
    "type": "a schema has a type",
    "union": "msgspec can tell the members of a union apart and check them",
}
"""What each code of a diagnostic stands for."""


def lint(document: JsonObject, words: Vocabulary) -> list[Diagnostic]:
    """Every fault of `document`; an empty list means that it can be generated from without loss.

    Of a document that is no OpenAPI document only that is told.
    """
    broken = [*structure.check_openapi(document)]
    if broken:
        return sorted(set(broken))
    faults = [*paths.check(document), *rule_table.check(document, words), *constant_table.check(document, words)]
    faults += traceability.check_extensions(document, words)
    faults += dialect_marks.check(document)
    ways = directions(document)
    for site in component_sites(document):
        if not site.component.isidentifier() or not site.component[:1].isupper():
            faults.append(Diagnostic(site.pointer, "name", "a component's name is a class name"))
        sent_by_server = ways.only_sent_by_server(site.component)
        in_response = site.component in ways.responses
        faults += keywords.check(site, sent_by_server=sent_by_server)
        faults += shapes.check(site, sent_by_server=sent_by_server)
        faults += unions.check(site, document)
        faults += values.check(site, document, sent_by_server=sent_by_server, in_response=in_response)
        is_on_the_wire = in_response or site.component in ways.requests
        faults += traceability.check_site(site, is_on_the_wire=is_on_the_wire)
    return sorted(set(faults))
