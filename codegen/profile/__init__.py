"""The authoring profile of `spec/openapi.yaml`: what may be written so that nothing is lost on the way to code.

Codes: A1 nested objects are components · A2 nullability by type array · A3 object unions are tagged · A4 constraints
stand on union members · A5 free-form maps have no properties · A6 integers beyond int64 need a rule · A7
`additionalProperties: false` needs a rule · A8 conditions need a rule · A10 no defaults in responses · A11 a stream is
described by its event object · A12 every field names its source · `lost` anything else the generator would drop.
Comparisons of fields (A9) are x-rules and nothing else, so there is nothing to lint.
"""

from __future__ import annotations

from codegen.diagnostics import Diagnostic
from codegen.document import JsonObject
from codegen.profile import keywords, paths, rule_table, shapes, traceability, unions, values
from codegen.profile.traceability import Vocabulary
from codegen.sites import component_sites, directions


def lint(document: JsonObject, words: Vocabulary) -> list[Diagnostic]:
    """Every fault of `document`; an empty list means that it can be generated from without loss."""
    faults = [*paths.check(document), *rule_table.check(document, words)]
    faults += traceability.check_extensions(document, words)
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
