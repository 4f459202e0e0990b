"""Loaded by schemathesis: nearly every body asks for a stream; few of those that are generated do."""

from tests.conformance.fuzzing.bodies import streamed
from tests.conformance.fuzzing.hooks import install

install(streamed)
