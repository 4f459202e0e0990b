"""What a request binds the model to, as a grammar for the engine: a form of answer, a call of a tool, strict arguments.

``schema`` makes JSON Schemas ready and finds those that no finite text fits, ``lark`` writes grammars, ``writers`` know
how each family of models writes calls, ``build`` puts it all together.
"""
