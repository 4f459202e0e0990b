"""The command line: set-up, the model file, sockets, TLS, signals. The only place that picks an engine."""
