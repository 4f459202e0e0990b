from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindserve.config.faults import ConfigInvalid
from mindserve.config.load import LoadedConfig, load_config
from mindserve.config.overrides import Overrides, the_model

Load = Callable[..., LoadedConfig]


def schedule(**values: object) -> dict[str, object]:
    return {"BackendConfig": {"ScheduleConfig": values}}


def model(**values: object) -> dict[str, object]:
    return {"BackendConfig": {"ModelDeployConfig": {"ModelConfig": [values]}}}


def test_without_a_file_the_defaults_stand() -> None:
    loaded = load_config(None, Overrides(), {})
    assert (loaded.config.server_config.ip_address, loaded.config.server_config.port) == ("127.0.0.1", 1025)
    assert loaded.notes == ()


def test_the_text_of_an_invalid_config_has_a_line_per_fault(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"ServerConfig": {"port": 80, "maxLinkNum": 0}}')
    with pytest.raises(ConfigInvalid) as caught:
        load_config(path, Overrides(), {})
    assert str(caught.value).splitlines() == [
        f"{path}: ServerConfig.maxLinkNum: 0 is below the minimum 1",
        f"{path}: ServerConfig.port: 80 is below the minimum 1024",
    ]


def test_of_very_many_faults_the_first_are_told(load: Load) -> None:
    modules = [{}] * 1000
    with pytest.raises(ConfigInvalid) as caught:
        load({"BackendConfig": {"ModelDeployConfig": {"LoraModules": modules}}})
    lines = str(caught.value).splitlines()
    assert len(caught.value.faults) == 2000
    assert len(lines) == 101
    assert lines[-1].endswith(": and 1900 more faults")


def test_the_command_line_wins_over_variables_and_these_over_the_file(load: Load) -> None:
    content = {"ServerConfig": {"ipAddress": "127.0.0.3", "port": 2000}}
    environ = {"MIES_CONTAINER_IP": "127.0.0.4", "MIES_CONTAINER_MANAGEMENT_IP": "127.0.0.5"}
    assert load(content).config.server_config.ip_address == "127.0.0.3"
    from_variable = load(content, environ=environ).config.server_config
    assert (from_variable.ip_address, from_variable.management_ip_address) == ("127.0.0.4", "127.0.0.5")
    typed = load(content, overrides=Overrides(host="localhost", port=0), environ=environ).config.server_config
    assert (typed.ip_address, typed.port) == ("localhost", 0)


def test_a_typed_model_takes_the_place_of_the_files(load: Load, full_mindie: dict[str, Any], tmp_path: Path) -> None:
    weights = tmp_path / "other.gguf"
    weights.write_text("")
    replaced = the_model(load(full_mindie, overrides=Overrides(model=weights, dtype="float32")).config)
    assert (replaced.model_weight_path, replaced.model_name, replaced.dtype) == (str(weights), None, "float32")
    renamed = the_model(load(full_mindie, overrides=Overrides(model_name="mine")).config)
    assert (renamed.model_name, Path(renamed.model_weight_path or "").name) == ("mine", "weights")


def test_relative_paths_start_above_a_folder_called_conf(tmp_path: Path) -> None:
    """MindIE's install folder holds conf/config.json and security/, whose files the config names."""
    (tmp_path / "conf").mkdir()
    path = tmp_path / "conf" / "config.json"
    path.write_text("{}")
    assert load_config(path, Overrides(), {}).base == tmp_path
    elsewhere = tmp_path / "config.json"
    elsewhere.write_text("{}")
    assert load_config(elsewhere, Overrides(), {}).base == tmp_path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"ServerConfig": {"prot": 1}}, "did you mean port?"),
        (
            {"ServerConfig": {"kmcKsfMaster": "", "interCommPort": 1121}},
            "ServerConfig.kmcKsfMaster, ServerConfig.inter",
        ),
        ({"ServerConfig": {"fullTextEnabled": True}}, "many times over"),
        ({"BackendConfig": {"ModelDeployConfig": {"truncation": 1}}}, "are refused here, not cut"),
        ({"BackendConfig": {"ModelDeployConfig": {"truncation": True}}}, "are refused here, not cut"),
        (
            {"BackendConfig": {"ModelDeployConfig": {"maxSeqLen": 100, "maxInputTokenLen": 100}}},
            "maxInputTokenLen 100 is lowered to 99",
        ),
        (schedule(maxBatchSize=300, maxPrefillTokens=256), "maxBatchSize 300 is lowered to 256, maxPrefillTokens"),
        ({"ServerConfig": {"maxLinkNum": 30}}, "maxBatchSize 200 is lowered to 30, maxLinkNum"),
        (model(plugin_params='{"plugin_type": "mtp, prefix_cache"}'), "no effect here: mtp"),
    ],
)
def test_the_operator_is_told_what_may_surprise(load: Load, content: object, words: str) -> None:
    assert words in "\n".join(load(content).notes)


def test_an_ordinary_config_needs_no_words(load: Load) -> None:
    content = {
        "ServerConfig": {"port": 2000},
        "BackendConfig": {"ModelDeployConfig": {"maxSeqLen": 2560, "maxInputTokenLen": 2048}},
    }
    assert load(content).notes == ()


def test_a_config_that_everyone_can_change_is_told(load: Load, tmp_path: Path) -> None:
    load({})
    path = tmp_path / "config.json"
    path.chmod(0o646)
    assert "can be changed by everyone" in "\n".join(load_config(path, Overrides(), {}).notes)


def test_a_private_key_that_everyone_can_read_is_told(load: Load, tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("")
    content = {"ServerConfig": {"httpsEnabled": True, "tlsCert": "cert.pem", "tlsPk": "key.pem"}}
    (tmp_path / "key.pem").chmod(0o604)
    assert load(content).notes == (
        f"the private key {tmp_path / 'key.pem'} can be read by everyone on this machine: chmod o-r it",
    )
    (tmp_path / "key.pem").chmod(0o640)
    assert load(content).notes == ()


def test_keys_that_look_like_typos_are_told_beside_faults(load: Load) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load({"ServerConfig": {"prot": 80, "port": 0}})
    fault, typo = str(caught.value).splitlines()
    assert "ServerConfig.port" in fault
    assert typo.endswith("ServerConfig.prot is not a key of config.json and has no effect: did you mean port?")
