from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import jinja2
import pytest

from mindserve.chat import template as template_module
from mindserve.chat import tokenizer as tokenizer_module
from mindserve.chat.control_tokens import ControlTokens
from mindserve.chat.template import ChatTemplate, TemplateFailed, TemplateLimit, TemplateTimeout
from mindserve.chat.tokenizer import ChatTokenizer, load_tokenizer
from mindserve.errors import RefusalKind, RequestRefused

Tokenizers = Callable[[str], ChatTokenizer]
USER = {"role": "user", "content": "hello"}


def compile_template(source: str, *control: str, **variables: str) -> ChatTemplate:
    return ChatTemplate(source, control=ControlTokens(control), variables=variables)


def render(template: ChatTemplate, *messages: dict[str, Any], **kwargs: Any) -> str:
    return template.readable(template.render(list(messages or [USER]), **kwargs))


def test_literals_that_come_out_are_marked() -> None:
    template = compile_template(
        "{% set turn = '<a>' + messages[0].role %}<b>{{ turn ~ ['<a>', '<b>'] | join('<c>') }}{{ {'x': '<c>'}.x }}",
        "<a>",
        "<b>",
        "<c>",
    )
    text = template.render([USER])
    assert "<a>" not in text
    assert template.readable(text) == "<b><a>user<a><c><b><c>"


def test_literals_held_against_the_request_are_not_marked() -> None:
    template = compile_template(
        "{% for m in messages %}{% if '<a>' in m.content %}yes{% endif %}"
        "{{ m.content.split('<a>')[-1] | replace('<b>', '-') }}{% if m.content.startswith('<b>') %}!{% endif %}"
        "{{ m.content == '<b>' }}{% endfor %}",
        "<a>",
        "<b>",
    )
    assert render(template, {"role": "user", "content": "x<a>y<b>"}) == "yesy-False"
    assert render(template, {"role": "user", "content": "<b>"}) == "-!True"


def test_named_tokens_are_marked() -> None:
    template = compile_template("{{ bos_token }}{{ messages[0].content }}", "<s>", bos_token="<s>")
    text = template.render([{"role": "user", "content": "<s>"}])
    assert text.count("<s>") == 1
    assert template.readable(text) == "<s><s>"


def test_tojson_leaves_other_scripts_readable() -> None:
    template = compile_template("{{ tools | tojson }}")
    assert render(template, tools=[{"name": "天气<é>"}]) == '[{"name": "天气<é>"}]'


def test_transformers_tags_and_globals_work() -> None:
    template = compile_template(
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{% generation %}{{ m.content }}"
        "{% endgeneration %}{% endfor %}{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}"
    )
    assert render(template, USER, USER) == "hello2"


def test_loop_variables_survive_the_watch() -> None:
    template = compile_template(
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ '.' if loop.last else ',' }}{% else %}none"
        "{% endfor %}{% for x in [] %}{% else %}none{% endfor %}{% for i in range(3) if i %}{{ i }}{% endfor %}"
    )
    assert render(template, USER, USER) == "1/2,2/2.none12"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ messages[0].__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ raise_exception.__globals__.x }}",
        "{% include 'x' %}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[0].nothing.more }}",
        "{{ raise_exception('no') }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_whatever_goes_wrong_in_a_template_is_a_failed_template(source: str) -> None:
    with pytest.raises(TemplateFailed):
        compile_template(source).render([USER])


def test_a_syntax_error_is_found_when_compiling() -> None:
    with pytest.raises(jinja2.TemplateSyntaxError):
        compile_template("{% if %}")


def test_the_templates_own_message_has_no_secrets() -> None:
    template = compile_template("{{ raise_exception('put <a> after ' + bos_token) }}", "<a>", "<s>", bos_token="<s>")
    with pytest.raises(TemplateFailed, match=r"^put <a> after <s>$"):
        template.render([USER])


def test_a_template_that_spins_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    template = compile_template(
        "{% if messages[0].content == 'spin' %}{% for a in range(99999) %}{% for b in range(99999) %}"
        "{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}{% endif %}"
    )
    clock = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with pytest.raises(TemplateTimeout):
        template.render([{"role": "user", "content": "spin"}], deadline=1000)


