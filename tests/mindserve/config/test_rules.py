from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindserve.config.overrides import Overrides

FaultsOf = Callable[..., dict[str, str]]
DEPLOY = "BackendConfig.ModelDeployConfig"
MODEL = f"{DEPLOY}.ModelConfig[0]"


def server(**values: object) -> dict[str, object]:
    return {"ServerConfig": values}


def model(**values: object) -> dict[str, object]:
    return {"BackendConfig": {"ModelDeployConfig": {"ModelConfig": [values]}}}


def test_an_empty_config_and_a_full_one_of_mindie_have_no_faults(
    faults_of: FaultsOf, full_mindie: dict[str, Any]
) -> None:
    assert faults_of({}) == {}
    assert faults_of(full_mindie) == {}


@pytest.mark.parametrize(
    ("backend", "values", "path", "problem"),
    [
        ({}, {"worldSize": 4}, f"{MODEL}.worldSize", "4: the native engine computes on one device"),
        ({"npuDeviceIds": [[0, 1]]}, {}, "BackendConfig.npuDeviceIds[0]", "has 2 devices"),
        ({"npuDeviceIds": [[]]}, {}, "BackendConfig.npuDeviceIds[0]", "has 0 devices"),
        ({"npuDeviceIds": [[0], [1]]}, {}, "BackendConfig.npuDeviceIds", "has 2 sets for modelInstanceNumber 1"),
        ({"npuDeviceIds": [[-1]]}, {}, "BackendConfig.npuDeviceIds[0][0]", "-1 is below 0"),
        (
            {"npuDeviceIds": [[2], [2]], "modelInstanceNumber": 2},
            {},
            "BackendConfig.npuDeviceIds[1][0]",
            "2 is the device of another instance",
        ),
    ],
)
def test_an_instance_runs_on_one_device_of_its_own(
    faults_of: FaultsOf, backend: dict[str, Any], values: dict[str, Any], path: str, problem: str
) -> None:
    def config(device: str) -> dict[str, Any]:
        deploy = {"ModelDeployConfig": {"ModelConfig": [{"device": device, **values}]}}
        return {"BackendConfig": {**backend, **deploy}}

    found = faults_of(config("npu"))
    assert list(found) == [path]
    assert found[path].startswith(problem)
    assert faults_of(config("cpu")) == {}, "MindIE's own numbers do no harm on the CPU"


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1:1025", "", "300.1.1.1", "[::1]"])
@pytest.mark.parametrize("key", ["ipAddress", "managementIpAddress"])
def test_an_address_is_an_ip_address(faults_of: FaultsOf, key: str, address: str) -> None:
    assert faults_of(server(**{key: address})) == {
        f"ServerConfig.{key}": f'"{address}" is not an IPv4 or IPv6 address',
    }


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "::ffff:0.0.0.0"])
def test_listening_everywhere_must_be_allowed(faults_of: FaultsOf, address: str) -> None:
    assert "allowAllZeroIpListening" in faults_of(server(ipAddress=address))["ServerConfig.ipAddress"]
    assert faults_of(server(ipAddress=address, allowAllZeroIpListening=True)) == {}


def test_an_address_from_a_variable_is_told_by_the_variables_name(faults_of: FaultsOf) -> None:
    environ = {"MIES_CONTAINER_IP": "0.0.0.0", "MIES_CONTAINER_MANAGEMENT_IP": "nowhere"}
    assert set(faults_of({}, environ=environ)) == {"MIES_CONTAINER_IP", "MIES_CONTAINER_MANAGEMENT_IP"}


def test_https_needs_files_that_exist(faults_of: FaultsOf, tmp_path: Path) -> None:
    assert set(faults_of(server(httpsEnabled=True))) == {"ServerConfig.tlsCert", "ServerConfig.tlsPk"}
    (tmp_path / "cert.pem").write_text("")
    content = server(
        httpsEnabled=True,
        tlsCert="cert.pem",
        tlsPk="key.pem",
        tlsCaPath="ca",
        tlsCaFile=["a.pem", "b.pem"],
        tlsCrlFiles=["crl.pem"],
    )
    assert faults_of(content) == {
        "ServerConfig.tlsPk": f"there is no file {tmp_path / 'key.pem'}",
        "ServerConfig.tlsCaFile[0]": f"there is no file {tmp_path / 'ca' / 'a.pem'}",
        "ServerConfig.tlsCaFile[1]": f"there is no file {tmp_path / 'ca' / 'b.pem'}",
        "ServerConfig.tlsCrlFiles[0]": f"there is no file {tmp_path / 'crl.pem'}",
    }


