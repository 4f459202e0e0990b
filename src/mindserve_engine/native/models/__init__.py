"""Decoders that run over the paged cache."""
