"""From the text a model generates to what the client reads of it: reasoning, content and tool calls.

Sans-IO: ``AnswerParser.feed(text)`` and ``finish`` give pieces. Streams and whole answers use the same code, and how
the text was cut makes no difference. ``machine`` walks tables of ``steps``; a family of models is one table in
``families``.
"""
