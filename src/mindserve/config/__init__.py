"""The server's set-up: MindIE's ``config.json``, checked against ``spec/config.schema.yaml``, lowered to settings."""
