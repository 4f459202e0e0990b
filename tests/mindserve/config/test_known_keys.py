from typing import Any

import pytest

from mindserve.config.known_keys import ignored_keys, unknown_keys


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (
            {"ServerConfig": {"prot": 1}},
            "ServerConfig.prot is not a key of config.json and has no effect: did you mean port?",
        ),
        (
            {"ServerConfig": {"openAISupport": "x"}},
            "ServerConfig.openAISupport is not a key of config.json and has no effect: did you mean openAiSupport?",
        ),
        (
            {"serverConfig": {}},
            "serverConfig is not a key of config.json and has no effect: did you mean ServerConfig?",
        ),
        (
            {"BackendConfig": {"ModelDeployConfig": {"ModelConfig": [{}, {"ModelName": "a"}]}}},
            "BackendConfig.ModelDeployConfig.ModelConfig[1].ModelName is not a key of config.json and has no effect: "
            "did you mean modelName?",
        ),
        (
            {"BackendConfig": {"ModelDeployConfig": {"ModelConfig": [{"models": {"qwen3": {"enable_reasonin": 1}}}]}}},
            "BackendConfig.ModelDeployConfig.ModelConfig[0].models.qwen3.enable_reasonin is not a key of config.json "
            "and has no effect: did you mean enable_reasoning?",
        ),
        ({"zzzzzzzz": 1}, "zzzzzzzz is not a key of config.json and has no effect"),
        ({"a\nb": 1}, r'"a\nb" is not a key of config.json and has no effect'),
        ({"k" * 100_000: 1}, '"' + "k" * 63 + "… is not a key of config.json and has no effect"),
    ],
)
def test_an_unknown_key_is_taken_for_a_typo(raw: dict[str, object], line: str) -> None:
    assert unknown_keys(raw) == [line]


def test_of_very_many_unknown_keys_the_first_are_told() -> None:
    lines = unknown_keys({"ServerConfig": {f"key{number}": 1 for number in range(1000)}})
    assert len(lines) == 101
    assert lines[0].startswith("ServerConfig.key0 is not")
    assert lines[-1] == "and 900 more keys without effect"


def test_mindies_own_keys_are_all_known(full_mindie: dict[str, Any]) -> None:
    assert unknown_keys(full_mindie) == []


def test_keys_without_a_meaning_are_told_with_their_places(full_mindie: dict[str, Any]) -> None:
    ignored = ignored_keys(full_mindie)
    assert "ServerConfig.kmcKsfMaster" in ignored
    assert "BackendConfig.ModelDeployConfig.ModelConfig[0].cpuMemSize" in ignored
    assert "BackendConfig.ScheduleConfig.templateType" in ignored
    assert not {"ServerConfig.port", "ServerConfig", "BackendConfig.ScheduleConfig.maxIterTimes"} & set(ignored)
    assert len(ignored) == len(set(ignored))


def test_what_lies_inside_an_ignored_key_is_not_looked_at() -> None:
    raw: dict[str, object] = {"ServerConfig": {"HealthCheckConfig": {"anything": 1}}}
    assert unknown_keys(raw) == []
    assert ignored_keys(raw) == ["ServerConfig.HealthCheckConfig"]


def test_values_of_the_wrong_type_do_not_confuse_the_search() -> None:
    raw: dict[str, object] = {"ServerConfig": 5, "BackendConfig": [{"prot": 1}], "LogConfig": None}
    assert ignored_keys(raw) == []
