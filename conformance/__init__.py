"""Conformance cases: what a server of this API must accept and refuse. Imports nothing of ``src``."""
