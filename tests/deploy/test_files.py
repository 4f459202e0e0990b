"""What the deployment files say of this server is true: commands, configs, ports, paths of probes, times."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mindserve.cli.arguments import RANK_VARIABLE, parse_arguments
from mindserve.config.faults import ConfigInvalid
from mindserve.config.load import LoadedConfig, load_config
from mindserve.config.overrides import Overrides
from mindserve_engine.vllm import node

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTRACT = yaml.safe_load((ROOT / "spec" / "openapi.yaml").read_text("utf-8"))
ENGINE_END_S = 10
"""What the engine gets to close after the drain (``cli.serving``)."""
ABSENT = {"ServerConfig.apiKeyFile", "BackendConfig.ModelDeployConfig.ModelConfig[0].modelWeightPath"}
"""Files of the machine that a config is made for."""


def manifests() -> list[dict[str, Any]]:
    names = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text("utf-8"))["resources"]
    assert {*names, "kustomization.yaml"} == {path.name for path in (DEPLOY / "kubernetes").iterdir()}
    return [one for name in names for one in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text("utf-8"))]


def pod(name: str) -> dict[str, Any]:
    found = next(one for one in manifests() if one["kind"] == "StatefulSet" and one["metadata"]["name"] == name)
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return content


def configs() -> dict[str, str]:
    texts = {path.name: path.read_text("utf-8") for path in (DEPLOY / "config").iterdir()}
    config_map = next(one for one in manifests() if one["kind"] == "ConfigMap")
    return texts | {"kubernetes": config_map["data"]["config.json"]}


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[[str], LoadedConfig]:
    """A config as it will be read where its key and its weights are."""

    def load(name: str) -> LoadedConfig:
        content = json.loads(configs()[name])
        (tmp_path / "keys").write_text("key\n")
        (tmp_path / "weights").mkdir(exist_ok=True)
        (tmp_path / "weights" / "config.json").write_text("{}")
        content["ServerConfig"]["apiKeyFile"] = "keys"
        content["BackendConfig"]["ModelDeployConfig"]["ModelConfig"][0]["modelWeightPath"] = "weights"
        path = tmp_path / "config.json"
        path.write_text(json.dumps(content))
        return load_config(path, Overrides(), {})

    return load


def commands() -> Iterator[tuple[str, list[str]]]:
    """Where it stands, and the words behind ``mindserve``."""
    for unit in (DEPLOY / "systemd").iterdir():
        for line in unit.read_text("utf-8").splitlines():
            name, _, command = line.partition("=")
            if name.startswith("Exec"):
                yield f"{unit.name} {name}", shlex.split(command.replace("%i", "1"))[1:]
    for name, service in compose()["services"].items():
        yield f"compose {name}", service["command"]
    for name in ("mindserve", "mindserve-node"):
        yield f"kubernetes {name}", pod(name)["containers"][0]["args"]
    dockerfile = (DEPLOY / "Dockerfile").read_text("utf-8")
    entry, words = (json.loads(found) for found in re.findall(r"^(?:ENTRYPOINT|CMD) (.*)", dockerfile, re.MULTILINE))
    assert entry == ["mindserve"]
    yield "Dockerfile", words


@pytest.mark.parametrize(("place", "words"), list(commands()))
def test_commands_are_those_of_the_command_line(place: str, words: list[str]) -> None:
    arguments = parse_arguments(words)
    assert arguments.command == ("check-config" if "Pre" in place else "node" if "node" in place else "serve")
    config = arguments.file if arguments.command == "check-config" else arguments.config
    assert str(config) == "/etc/mindserve/config.json"


@pytest.mark.parametrize("name", list(configs()))
def test_configs_can_be_served(loaded: Callable[[str], LoadedConfig], name: str, tmp_path: Path) -> None:
    config = loaded(name)
    assert not [note for note in config.notes if "no effect" in note or "not a key" in note]
    path = tmp_path / "as-it-is.json"
    path.write_text(configs()[name])
    with pytest.raises(ConfigInvalid) as refused:
        load_config(path, Overrides(), {})
    assert {fault.path for fault in refused.value.faults} == ABSENT


@pytest.mark.parametrize("name", list(configs()))
def test_times_are_long_enough_for_the_drain(loaded: Callable[[str], LoadedConfig], name: str) -> None:
    drain_s = loaded(name).config.server_config.drain_timeout + ENGINE_END_S
    serving, hook = pod("mindserve"), 0
    hook = serving["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert serving["terminationGracePeriodSeconds"] > drain_s + hook
    assert int(compose()["services"]["serve"]["stop_grace_period"].removesuffix("s")) > drain_s
    unit = (DEPLOY / "systemd" / "mindserve.service").read_text("utf-8")
    assert int(re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[0]) > drain_s
    for stop_s in (
        pod("mindserve-node")["terminationGracePeriodSeconds"],
        int(compose()["services"]["node"]["stop_grace_period"].removesuffix("s")),
    ):
        assert stop_s > node.GRACE_S


def test_probes_ask_what_the_contract_has(loaded: Callable[[str], LoadedConfig]) -> None:
    port = loaded("kubernetes").config.server_config.port
    container = pod("mindserve")["containers"][0]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"http": port, "join": loaded("kubernetes").config.backend_config.multi_nodes_infer_port}
    paths = {}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert ports[asked["port"]] == port
        paths[probe] = asked["path"]
    ready = "/v2/health/ready"
    assert paths == {"startupProbe": ready, "readinessProbe": ready, "livenessProbe": "/v2/health/live"}
    assert all("get" in CONTRACT["paths"][path] for path in paths.values())
    health = " ".join(compose()["services"]["serve"]["healthcheck"]["test"])
    assert f"http://127.0.0.1:{port}{ready}" in health
    assert f"EXPOSE {port}" in (DEPLOY / "Dockerfile").read_text("utf-8")


def test_the_parts_of_kubernetes_find_each_other(loaded: Callable[[str], LoadedConfig]) -> None:
    config = loaded("kubernetes").config
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in manifests()}
    sets = {name: by_name["StatefulSet", name] for name in ("mindserve", "mindserve-node")}
    pods = {
        f"{name}-{index + one['spec'].get('ordinals', {}).get('start', 0)}.{one['spec']['serviceName']}"
        for name, one in sets.items()
        for index in range(one["spec"]["replicas"])
    }
    assert {node.root for node in config.backend_config.vllm_config.nodes} == pods
    headless = by_name["Service", "mindserve-nodes"]["spec"]
    assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)
    labels = {name: one["spec"]["template"]["metadata"]["labels"] for name, one in sets.items()}
    assert all(headless["selector"].items() <= own.items() for own in labels.values())
    front = by_name["Service", "mindserve"]["spec"]
    assert [front["selector"].items() <= own.items() for own in labels.values()] == [True, False]
    assert front["ports"][0]["port"] == config.server_config.port
    policy = by_name["NetworkPolicy", "mindserve"]["spec"]["ingress"]
    assert policy[1]["ports"] == [{"protocol": "TCP", "port": config.server_config.port}]
    devices = sum(
        int(one["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["huawei.com/Ascend910"])
        * one["spec"]["replicas"]
        for one in sets.values()
    )
    assert devices == loaded("kubernetes").parallel.num_devices


def test_the_rank_of_a_further_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RANK_VARIABLE in compose()["services"]["node"]["environment"]
    names = {one["name"] for one in pod("mindserve-node")["containers"][0]["env"]}
    assert RANK_VARIABLE in names
    monkeypatch.setenv(RANK_VARIABLE, "3")
    assert parse_arguments(["node"]).rank == 3


def test_keys_are_files_where_the_config_looks_for_them() -> None:
    files = {name: json.loads(text)["ServerConfig"]["apiKeyFile"] for name, text in configs().items()}
    assert files["one.json"] == files["many.json"] == f"/run/secrets/{compose()['services']['serve']['secrets'][0]}"
    assert all(service["secrets"] == ["api-keys"] for service in compose()["services"].values())
    for name in ("mindserve", "mindserve-node"):  # each of them checks the whole config
        mount = next(one for one in pod(name)["containers"][0]["volumeMounts"] if one["name"] == "api-keys")
        assert files["kubernetes"] == f"{mount['mountPath']}/api-keys"
        assert {"secretName": "mindserve-api-keys"}.items() <= next(
            one["secret"].items() for one in pod(name)["volumes"] if one["name"] == "api-keys"
        )
    everything = "\n".join(path.read_text("utf-8") for path in DEPLOY.rglob("*") if path.is_file())
    assert "MINDSERVE_API_KEY" not in everything


@pytest.mark.parametrize("name", ["mindserve", "mindserve-node"])
def test_pods_have_no_more_rights_than_they_need(name: str) -> None:
    spec = pod(name)
    container = spec["containers"][0]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    rights = container["securityContext"]
    assert (rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"]) == (False, True)
    assert rights["capabilities"] == {"drop": ["ALL"]}
