"""The systemd units keep systemd's grammar: what can be told where there is no systemd (with one, see test_linters)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

UNITS: Final = sorted((Path(__file__).parents[2] / "deploy" / "systemd").iterdir())
_SPAN: Final = re.compile(r"infinity|\d+(ms|s|min|h)?")
_BOOLEANS: Final = ("yes", "no")
_SIGNED_SET: Final = re.compile(r"~?[@\w-]+( [@\w-]+)*|")


class Statement(NamedTuple):
    section: str
    name: str
    value: str


def _one_of(*values: str) -> Callable[[str], bool]:
    return lambda value: value in values


def _is_command(value: str) -> bool:
    return shlex.split(value)[0].startswith("/")


def _nothing(value: str) -> bool:
    return False


def _has(pattern: str) -> Callable[[str], bool]:
    return lambda value: re.fullmatch(pattern, value) is not None


_boolean, _span = _one_of(*_BOOLEANS), _has(_SPAN.pattern)
_words, _folder, _set = _has(r"\S+( \S+)*"), _has(r"[\w-]+"), _has(_SIGNED_SET.pattern)
KNOWN: Final[dict[str, dict[str, Callable[[str], bool]]]] = {
    "Unit": {
        "Description": bool,
        "Documentation": _has(r"https://\S+"),
        "Wants": _has(r"[\w-]+\.target"),
        "After": _has(r"[\w-]+\.target"),
        "StartLimitIntervalSec": _span,
        "StartLimitBurst": str.isdecimal,
    },
    "Service": {
        **dict.fromkeys(("ExecStart", "ExecStartPre"), _is_command),
        **dict.fromkeys(("RestartSec", "TimeoutStopSec", "TimeoutStartSec"), _span),
        **dict.fromkeys(("User", "Group", "StateDirectory", "CacheDirectory"), _folder),
        **dict.fromkeys(
            (
                *("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateUsers", "ProtectClock"),
                *("ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules"),
                *("ProtectKernelTunables", "LockPersonality", "RestrictNamespaces", "RestrictRealtime"),
                *("RestrictSUIDSGID", "RemoveIPC"),
            ),
            _boolean,
        ),
        **dict.fromkeys(("CapabilityBoundingSet", "AmbientCapabilities", "SystemCallFilter"), _set),
        "Type": _one_of("simple", "exec", "notify"),
        "Restart": _one_of("no", "on-failure", "always"),
        "RestartPreventExitStatus": str.isdecimal,
        "KillMode": _one_of("control-group", "mixed"),
        "LoadCredential": _has(r"[\w-]+:/\S+"),
        "Environment": _has(r"\w+=\S+( \w+=\S+)*"),
        "WorkingDirectory": _has(r"/\S*"),
        "LimitNOFILE": str.isdecimal,
        "LimitMEMLOCK": _one_of("infinity"),
        "UMask": _has(r"0[0-7]{3}"),
        "ProtectSystem": _one_of("full", "strict"),
        "ProtectProc": _one_of("invisible", "default"),
        "RestrictAddressFamilies": _words,
        "SystemCallArchitectures": _one_of("native"),
        "SystemCallErrorNumber": _has(r"E[A-Z]+"),
    },
    "Install": {"WantedBy": _has(r"[\w-]+\.target")},
}
"""What a unit of ours may say, by section: what stands under another one, or is misspelt, systemd passes over."""


def statements(text: str) -> Iterator[Statement]:
    """Raises ``ValueError`` for a line that is neither a section, a comment nor a statement."""
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        if header := re.fullmatch(r"\[(\w+)\]", line):
            section = header[1]
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.isalnum() or value != value.strip():
            raise ValueError(f"line {number}: {line}")
        yield Statement(section, name, value)


def faults(text: str) -> list[Statement]:
    """Statements that systemd does not know in their section, or whose value is none of theirs."""
    return [one for one in statements(text) if not KNOWN.get(one.section, {}).get(one.name, _nothing)(one.value)]


@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_units_say_what_systemd_knows_where_it_looks_for_it(unit: Path) -> None:
    text = unit.read_text("utf-8")
    assert faults(text) == []
    once = [(one.section, one.name) for one in statements(text) if one.name != "SystemCallFilter"]
    assert len(once) == len(set(once))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("Restart=", "Restrat="),
        ("ProtectHome=yes", "ProtectHome=yess"),
        ("TimeoutStopSec=", "TimeoutStopSec=x"),
        ("ExecStart=/opt/", "ExecStart=opt/"),
        ("[Install]\n", "[Instal]\n"),
        ("Type=exec", "Type=execute"),
        ("[Service]\n", ""),
    ],
)
def test_faults_are_found(right: str, wrong: str) -> None:
    for unit in UNITS:
        text = unit.read_text("utf-8")
        assert right in text
        assert faults(text.replace(right, wrong, 1)) != []


@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_a_unit_is_whole(unit: Path) -> None:
    said = {one.name: one.value for one in statements(unit.read_text("utf-8"))}
    assert {"ExecStart", "Restart", "TimeoutStopSec", "WantedBy", "User"} <= said.keys()
    hardened = ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictNamespaces")
    assert {said[name] for name in hardened} == {"yes"}
    assert (said["ProtectSystem"], said["CapabilityBoundingSet"]) == ("strict", "")
