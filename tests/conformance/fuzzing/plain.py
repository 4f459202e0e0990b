"""Loaded by schemathesis: bodies as they were generated."""

from tests.conformance.fuzzing.hooks import install

install(lambda body: body)
