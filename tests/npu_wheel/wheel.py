"""What the published wheel of torch_npu registers, read without importing it: from the yaml that its code was generated
from, and from the strings of its library. Neither is the other: two rules lie between them (``registered``)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
import yaml

from mindserve_engine.user_cache import cache_folder
from tests.npu_emulation.manifest import VERSION

_YAML: Final = "torch_npu/csrc/aten/npu_native_functions_by_codegen.yaml"
_LIBRARY: Final = "torch_npu/lib/libtorch_npu.so"
_STRING: Final = re.compile(rb"\x00([A-Za-z_]\w*(?:\.\w+)?\([ -~]*\) ?-> ?[ -~]+)\x00")
_SELF: Final = re.compile(r"(\bTensor(?:\([a-z]!\))?\??(?:\[\])?) self\b")
_OUT: Final = re.compile(r", Tensor\([a-z]!\) \w+(?=[,)])")


@dataclass(frozen=True, slots=True)
class Registered:
    """Operators by name, each in the dispatcher's own spelling."""

    declared: dict[str, str]
    """Of the yaml, brought into the registered form."""
    compiled: dict[str, set[str]]
    """Of the library."""
    kernels: frozenset[str]
    """Operators of torch that have a kernel for the device, without overloads."""


def fetch() -> Path:
    """The wheel in the user's cache, downloaded when it is not there. Raises ``CalledProcessError``."""
    folder = cache_folder(os.environ) / "torch-npu"
    pattern = f"torch_npu-{VERSION}-cp311-*_x86_64.whl"
    if not list(folder.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--python-version", "3.11", "--platform", "manylinux_2_28_x86_64", "--dest", str(folder)]
        subprocess.run([*command, f"torch-npu=={VERSION}"], check=True)
    return next(folder.glob(pattern))


def read(wheel: Path) -> Registered:
    with zipfile.ZipFile(wheel) as archive:
        content = yaml.safe_load(archive.read(_YAML))
        library = archive.read(_LIBRARY)
    custom = [entry["func"] if isinstance(entry, dict) else entry for entry in content["custom"]]
    supported = [entry["func"] if isinstance(entry, dict) else entry for entry in content["supported"]]
    declared = {_name(one): canonical(registered(one)) for one in custom}
    compiled: dict[str, set[str]] = {}
    for match in _STRING.finditer(library):
        text = match.group(1).decode()
        if _name(text) in declared:
            compiled.setdefault(_name(text), set()).add(canonical(text))
    kernels = frozenset(_name(one).partition(".")[0].removesuffix("_") for one in supported)
    return Registered(declared, compiled, kernels)


def registered(declared: str) -> str:
    """The form that the dispatcher knows: ``self`` is called ``input``, several out arguments are one list."""
    text = _SELF.sub(r"\1 input", declared)
    head, _, result = text.rpartition("->")
    outs = _OUT.findall(head)
    if not (_name(text).endswith(".out") and len(outs) > 1):
        return text
    for out in outs:
        head = head.replace(out, "")
    head = head.rstrip().removesuffix(")") + ", Tensor[] out)"
    return f"{head} -> ({', '.join(['Tensor'] * result.count('Tensor'))})"


def canonical(schema: str) -> str:
    """As torch itself would write it."""
    return str(torch._C.parse_schema(f"npu::{schema}"))


def _name(schema: str) -> str:
    return schema.partition("(")[0]
