"""The script format: what is accepted, and that faults are told with their place."""

from pathlib import Path

import pytest

from mindserve_engine.scripted.script import Script, ScriptError, load_script


def load(tmp_path: Path, text: str) -> Script:
    path = tmp_path / "script.yaml"
    path.write_text(text, "utf-8")
    return load_script(path)


def test_first_fitting_reply_wins_and_default_is_last_resort(tmp_path: Path) -> None:
    script = load(
        tmp_path,
        """
        - {default: true, pieces: [d]}
        - {match: "par[ie]s", pieces: [m]}
        - {contains: "a.b", pieces: [c]}
        """,
    )
    assert script.reply_to("in paris a.b").pieces == ["m"]
    assert script.reply_to("a.b").pieces == ["c"]
    assert script.reply_to("axb").pieces == ["d"]


def test_no_default_means_no_reply(tmp_path: Path) -> None:
    assert load(tmp_path, "[{contains: x, pieces: [y]}]").reply_to("z") is None


def test_mapping_form_carries_model_settings(tmp_path: Path) -> None:
    reply = "{default: true, pieces: [!!binary 5L0=]}"
    script = load(tmp_path, f"{{max_context: 50, load: {{delay_ms: 3}}, replies: [{reply}]}}")
    assert (script.max_context, script.load.delay_ms) == (50, 3.0)
    assert script.replies[0].pieces == [b"\xe4\xbd".decode("utf-8", "surrogateescape")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{default: true, pieces: []}]", "$[0].pieces"),
        ("[]", "there are no replies"),
        ("[{default: true, piece: [a]}]", "unknown field `piece`"),
        ("[{pieces: [a]}]", "replies[0]: give exactly one of match, contains and default"),
        ("[{default: true, contains: x, pieces: [a]}]", "replies[0]: give exactly one of"),
        ("[{match: '(', pieces: [a]}]", "replies[0]: match: not a regular expression"),
        ("[{default: true, pieces: [a, '']}]", "replies[0]: pieces: a piece is empty"),
        ("[{default: true, pieces: [a], step_ms: [1, 2, 3]}]", "replies[0]: step_ms: 3 values for 2 tokens"),
        ("[{default: true, pieces: [a], finish: length, batch_size: [1, 2]}]", "batch_size: 2 values for 1 tokens"),
        ("[{default: true, pieces: [a], step_ms: -1}]", "step_ms"),
        ("[{default: true, pieces: [a]}, {default: true, pieces: [b]}]", "more than one reply is the default"),
        ("[{", "not a YAML file"),
        ("just text", "Expected `object`"),
    ],
)
def test_faults_name_file_and_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "script.yaml"))
    assert "\n" not in str(caught.value)


def test_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="No such file"):
        load_script(tmp_path / "none.yaml")
