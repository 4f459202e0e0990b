from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindserve.config.load import LoadedConfig, load_config
from mindserve.config.lower import log_settings, serve_settings
from mindserve.config.overrides import Overrides
from mindserve.config.settings import MIB, Dialect, ModelTypeSettings, ServeSettings

Load = Callable[..., LoadedConfig]


def test_an_empty_config_gives_the_settings_defaults(load: Load) -> None:
    assert serve_settings(load({})) == ServeSettings()
    assert serve_settings(load_config(None, Overrides(), {})) == ServeSettings()


def test_every_key_of_the_front_end_arrives(load: Load, write_adapter: Callable[[str], None]) -> None:
    write_adapter("p")
    server = {
        "openAiSupport": "openai",
        "maxLinkNum": 7,
        "maxQueueSize": 9,
        "fullTextEnabled": True,
        "browserPages": False,
        "tokenTimeout": 11,
        "e2eTimeout": 12,
        "maxRequestLength": 3,
        "maxJsonDepth": 20,
        "maxMessagesLength": 99,
        "allowEmptyContent": True,
        "keepAliveTimeout": 5,
        "drainTimeout": 6,
        "streamHeartbeat": 15,
        "tokenizerTimeout": 8,
    }
    backend = {
        "tokenizerProcessNumber": 2,
        "ModelDeployConfig": {
            "maxSeqLen": 1000,
            "maxInputTokenLen": 900,
            "LoraModules": [{"name": "l1", "path": "p"}, {"name": "l2", "path": "p"}],
            "ModelConfig": [
                {"modelName": "m", "trustRemoteCode": True, "models": {"qwen3": {"enable_reasoning": True}}}
            ],
        },
        "ScheduleConfig": {"maxIterTimes": 77},
    }
    assert serve_settings(load({"ServerConfig": server, "BackendConfig": backend})) == ServeSettings(
        model_name="m",
        lora_names=("l1", "l2"),
        dialect=Dialect.OPENAI,
        browser_pages=False,
        max_iter_times=77,
        max_input_token_len=900,
        max_seq_len=1000,
        token_timeout_s=11.0,
        e2e_timeout_s=12.0,
        max_request_bytes=3 * MIB,
        max_messages_length=99,
        max_json_depth=20,
        full_text_enabled=True,
        allow_empty_content=True,
        drain_timeout_s=6.0,
        keep_alive_s=5,
        heartbeat_s=15.0,
        model_types={"qwen3": ModelTypeSettings(enable_reasoning=True)},
        max_connections=7,
        max_waiting=9,
        tokenizer_workers=2,
        tokenizer_timeout_s=8.0,
        trust_remote_code=True,
    )


@pytest.mark.parametrize(
    ("value", "dialect"),
    [("vllm", Dialect.VLLM), ("openai", Dialect.OPENAI), ("", Dialect.OPENAI), ("VLLM", Dialect.OPENAI)],
)
def test_any_other_value_of_openaisupport_is_the_other_dialect(load: Load, value: str, dialect: Dialect) -> None:
    assert serve_settings(load({"ServerConfig": {"openAiSupport": value}})).dialect is dialect


def test_the_queue_is_twice_as_long_as_there_are_links(load: Load) -> None:
    assert serve_settings(load({"ServerConfig": {"maxLinkNum": 30}})).max_waiting == 60


def test_a_full_config_of_mindie(load: Load, full_mindie: dict[str, Any]) -> None:
    settings = serve_settings(load(full_mindie))
    assert (settings.model_name, settings.lora_names) == ("llama_65b", ("llama-lora",))
    assert (settings.max_seq_len, settings.max_input_token_len, settings.max_iter_times) == (2560, 2048, 512)


def test_a_model_without_a_name_is_called_like_its_weights(load: Load, tmp_path: Path) -> None:
    folder = tmp_path / "Qwen3-0.6B"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    file = tmp_path / "SmolLM2.Q4_1.gguf"
    file.write_text("")
    assert serve_settings(load({}, overrides=Overrides(model=folder))).model_name == "Qwen3-0.6B"
    assert serve_settings(load({}, overrides=Overrides(model=file))).model_name == "SmolLM2.Q4_1"


@pytest.mark.parametrize(
    ("level", "typed", "expected"),
    [("", None, "INFO"), ("WARN", None, "WARNING"), ("debug", None, "DEBUG"), ("ERROR", "debug", "DEBUG")],
)
def test_the_level_of_the_log(load: Load, level: str, typed: str | None, expected: str) -> None:
    assert log_settings(load({"LogConfig": {"dynamicLogLevel": level}}), typed).level == expected


def test_connections_are_counted_for_each_instance(load: Load) -> None:
    content = {"ServerConfig": {"maxLinkNum": 10}, "BackendConfig": {"modelInstanceNumber": 3, "npuDeviceIds": []}}
    assert serve_settings(load(content)).max_connections == 30


@pytest.mark.parametrize("typed", [True, False])
def test_the_command_line_wins_over_browser_pages(load: Load, typed: bool) -> None:
    assert load_config(None, Overrides(browser_pages=typed), {}).config.server_config.browser_pages is typed
    assert serve_settings(load({"ServerConfig": {"browserPages": False}})).browser_pages is False