def test_revoked_certificates_make_no_sense_without_an_authority(faults_of: FaultsOf, tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem", "crl.pem"):
        (tmp_path / name).write_text("")
    content = server(httpsEnabled=True, tlsCert="cert.pem", tlsPk="key.pem", tlsCrlFiles=["crl.pem"])
    assert "needs tlsCaFile" in faults_of(content)["ServerConfig.tlsCrlFiles"]


def test_tls_files_of_a_further_port_are_told_by_its_own_keys(faults_of: FaultsOf, tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("")
    files = {"tlsCert": "cert.pem", "tlsPk": "key.pem", "managementTlsCert": "m.pem", "managementTlsPk": "key.pem"}
    content = server(httpsEnabled=True, managementPort=1026, **files)
    assert faults_of(content) == {"ServerConfig.managementTlsCert": f"there is no file {tmp_path / 'm.pem'}"}
    assert faults_of(server(httpsEnabled=True, **files)) == {}  # no management port, no use for its files


def test_tls_files_do_not_matter_without_https(faults_of: FaultsOf) -> None:
    assert faults_of(server(tlsCert="nowhere.pem", tlsPk="nowhere.pem")) == {}


def test_adapters_must_be_there(faults_of: FaultsOf, tmp_path: Path, write_adapter: Callable[[str], None]) -> None:
    write_adapter("here")
    modules = [{"name": "one", "path": "here"}, {"name": "two", "path": "nowhere"}]
    content = {"BackendConfig": {"ModelDeployConfig": {"LoraModules": modules}}}
    missing = tmp_path / "nowhere" / "adapter_config.json"
    assert faults_of(content) == {f"{DEPLOY}.LoraModules[1].path": f"there is no file {missing}"}


def test_every_name_is_taken_once(faults_of: FaultsOf, write_adapter: Callable[[str], None]) -> None:
    for name in "abc":
        write_adapter(name)
    modules = [
        {"name": "base", "path": "a"},
        {"name": "one", "path": "b", "baseModelName": "base"},
        {"name": "one", "path": "c", "baseModelName": "another"},
    ]
    content = {"BackendConfig": {"ModelDeployConfig": {"LoraModules": modules, "ModelConfig": [{"modelName": "base"}]}}}
    assert faults_of(content) == {
        f"{DEPLOY}.LoraModules[0].name": '"base" is the name of another model',
        f"{DEPLOY}.LoraModules[2].name": '"one" is the name of another model',
        f"{DEPLOY}.LoraModules[2].baseModelName": '"another" is not served, "base" is',
    }


def test_no_memory_at_all_is_a_fault(faults_of: FaultsOf) -> None:
    assert f"{MODEL}.npuMemSize" in faults_of(model(npuMemSize=0))
    assert faults_of(model(npuMemSize=1)) == {}


@pytest.mark.parametrize(
    ("params", "is_fine"),
    [
        (None, True),
        ("", True),
        ("{}", True),
        ('{"plugin_type": "prefix_cache"}', True),
        ({"plugin_type": "mtp,prefix_cache", "num_speculative_tokens": 1}, True),
        ("prefix_cache", False),
        ("[]", False),
        ("{", False),
        ("[" * 50_000, False),
        ('{"a":' * 50_000, False),
        ('{"plugin_type": "mtp", "level": NaN}', False),
        ('{"plugin_type": "mtp", "level": ' + "9" * 5_000 + "}", False),
        ('{"plugin_type": "mtp", "plugin_type": "la"}', False),
        (5, False),
        (["prefix_cache"], False),
        ({"plugin_type": ["prefix_cache"]}, False),
    ],
)
def test_plugin_params_hold_an_object(faults_of: FaultsOf, params: object, *, is_fine: bool) -> None:
    assert (faults_of(model(plugin_params=params)) == {}) is is_fine


def test_what_is_wrong_inside_plugin_params_is_told(faults_of: FaultsOf) -> None:
    (problem,) = faults_of(model(plugin_params='{"plugin_type": "mtp", "level": NaN}')).values()
    assert problem == r'"{\"plugin_type\": \"mtp\", \"level\": NaN}": NaN is not a JSON number'
    (problem,) = faults_of(model(plugin_params="[" * 50_000)).values()
    assert problem == '"' + "[" * 63 + "…: is nested more than 64 deep"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("~nobody-of-this-name/model", "{folder}/~nobody-of-this-name/model does not exist"),
        ("x" * 5_000, "{folder}/" + "x" * 5_000),
        ("a\nb", '"{folder}/a\\nb" does not exist'),
        ("a\0b", '"{folder}/a\\u0000b" does not exist'),
    ],
)
def test_a_path_that_no_file_can_have_is_told_in_one_line(
    faults_of: FaultsOf, tmp_path: Path, path: str, problem: str
) -> None:
    told = faults_of(model(modelWeightPath=path))[f"{MODEL}.modelWeightPath"]
    expected = problem.format(folder=tmp_path)
    assert told == (expected if len(path) < 500 else f"{expected[:512]}… cannot be read: File name too long")
    https = faults_of(server(httpsEnabled=True, tlsCert=path, tlsPk=path))
    assert all("\n" not in told and len(told) < 700 for told in https.values())
    assert set(https) == {"ServerConfig.tlsCert", "ServerConfig.tlsPk"}


