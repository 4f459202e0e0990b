"""The command line."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import httpx2
from rich.console import Console

from conformance.catalogue import all_cases, select
from conformance.contract import load_contract
from conformance.coverage import coverage
from conformance.dialects import DIALECTS, VLLM
from conformance.files import SuiteError
from conformance.profile import Profile, load_profile
from conformance.report.console import show
from conformance.report.files import write_reports
from conformance.results import Exit
from conformance.run import run_suite
from conformance.script import script_text
from conformance.settings import Settings

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A header's name, as RFC 9110 has it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 every MUST passed, 1 a MUST failed, 2 the suite could not tell (its own fault, no server, bad
    arguments)."""
    parsed = _parser().parse_args(arguments)
    try:
        return int(parsed.command(parsed))
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the command line talks to people
        return Exit.COULD_NOT_TEST
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever reads the list has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:
        traceback.print_exc()
        return Exit.COULD_NOT_TEST


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="conformance", description="Tells whether a server keeps the contract.")
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="ask a server every case")
    run.set_defaults(command=_run)
    run.add_argument("--base-url", required=True, metavar="URL", help="http://host:port, without a path")
    run.add_argument("--model", required=True, metavar="NAME", help="the base model's name in requests")
    run.add_argument("--profile", metavar="FILE", help="what is known of the server; also the name of a shipped one")
    run.add_argument("--out", type=Path, metavar="DIR", help="where results.yaml, junit.xml and report.html go")
    run.add_argument(
        "--only", action="append", metavar="ID", help="a case, or a pattern such as 'stream.*'; repeatable"
    )
    run.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="sent along; kept out of reports"
    )
    run.add_argument("--rate", type=_positive, metavar="N", help="most requests a second")
    run.add_argument("--concurrency", type=_count, metavar="N", help="most requests at a time (4)")
    run.add_argument("--request-timeout", type=_positive, metavar="S", help="seconds for one request (60)")
    run.add_argument("--total-timeout", type=_positive, metavar="S", help="seconds for the run (3600)")
    run.add_argument("--insecure", action="store_true", help="take any TLS certificate")
    listing = commands.add_parser("list", help="print the cases")
    listing.set_defaults(command=_list)
    listing.add_argument("only", nargs="*", metavar="ID", help="cases or patterns")
    listing.add_argument("--dialect", choices=DIALECTS, default=VLLM, help=f"whose cases ({VLLM})")
    covering = commands.add_parser("coverage", help="what of the contract has no case; exits 1 if there is any")
    covering.set_defaults(command=_coverage)
    covering.add_argument("--all", action="store_true", help="print what has a case, too")
    script = commands.add_parser("script", help="print what a scripted engine has to say for the cases that need one")
    script.set_defaults(command=_script)
    return parser


def _run(parsed: argparse.Namespace) -> int:
    settings = settings_of(parsed)
    console = Console()
    report = asyncio.run(run_suite(settings))
    show(report, console)
    if parsed.out is not None:
        write_reports(report, parsed.out)
        console.print(f"reports: {parsed.out}")
    return report.exit_code


def settings_of(parsed: argparse.Namespace) -> Settings:
    """The settings of a ``run``. Raises ``SuiteError``."""
    _check_url(parsed.base_url)
    profile = Profile() if parsed.profile is None else load_profile(parsed.profile)
    return Settings(
        base_url=parsed.base_url.rstrip("/"),
        model=parsed.model,
        only=None if parsed.only is None else frozenset(parsed.only),
        profile=profile,
        headers=dict(_header(one) for one in parsed.header),
        rate=parsed.rate,
        concurrency=parsed.concurrency,
        request_timeout_s=parsed.request_timeout,
        total_timeout_s=parsed.total_timeout,
        verify=not parsed.insecure,
    )


def _list(parsed: argparse.Namespace) -> int:
    for case in select(frozenset(parsed.only) or None, parsed.dialect):
        lines = ",".join(map(str, case.lines)) or "-"
        needs = f" needs {', '.join(sorted(case.needs))}" if case.needs else ""
        print(f"{case.id}  {case.level}  {lines}  {case.says}{needs}")  # noqa: T201 - what was asked for
    return Exit.CONFORMS


def _coverage(parsed: argparse.Namespace) -> int:
    num_gaps = 0
    for dialect in DIALECTS:
        found = coverage(load_contract(dialect), all_cases(dialect))
        if parsed.all:
            for line, cases in found.lines.items():
                print(f"line {line}: {len(cases)} cases, {', '.join(cases[:4])}")  # noqa: T201 - what was asked for
            for name, by in (*found.fields.items(), *found.readings.items()):
                print(f"{dialect}: {name}: {', '.join(by[:6])}")  # noqa: T201 - what was asked for
        for gap in found.gaps:
            print(f"{dialect}: {gap}")  # noqa: T201 - what was asked for
        words = f"{len(found.lines)} lines, {len(found.fields)} fields of answers, {len(found.rules)} rules"
        words += f", {len(found.readings)} readings of dialects"
        print(f"{dialect}: {words}: {len(found.gaps)} without a case")  # noqa: T201 - what was asked for
        num_gaps += len(found.gaps)
    return Exit.FAILED if num_gaps else Exit.CONFORMS


def _script(parsed: argparse.Namespace) -> int:
    print(script_text(), end="")  # noqa: T201 - what was asked for
    return Exit.CONFORMS


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not _TOKEN.fullmatch(name.strip()):
        raise SuiteError(f"--header must be NAME:VALUE, got a name {name[:40]!r}")
    if not value.strip().isascii() or not value.strip().isprintable():
        raise SuiteError(f"--header {name.strip()}: the value must be printable ASCII")
    return name.strip(), value.strip()


def _check_url(text: str) -> None:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise SuiteError(f"--base-url: {error}") from error
    if url.userinfo:
        raise SuiteError("--base-url must hold no password: reports would show it; use --header Authorization:...")
    if url.scheme not in ("http", "https") or not url.host or url.query or url.path not in ("", "/"):
        raise SuiteError(f"--base-url must be http://host:port or https://host:port, got {text!r}")


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 256:
        raise argparse.ArgumentTypeError("must be from 1 to 256")
    return value
