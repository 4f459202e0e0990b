"""The mindserve engine package: continuous batching over one small interface. Usable without the server."""
