"""The oracle: what must hold of every answer, as invariants with ids.

A JSON Schema says the shapes; the modules here say what a schema cannot: ``http`` (any response, refusals),
``whole`` (a JSON answer), ``stream`` (events), ``tokens`` (counts and log-probabilities of both), ``tools`` (calls of
functions), ``openai_wire`` (the ``openai`` dialect alone), ``golden`` (transcripts) and ``named`` (what single
cases ask for).
"""
