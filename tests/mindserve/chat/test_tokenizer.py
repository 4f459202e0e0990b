from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mindserve.chat.tokenizer import ChatTokenizer, load_tokenizer
from mindserve.errors import RefusalKind, RequestRefused, StartupError
from tests.decoding import whole_text

Tokenizers = Callable[[str], ChatTokenizer]
USER = {"role": "user", "content": "hello you"}


def refused(path: Path, message: str, **kwargs: str) -> None:
    with pytest.raises(StartupError, match=message) as error:
        load_tokenizer(path, **kwargs)
    assert "\n" not in str(error.value)


def copy_of(folder: Path, target: Path, **changed: str | None) -> Path:
    target.mkdir()
    for file in folder.iterdir():
        if file.is_file():
            (target / file.name).write_bytes(file.read_bytes())
    for name, text in changed.items():
        path = target / name.replace("_json", ".json").replace("_jinja", ".jinja")
        if text is None:
            path.unlink()
        else:
            path.write_text(text, encoding="utf-8")
    return target


def test_a_missing_model_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none", "no such model")


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, re.escape(str(tmp_path)))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', "utf-8")
    refused(tmp_path, "there is no tokenizer.json, and none can be made of what is there: .* a slow tokenizer")


def test_a_broken_tokenizer_file_is_refused(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    for number, text in enumerate(["{", "{}", "[]"]):
        folder = copy_of(model_folder("chatml"), tmp_path / str(number), tokenizer_json=text)
        refused(folder, "cannot load the tokenizer")


def test_a_missing_template_is_refused_and_can_be_given(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    folder = copy_of(model_folder("chatml"), tmp_path / "m", chat_template_jinja=None)
    refused(folder, "no chat template")
    source = "{{ messages[0].content }}"
    (tmp_path / "own.jinja").write_text(source, encoding="utf-8")
    for chat_template in (source, str(tmp_path / "own.jinja")):
        tokenizer = load_tokenizer(folder, chat_template=chat_template)
        assert whole_text(tokenizer, tokenizer.render_chat([USER])) == "hello you"


def test_a_template_file_that_cannot_be_read_is_refused(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    refused(model_folder("chatml"), "cannot read", chat_template=str(tmp_path / "none.jinja"))


def test_a_broken_template_is_refused(model_folder: Callable[[str], Path]) -> None:
    refused(model_folder("chatml"), "broken chat template, line 2", chat_template="x\n{% if %}")


def test_special_tokens_inside_the_vocabulary_are_kept_apart(
    model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """Whole words that are tokens are not built by merging: a way for text to become a token without being matched."""
    spec = json.loads((model_folder("headers") / "tokenizer.json").read_text(encoding="utf-8"))
    spec["model"]["vocab"] |= {"Hello": 900}
    spec["added_tokens"].append({**spec["added_tokens"][0], "id": 900, "content": "Hello"})
    folder = copy_of(model_folder("headers"), tmp_path / "m", tokenizer_json=json.dumps(spec))
    tokenizer = load_tokenizer(folder)
    assert 900 not in tokenizer.render_chat([{"role": "user", "content": "Hello"}])
    assert 900 in tokenizer.backend.encode("Hello").ids


def test_the_length_is_checked_before_the_ids_are_made(tokenizer_of: Tokenizers) -> None:
    tokenizer = tokenizer_of("chatml")
    lengths: list[int] = []
    ids = tokenizer.render_chat([USER], check_length=lengths.append)
    assert lengths == [len(ids)]

    def refuse(num_tokens: int) -> None:
        raise RequestRefused(f"{num_tokens} tokens", kind=RefusalKind.CONTEXT_LENGTH)

    with pytest.raises(RequestRefused, match=f"{len(ids)} tokens"):
        tokenizer.render_chat([USER], check_length=refuse)


def test_threads_share_a_tokenizer(tokenizer_of: Tokenizers) -> None:
    tokenizer = tokenizer_of("pieced")
    conversations = [[{"role": "user", "content": f"hello {n}" * (n + 1)}] for n in range(40)]
    expected = [tokenizer.render_chat(messages) for messages in conversations]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tokenizer.render_chat, conversations * 5)) == expected * 5


@pytest.mark.parametrize("name", ["folder", "gguf"])
def test_loading_takes_no_torch(model_folder: Callable[[str], Path], default_model: Path, name: str) -> None:
    path = default_model if name == "gguf" else model_folder("chatml")
    program = (
        "import sys, pathlib; from mindserve.chat.tokenizer import load_tokenizer;"
        f"load_tokenizer(pathlib.Path({str(path)!r})); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("ending", "opened"),
    [
        ("<think>", True),
        ("<think>\n\n", True),
        ("<think>\n\n</think>\n\n", False),
        ("<think> about it", False),
        ("", False),
    ],
)
def test_a_prompt_may_end_inside_the_thoughts(tokenizer_of: Tokenizers, ending: str, *, opened: bool) -> None:
    tokenizer = tokenizer_of("chatml")
    text = f"<|im_start|>assistant\n{ending}"
    assert tokenizer.opens_reasoning(tokenizer.backend.encode(text, add_special_tokens=False).ids) is opened


def test_text_of_the_request_opens_no_thoughts(tokenizer_of: Tokenizers) -> None:
    tokenizer = tokenizer_of("chatml")
    assert not tokenizer.opens_reasoning(tokenizer.render_chat([{"role": "user", "content": "what is <think>"}]))
