"""A model's tokenizer as the server uses it: chat messages to prompt ids, ids to bytes.

Importing this takes no torch. Neither does loading, except for folders without a ``tokenizer.json``, tokenizers with
code of their own, and some GGUF vocabularies (see ``gguf_tokenizer``).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import jinja2

from mindserve.chat.chatglm_tokenizer import chatglm_spelling, is_chatglm, load_chatglm_tokenizer
from mindserve.chat.control_tokens import ControlTokens, MarkedEncoder, control_literals
from mindserve.chat.conversation import to_conversation
from mindserve.chat.detokenize import TokenSource
from mindserve.chat.dropped import refuse_dropped
from mindserve.chat.gguf_tokenizer import load_gguf_tokenizer
from mindserve.chat.placeholders import check_placeholders
from mindserve.chat.template import ChatTemplate, Message, TemplateFailed, TemplateLimit, TemplateTimeout, Tool
from mindserve.chat.vocabulary import TokenTable, build_token_table
from mindserve.errors import RefusalKind, RequestRefused, StartupError
from mindserve.observe.logs import fields
from mindserve_engine.types import MediaKind, MediaModel, Vocabulary

DEFAULT_TIMEOUT_S: Final = 60.0
RETRY_AFTER_TIMEOUT_S: Final = 5
PROCESSOR_TEMPLATE: Final = "chat_template.json"
"""Where older folders have the template of their processor; newer ones have one ``chat_template.jinja`` for both."""
_LOG: Final = logging.getLogger(__name__)
_WORDS: Final = {"type": "text", "text": "What is it?"}
_MAX_OPENING_TOKENS: Final = 16
"""Tokens at the end of a prompt that may spell the opening of a chain of thought and the white space behind it."""
_MAX_LOCATED: Final = 64
"""The message that a template objects to is looked for among this many."""
_LOCATING_S: Final = 1.0
"""Time for that search."""
_MAX_REASON: Final = 300
"""Characters of a template's own message, which may quote the request, or of a library's."""


class ChatTokenizer:
    """Vocabulary and chat template of a model. Thread-safe."""

    def __init__(self, tokenizer: Any, templates: dict[str, str]) -> None:
        """``tokenizer``: a transformers tokenizer with a fast backend. ``templates``: sources by name, ``default``
        and optionally ``tool_use``. Raises ``ValueError`` or ``jinja2.TemplateError`` when they cannot be used."""
        self.backend: Any = tokenizer.backend_tokenizer
        spec = json.loads(self.backend.to_str())
        self.table: TokenTable = build_token_table(spec, self.backend.get_vocab(with_added_tokens=True))
        named = {name: token for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
        control = ControlTokens(control_literals(spec, named.values()))
        self._encoder = MarkedEncoder(spec, control)
        self._templates = {
            name: ChatTemplate(source, control=control, variables=named) for name, source in templates.items()
        }
        self._showing: dict[frozenset[str], TokenSource] = {}

    @property
    def vocab_size(self) -> int:
        """Highest token id plus one. A model may have more: its vocabulary is often padded."""
        return len(self.table.pieces)

    def token_bytes(self, token_id: int) -> bytes:
        """The token's real bytes, half characters included; ``b""`` for ids the tokenizer does not have."""
        return self.table.pieces[token_id] if 0 <= token_id < len(self.table.pieces) else b""

    @property
    def special_tokens(self) -> dict[str, int]:
        """Control tokens by their text."""
        return {self.table.pieces[token_id].decode(): token_id for token_id in self.table.special_ids}

    def vocabulary(self, eos_token_ids: tuple[int, ...]) -> Vocabulary:
        """What an engine needs to follow grammars."""
        return Vocabulary(self.table.pieces, sorted(self.table.special_ids), eos_token_ids, self.backend.to_str())

    def template_source(self, *, with_tools: bool) -> str:
        """The template that a request with or without tools is rendered by."""
        return self._template(with_tools=with_tools).source

    def opens_reasoning(self, prompt_token_ids: list[int]) -> bool:
        """Whether the prompt ends inside a chain of thought: with ``<think>``, and nothing but white space behind."""
        tail = b"".join(map(self.token_bytes, prompt_token_ids[-_MAX_OPENING_TOKENS:]))
        return tail.rstrip().endswith(b"<think>")

    def showing(self, marks: frozenset[str]) -> TokenSource:
        """This vocabulary with the special tokens among ``marks`` as text, however special tokens are shown."""
        hidden = {token_id for token_id in self.table.special_ids if self.table.pieces[token_id].decode() in marks}
        if not hidden:
            return self
        if marks not in self._showing:
            self._showing[marks] = _Showing(self.table.with_text(hidden), self.backend)
        return self._showing[marks]

    def _template(self, *, with_tools: bool) -> ChatTemplate:
        return self._templates.get("tool_use" if with_tools else "default", self._templates["default"])

    def render_chat(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        template_kwargs: dict[str, Any] | None = None,
        media: MediaModel | None = None,
        check_length: Callable[[int], None] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> list[int]:
        """The prompt's token ids, generation prompt included. Blocks; use ``PromptPool`` from an event loop.

        With ``media``, what the model takes beside text, the ids have one placeholder for each item, in their order.

        Raises ``RequestRefused`` naming what the model's template cannot take, and whatever ``check_length``, given
        the number of tokens, raises. Time runs out between steps only, tokenising is not interrupted.
        """
        deadline = time.monotonic() + timeout_s
        template = self._template(with_tools=bool(tools))
        prompt = _Prompt(
            template,
            to_conversation(
                messages,
                knows_developer=template.names("developer"),
                arguments_as_text=template.wants_arguments_as_text,
            ),
            tools or None,
            template_kwargs or {},
        )
        with _template_errors():
            text = prompt.render(deadline)
            # Before the search for what was left out, which renders once more: a prompt that fits has few messages.
            ids = self._encoder.encode(text, check_length=check_length)
            refuse_dropped(
                template, prompt.messages, prompt.tools, prompt.template_kwargs, rendered=text, deadline=deadline
            )
            if media is not None:
                check_placeholders(
                    ids,
                    prompt.messages,
                    media,
                    render=lambda messages: prompt._replace(messages=messages).render(deadline),
                    encode=self._encoder.encode,
                )
        return ids


def check_media(tokenizer: ChatTokenizer, media: MediaModel) -> None:
    """Raise ``StartupError`` when the template has no place for any kind of media that the model takes; a kind that it
    alone leaves out is told in the log. Blocks.

    A request would only be refused later, and by then somebody else is asking."""
    faults = {}
    for kind in MediaKind:
        if media.token_id(kind) is not None:
            part = {"type": f"{kind}_url"}
            try:
                tokenizer.render_chat([{"role": "user", "content": [part, _WORDS]}], media=media)
            except RequestRefused as refusal:
                faults[kind] = str(refusal)
    told = "; ".join(f"{kind}: {fault}" for kind, fault in faults.items())
    if len(faults) == sum(media.token_id(kind) is not None for kind in MediaKind):
        raise StartupError(
            f"the model's chat template writes no placeholder for media, give one that does with chat_template ({told})"
        )
    if faults:
        _LOG.warning("the chat template leaves out media", extra=fields(reason=told))


class _Showing(NamedTuple):
    """A ``TokenSource`` of a changed table."""

    table: TokenTable
    backend: Any


class _Prompt(NamedTuple):
    """What a template is given."""

    template: ChatTemplate
    messages: list[Message]
    tools: list[Tool] | None
    template_kwargs: dict[str, Any]

    def render(self, deadline: float) -> str:
        """Marked text. Raises ``RequestRefused`` naming the message that the template refuses."""
        try:
            return self._render(self.messages, deadline)
        except TemplateFailed as error:
            path = self._locate(str(error), min(deadline, time.monotonic() + _LOCATING_S))
            text = f"{path}: the model's chat template refuses this: {_cut(str(error))}"
            raise RequestRefused(text, field=path) from error

    def _render(self, messages: list[Message], deadline: float) -> str:
        return self.template.render(messages, tools=self.tools, template_kwargs=self.template_kwargs, deadline=deadline)

    def _locate(self, reason: str, deadline: float) -> str:
        """The path of the message that the template objects to: the last of the shortest beginning it objects to."""
        for size in range(1, min(len(self.messages), _MAX_LOCATED) + 1):
            try:
                self._render(self.messages[:size], deadline)
            except TemplateFailed as error:
                if str(error) == reason:
                    return f"messages[{size - 1}]"
            except (TemplateLimit, TemplateTimeout):
                break
        return "messages"


@contextmanager
def _template_errors() -> Iterator[None]:
    """Raise what the template ran into as ``RequestRefused``."""
    try:
        yield
    except TemplateLimit as error:
        raise RequestRefused(f"messages: {error}", field="messages") from error
    except TemplateTimeout as error:
        raise prompt_timeout() from error


def prompt_timeout() -> RequestRefused:
    """How long a prompt takes depends on what else the server does: no fault of the request (reading C26)."""
    return RequestRefused(
        "making the prompt took longer than the setting tokenizerTimeout allows",
        kind=RefusalKind.UNAVAILABLE,
        retry_after_s=RETRY_AFTER_TIMEOUT_S,
    )


def load_tokenizer(
    model_path: Path, *, trust_remote_code: bool = False, chat_template: str | None = None
) -> ChatTokenizer:
    """The tokenizer of a transformers folder or of one ``.gguf`` file.

    ``chat_template`` replaces the model's: Jinja source, or the path of a ``.jinja`` file. Raises ``StartupError``
    with one clear line when there is no tokenizer or no template, or one of them is broken.
    """
    tokenizer = _load(model_path, trust_remote_code=trust_remote_code)
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise StartupError(f"{model_path}: the tokenizer has no fast form (tokenizer.json)")
    templates = _templates(model_path, tokenizer, chat_template)
    if "default" not in templates:
        raise StartupError(f"{model_path}: the model has no chat template; give one with chat_template")
    place = _template_place(model_path, chat_template)
    try:
        return ChatTokenizer(tokenizer, templates)
    except jinja2.TemplateSyntaxError as error:
        raise StartupError(f"{place}: broken chat template, line {error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:
        raise StartupError(f"{place}: broken chat template: {_one_line(error)}") from error
    except Exception as error:  # the tokenizers library raises bare exceptions
        raise StartupError(f"{model_path}: unusable tokenizer: {_one_line(error)}") from error


def _load(model_path: Path, *, trust_remote_code: bool) -> Any:
    if not model_path.exists():
        raise StartupError(f"{model_path}: no such model")
    try:
        if model_path.is_file():
            return load_gguf_tokenizer(model_path)
        if is_chatglm(model_path):
            return load_chatglm_tokenizer(model_path)
        if (model_path / "tokenizer.json").is_file() and not trust_remote_code:
            # Takes a second: beside the engine's start, not before it.
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast.from_pretrained(str(model_path), local_files_only=True)
        from transformers import AutoTokenizer  # imports torch

        return AutoTokenizer.from_pretrained(
            str(model_path), local_files_only=True, trust_remote_code=trust_remote_code
        )
    except StartupError:
        raise
    except Exception as error:  # the library raises whatever a broken file makes it raise
        has_none = model_path.is_dir() and not (model_path / "tokenizer.json").is_file()
        hint = "there is no tokenizer.json, and none can be made of what is there: " if has_none else ""
        raise StartupError(f"{model_path}: cannot load the tokenizer: {hint}{_one_line(error)}") from error


def _templates(model_path: Path, tokenizer: Any, chat_template: str | None) -> dict[str, str]:
    if chat_template is not None:
        source = _read_template(chat_template)
        return {"default": chatglm_spelling(source) if is_chatglm(model_path) else source}
    processors = model_path / PROCESSOR_TEMPLATE
    if processors.is_file():
        return {"default": _processor_template(processors)}
    own: Any = tokenizer.chat_template
    if isinstance(own, dict):
        return own
    return {"default": own} if own else {}


def _template_place(model_path: Path, chat_template: str | None) -> Path | str:
    """Where the template is from, for error texts."""
    if chat_template is not None:
        return chat_template if chat_template.endswith(".jinja") else "chat_template"
    files = (model_path / name for name in (PROCESSOR_TEMPLATE, "chat_template.jinja", "tokenizer_config.json"))
    return next((path for path in files if path.is_file()), model_path)


def _processor_template(path: Path) -> str:
    """That of a model which takes more than text: beside it the tokenizer may have one for text alone."""
    try:
        template = json.loads(path.read_text(encoding="utf-8"))["chat_template"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise StartupError(f"{path}: not a JSON object with a chat_template: {_one_line(error)}") from error
    if not isinstance(template, str):
        raise StartupError(f"{path}: chat_template is no text")
    return template


def _read_template(chat_template: str) -> str:
    if not chat_template.endswith(".jinja"):
        return chat_template
    try:
        return Path(chat_template).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"chat_template: cannot read {chat_template}: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return _cut(" ".join(str(error).split()) or type(error).__name__)


def _cut(reason: str) -> str:
    return reason if len(reason) <= _MAX_REASON else f"{reason[:_MAX_REASON]}…"