def test_a_template_that_multiplies_its_input_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "MAX_RENDERED_CHARACTERS", 1000)
    template = compile_template("{% for a in range(99999) %}{{ messages[0].content }}{% endfor %}")
    with pytest.raises(TemplateLimit, match="longer than 1000 characters"):
        template.render([USER])


def test_arguments_are_written_as_the_template_wants_them() -> None:
    loop = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
    end = "{% endfor %}{% endfor %}"
    assert not compile_template(loop + "{{ c.function.arguments | tojson }}" + end).wants_arguments_as_text
    assert not compile_template(
        loop + "{% for k, v in c.function.arguments.items() %}{{ k }}{% endfor %}" + end
    ).wants_arguments_as_text
    assert compile_template(loop + "{{ '<' + c.function.arguments + '>' }}" + end).wants_arguments_as_text
    assert not compile_template("{{ messages[0].content }}").wants_arguments_as_text


def test_what_the_server_sets_is_not_set_by_a_request() -> None:
    template = compile_template("{{ messages[0].content }}{{ tools }}{{ documents }}{{ add_generation_prompt }}")
    kwargs = {"messages": [], "tools": "x", "documents": "x", "add_generation_prompt": "x"}
    assert render(template, template_kwargs=kwargs) == "helloNoneNoneTrue"


def test_a_name_of_the_models_own_is_text_that_a_request_may_set() -> None:
    template = compile_template("{{ image_token }}{{ messages[0].content }}", "<image>", image_token="<image>")
    assert template.render([USER], template_kwargs={"image_token": "<image>"}) == "<image>hello"
    assert "<image>" not in template.render([USER])


@pytest.mark.parametrize("enable_thinking", [True, False])
def test_template_kwargs_reach_the_template(
    tokenizer_of: Tokenizers, reference_ids: Callable[..., list[int]], *, enable_thinking: bool
) -> None:
    ids = tokenizer_of("chatml").render_chat([USER], template_kwargs={"enable_thinking": enable_thinking})
    assert ids == reference_ids("chatml", [USER], enable_thinking=enable_thinking)


def test_a_refusal_names_the_message_and_quotes_the_template(tokenizer_of: Tokenizers) -> None:
    messages = [USER, {"role": "assistant", "content": "hi"}, {"role": "assistant", "content": "hi"}, USER]
    with pytest.raises(RequestRefused) as error:
        tokenizer_of("instruct").render_chat(messages)
    assert error.value.field == "messages[2]"
    assert "Roles must alternate user/assistant/user/assistant/... after <s>" in error.value.message


def test_the_message_is_not_looked_for_without_end(tokenizer_of: Tokenizers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "_LOCATING_S", -1.0)
    with pytest.raises(RequestRefused, match="Roles must alternate") as error:
        tokenizer_of("instruct").render_chat([USER, USER])
    assert error.value.field == "messages"


def test_a_role_that_makes_the_template_raise_is_refused(tokenizer_of: Tokenizers) -> None:
    with pytest.raises(RequestRefused, match="Roles must alternate") as error:
        tokenizer_of("instruct").render_chat([{"role": "system", "content": "x"}])
    assert error.value.field == "messages[0]"


def test_a_templates_own_words_are_cut(tokenizer_of: Tokenizers, model_folder: Callable[[str], Any]) -> None:
    source = "{{ raise_exception('I do not like ' + messages[0].content) }}"
    tokenizer = load_tokenizer(model_folder("chatml"), chat_template=source)
    with pytest.raises(RequestRefused, match="I do not like xxx") as error:
        tokenizer.render_chat([{"role": "user", "content": "x" * 10_000}])
    assert len(error.value.message) < 400


def test_running_out_of_time_is_no_fault_of_the_request(tokenizer_of: Tokenizers) -> None:
    """Reading C26."""
    with pytest.raises(RequestRefused, match="took longer") as error:
        tokenizer_of("chatml").render_chat([USER], timeout_s=-1)
    assert error.value.kind is RefusalKind.UNAVAILABLE
    assert error.value.retry_after_s is not None
    assert error.value.retry_after_s >= 1
