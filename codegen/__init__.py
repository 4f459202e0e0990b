"""The generator: everything that follows from `spec/` is written by `python -m codegen`, never by hand.

`spec/openapi.yaml` -> lint of the authoring profile -> models, rules, operations, defaults, served copies, reference.
`spec/config.schema.yaml` -> the settings table of `spec/docs/config.md` and the configuration models.
"""
