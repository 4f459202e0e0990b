"""Loaded by schemathesis: bodies as they were generated, but for a third that asks for JSON."""

from tests.conformance.fuzzing.bodies import formed
from tests.conformance.fuzzing.hooks import install

install(formed)
