"""The mindserve engine package: continuous batching over one small interface. Usable without the server."""

from mindserve_engine import autoload as autoload
