"""Rules between the keys of a config, and those between a key and the machine it is read on.

A bound of a single key is not here: it stands in ``spec/config.schema.yaml``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mindserve.config._generated import Config
from mindserve.config.api_keys import read_api_keys
from mindserve.config.faults import Fault
from mindserve.config.listen import TlsFiles, listen_addresses
from mindserve.config.media import media_root, network_of
from mindserve.config.overrides import the_model
from mindserve.config.paths import (
    adapter_path,
    api_key_file,
    file_problem,
    model_path_problem,
    model_place,
    template_text,
)
from mindserve.config.plugins import PluginParamsInvalid, plugin_types
from mindserve.config.vllm_rules import vllm_faults
from mindserve.errors import StartupError, shown

_SERVER: Final = "ServerConfig"
_MEDIA: Final = "MediaConfig"
_DEPLOY: Final = "BackendConfig.ModelDeployConfig"
_MODEL: Final = "BackendConfig.ModelDeployConfig.ModelConfig[0]"
_ADAPTER_CONFIG: Final = "adapter_config.json"
"""Of the folder that PEFT writes."""
_CPU: Final = "cpu"
WEIGHTS_PATH: Final = f"{_MODEL}.modelWeightPath"


class _Rule(msgspec.Struct, frozen=True):
    check: Callable[[Config, Path], Iterator[Fault]]
    reads: tuple[str, ...]
    """Beginnings of the paths it compares: it stays silent when one of them is at fault already."""


def check_rules(config: Config, base: Path, known: Sequence[Fault]) -> list[Fault]:
    """Faults beyond those ``known``. ``base`` is where relative paths start."""
    return [
        fault
        for rule in _RULES
        if not any(other.path.startswith(rule.reads) for other in known)
        for fault in rule.check(config, base)
    ]


def _addresses(config: Config, base: Path) -> Iterator[Fault]:
    server = config.server_config
    for key, address in (("ipAddress", server.ip_address), ("managementIpAddress", server.management_ip_address)):
        if address is None:
            continue
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            yield Fault(f"{_SERVER}.{key}", f"{shown(address)} is not an IPv4 or IPv6 address")
            continue
        if _is_everywhere(parsed) and not server.allow_all_zero_ip_listening:
            problem = f"{shown(address)} listens on every network: that takes allowAllZeroIpListening: true"
            yield Fault(f"{_SERVER}.{key}", problem)


def _is_everywhere(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address.is_unspecified or (mapped is not None and mapped.is_unspecified)


def _tls(config: Config, base: Path) -> Iterator[Fault]:
    seen: set[str] = set()
    for listen in listen_addresses(config, base):
        if listen.tls is not None and listen.tls.prefix not in seen:
            seen.add(listen.tls.prefix)
            yield from _tls_of(listen.tls)


def _tls_of(tls: TlsFiles) -> Iterator[Fault]:
    for key, file in (("Cert", tls.cert), ("Pk", tls.key)):
        if file is None:
            yield Fault(f"{_SERVER}.{tls.prefix}{key}", "is needed because httpsEnabled is true")
        elif problem := file_problem(file):
            yield Fault(f"{_SERVER}.{tls.prefix}{key}", problem)
    for key, files in (("CaFile", tls.ca), ("CrlFiles", tls.crl)):
        for number, file in enumerate(files):
            if problem := file_problem(file):
                yield Fault(f"{_SERVER}.{tls.prefix}{key}[{number}]", problem)
    if tls.crl and not tls.ca:
        yield Fault(
            f"{_SERVER}.{tls.prefix}CrlFiles", f"needs {tls.prefix}CaFile: without it clients show no certificate"
        )


def _names(config: Config, base: Path) -> Iterator[Fault]:
    model_name = the_model(config).model_name
    taken = {model_name}
    for number, module in enumerate(config.backend_config.model_deploy_config.lora_modules):
        path = f"{_DEPLOY}.LoraModules[{number}]"
        if module.name in taken:
            yield Fault(f"{path}.name", f"{shown(module.name)} is the name of another model")
        taken.add(module.name)
        if module.base_model_name is not None and model_name is not None and module.base_model_name != model_name:
            yield Fault(
                f"{path}.baseModelName", f"{shown(module.base_model_name)} is not served, {shown(model_name)} is"
            )


def _adapters(config: Config, base: Path) -> Iterator[Fault]:
    if the_model(config).backend_type == "scripted":  # which needs no weights
        return
    for number, module in enumerate(config.backend_config.model_deploy_config.lora_modules):
        problem = file_problem(adapter_path(module, base) / _ADAPTER_CONFIG)
        if problem is not None:
            yield Fault(f"{_DEPLOY}.LoraModules[{number}].path", problem)


def _memory(config: Config, base: Path) -> Iterator[Fault]:
    if the_model(config).npu_mem_size == 0:
        yield Fault(f"{_MODEL}.npuMemSize", "0 leaves no room for keys and values: -1 takes what there is")


def _devices(config: Config, base: Path) -> Iterator[Fault]:
    model, backend = the_model(config), config.backend_config
    if model.device == _CPU or model.backend_type == "vllm":  # the former has no numbers, the latter finds them itself
        return
    path, sets = "BackendConfig.npuDeviceIds", backend.npu_device_ids
    if sets and len(sets) != backend.model_instance_number:
        yield Fault(path, f"has {len(sets)} sets for modelInstanceNumber {backend.model_instance_number}")
    for number, ids in enumerate(sets):
        if len(ids) != 1:
            problem = f"has {len(ids)} devices: an instance of this engine runs on one"
            yield Fault(f"{path}[{number}]", problem)
        elif ids[0] < 0:
            yield Fault(f"{path}[{number}][0]", f"{ids[0]} is below 0")
        elif ids in sets[:number]:
            yield Fault(f"{path}[{number}][0]", f"{ids[0]} is the device of another instance")


def _plugins(config: Config, base: Path) -> Iterator[Fault]:
    try:
        plugin_types(the_model(config).plugin_params)
    except PluginParamsInvalid as error:
        yield Fault(f"{_MODEL}.plugin_params", str(error))


def _templates(config: Config, base: Path) -> Iterator[Fault]:
    for name, settings in the_model(config).models.items():
        text = settings.chat_template
        if text is not None and text.endswith(".jinja") and (problem := file_problem(Path(template_text(text, base)))):
            yield Fault(f"{_MODEL}.models.{name}.chat_template", problem)


def _api_keys(config: Config, base: Path) -> Iterator[Fault]:
    try:
        read_api_keys(api_key_file(config, base), {})
    except StartupError as error:
        yield Fault(f"{_SERVER}.apiKeyFile", str(error))


def _media(config: Config, base: Path) -> Iterator[Fault]:
    media = config.media_config
    if not media_root(media, base).strip("/"):
        yield Fault(f"{_MEDIA}.mediaRoot", f"{shown(media.media_root)} is all of this machine's files")
    if media.max_media_in_flight < media.max_media_total:
        problem = f"{media.max_media_in_flight} is less than maxMediaTotal, {media.max_media_total}"
        yield Fault(f"{_MEDIA}.maxMediaInFlight", problem)
    for number, text in enumerate(media.allowed_addresses):
        if network_of(text.root) is None:
            problem = f"{shown(text.root)} is not a network such as 10.1.0.0/16, without host bits"
            yield Fault(f"{_MEDIA}.allowedAddresses[{number}]", problem)


def _weights(config: Config, base: Path) -> Iterator[Fault]:
    model = the_model(config)
    place = model_place(config, base)
    problem = model_path_problem(place, model.backend_type) if isinstance(place, Path) else None
    if not isinstance(place, Path) and model.backend_type == "scripted":
        problem = "the scripted engine needs a script here"
    if problem is not None:
        yield Fault(WEIGHTS_PATH, problem)


_RULES: Final = (
    _Rule(
        _addresses,
        (f"{_SERVER}.ipAddress", f"{_SERVER}.managementIpAddress", f"{_SERVER}.allowAllZeroIpListening"),
    ),
    _Rule(_tls, (f"{_SERVER}.https", f"{_SERVER}.tls", f"{_SERVER}.management", f"{_SERVER}.metrics")),
    _Rule(_api_keys, (f"{_SERVER}.apiKeyFile",)),
    _Rule(_names, (f"{_DEPLOY}.LoraModules", f"{_MODEL}.modelName")),
    _Rule(_adapters, (f"{_DEPLOY}.LoraModules", f"{_MODEL}.backendType")),
    _Rule(_memory, (f"{_MODEL}.npuMemSize",)),
    _Rule(
        _devices,
        (
            "BackendConfig.npuDeviceIds",
            "BackendConfig.modelInstanceNumber",
            f"{_MODEL}.device",
            f"{_MODEL}.backendType",
        ),
    ),
    _Rule(_plugins, (f"{_MODEL}.plugin_params",)),
    _Rule(_templates, (f"{_MODEL}.models",)),
    _Rule(_media, (f"{_MEDIA}.mediaRoot", f"{_MEDIA}.maxMedia", f"{_MEDIA}.allowedAddresses")),
    _Rule(_weights, (WEIGHTS_PATH, f"{_MODEL}.backendType")),
    _Rule(vllm_faults, ("BackendConfig.VllmConfig", "BackendConfig.modelInstanceNumber", _MODEL)),
)
