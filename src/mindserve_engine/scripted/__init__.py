"""An engine that replays a script: exact transcripts, clients' tests and front-end benchmarks, without a model."""
