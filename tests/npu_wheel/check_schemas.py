"""The published torch_npu registers what the engine calls and the emulated device defines (``make test-npu-schemas``).

The wheel is fetched from the package index before. Without a network this is skipped, and fails where CI is set."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.npu_emulation.kernels import KERNELS
from tests.npu_emulation.manifest import SCHEMAS, VERSION
from tests.npu_wheel.wheel import Registered, canonical, fetch, read, registered


@pytest.fixture(scope="module")
def wheel() -> Registered:
    try:
        return read(fetch())
    except subprocess.CalledProcessError:
        reason = f"torch-npu {VERSION} cannot be downloaded: its schemas are NOT checked"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


def check_the_two_rules_make_the_declared_the_registered(wheel: Registered) -> None:
    assert len(wheel.declared) > 400
    drifted = {name: schema for name, schema in wheel.declared.items() if schema not in wheel.compiled.get(name, ())}
    assert drifted == {}


@pytest.mark.parametrize("schema", SCHEMAS, ids=[schema.partition("(")[0] for schema in SCHEMAS])
def check_the_manifest_is_the_wheels(wheel: Registered, schema: str) -> None:
    name = schema.partition("(")[0]
    assert canonical(schema) == wheel.declared[name]
    assert canonical(schema) in wheel.compiled[name]


def check_the_device_has_the_kernels(wheel: Registered) -> None:
    assert KERNELS
    assert KERNELS - wheel.kernels == frozenset()


def check_the_rules_by_examples() -> None:
    assert registered("a(Tensor self, Tensor? other) -> Tensor") == "a(Tensor input, Tensor? other) -> Tensor"
    two = "a.out(Tensor self, *, Tensor(a!) x, Tensor(b!) y) -> (Tensor(a!), Tensor(b!))"
    assert canonical(registered(two)) == canonical("a.out(Tensor input, *, Tensor[] out) -> (Tensor, Tensor)")
