"""All cases, in the order of the report."""

from __future__ import annotations

import fnmatch
from collections import Counter
from functools import cache

from conformance.capabilities import capability_names
from conformance.case import Case
from conformance.derive import derived_cases
from conformance.dialects import VLLM
from conformance.feature_cases import feature_cases
from conformance.files import SuiteError
from conformance.golden_cases import golden_cases
from conformance.judge import THEMES
from conformance.load import load_cases
from conformance.oracle.registry import INVARIANTS
from conformance.rule_cases import rule_pair_cases


@cache
def all_cases(dialect: str = VLLM) -> tuple[Case, ...]:
    """Those that hold in ``dialect``, written and derived. Raises ``SuiteError``."""
    assert THEMES
    golden = golden_cases() if dialect == VLLM else ()
    cases = (
        *load_cases(dialect), *feature_cases(), *golden, *derived_cases(dialect), *rule_pair_cases(dialect),
    )  # fmt: skip
    repeated = [name for name, count in Counter(case.id for case in cases).items() if count > 1]
    if repeated:
        raise SuiteError(f"ids of cases are not unique: {', '.join(repeated)}")
    for case in cases:
        unknown = [check.id for check in case.expect.checks if check.id not in INVARIANTS]
        if unknown:
            raise SuiteError(f"{case.id}: there is no invariant {unknown[0]}")
        if case.needs - capability_names():
            raise SuiteError(f"{case.id}: there is no capability {min(case.needs - capability_names())}")
    return cases


def select(only: frozenset[str] | None, dialect: str = VLLM) -> tuple[Case, ...]:
    """The cases of ``dialect`` that ``only`` names by id or glob pattern. Raises ``SuiteError`` for a name that fits
    none."""
    cases = all_cases(dialect)
    if only is None:
        return cases
    idle = [name for name in sorted(only) if not any(fnmatch.fnmatchcase(case.id, name) for case in cases)]
    if idle:
        raise SuiteError(f"no case is called {', '.join(idle)}")
    return tuple(case for case in cases if any(fnmatch.fnmatchcase(case.id, name) for name in only))