def test_weights_must_be_there(faults_of: FaultsOf, tmp_path: Path) -> None:
    def problem(path: object, **values: object) -> str | None:
        return faults_of(model(modelWeightPath=path, **values)).get(f"{MODEL}.modelWeightPath")

    assert problem(None) is None
    assert problem("nowhere") == f"{tmp_path / 'nowhere'} does not exist"
    assert problem(str(tmp_path / "nowhere")) == f"{tmp_path / 'nowhere'} does not exist"
    folder = tmp_path / "folder"
    folder.mkdir()
    assert problem("folder") == f"{folder} has no config.json"
    (folder / "a.gguf").write_text("")
    assert problem("folder") == f"{folder} has no config.json: name the file itself, such as a.gguf"
    assert problem("folder/a.gguf") is None
    (folder / "config.json").write_text("{}")
    assert problem("folder") is None
    assert problem("folder/config.json") == f"{folder / 'config.json'} is neither a model's folder nor a .gguf file"


def test_the_scripted_engine_needs_a_script(faults_of: FaultsOf, tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text("")
    assert faults_of(model(backendType="scripted", modelWeightPath="script.yaml")) == {}
    assert faults_of(model(backendType="scripted")) == {
        f"{MODEL}.modelWeightPath": "the scripted engine needs a script here"
    }
    assert faults_of(model(backendType="scripted", modelWeightPath=".")) == {
        f"{MODEL}.modelWeightPath": f"{tmp_path} is not a script file"
    }


def test_a_typed_model_makes_the_files_irrelevant(faults_of: FaultsOf, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_text("")
    content = model(modelWeightPath="/nowhere")
    assert faults_of(content, overrides=Overrides(model=tmp_path / "m.gguf")) == {}


def test_a_typed_address_is_not_judged(faults_of: FaultsOf) -> None:
    assert faults_of({}, overrides=Overrides(host="localhost", port=443)) == {}
    assert faults_of({}, overrides=Overrides(host="0.0.0.0")) == {}


def test_a_rule_is_silent_about_keys_that_are_at_fault_already(faults_of: FaultsOf) -> None:
    content = {"ServerConfig": {"ipAddress": "0.0.0.0", "allowAllZeroIpListening": 1}}
    assert list(faults_of(content)) == ["ServerConfig.allowAllZeroIpListening"]


def test_rules_and_bounds_are_told_together(faults_of: FaultsOf) -> None:
    content = {"ServerConfig": {"port": 80, "ipAddress": "0.0.0.0"}, **model(npuMemSize=0)}
    assert set(faults_of(content)) == {"ServerConfig.port", "ServerConfig.ipAddress", f"{MODEL}.npuMemSize"}
