"""Entry point of the ``mindserve`` command."""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

from mindserve.cli.arguments import parse_arguments
from mindserve.cli.commands import COMMANDS
from mindserve.cli.ending import EXIT_ENGINE_LOST
from mindserve.errors import EngineDidNotStart, StartupError

EXIT_CANNOT_START: Final = 2


def main(words: list[str] | None = None) -> int:
    """Run one command and return the exit code: 0, or 1 (the engine did not start) or 2 with the reason on
    standard error."""
    arguments = parse_arguments(words)
    try:
        return COMMANDS[arguments.command](arguments)
    except StartupError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the command line talks to people
        return EXIT_ENGINE_LOST if isinstance(error, EngineDidNotStart) else EXIT_CANNOT_START
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of `mindserve spec | head` has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it flushes at exit
        return 0
