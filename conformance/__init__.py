"""The conformance suite: tells whether any server of this API keeps the contract. Imports nothing of ``src``.

``python -m conformance run --base-url URL --model NAME`` from a shell, ``conformance.run.run_suite`` from a program.
"""
