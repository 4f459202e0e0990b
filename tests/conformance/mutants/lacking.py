"""Servers that lack a feature, or have reached a border, and say so in the wrong way or too early."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.conformance.mutants.faults import Json, Mutant, accepting, on_request, refusal, refusing
from tests.conformance.mutants.proxy import Answer, Fault, Forward, Question

IMAGE: Final = frozenset({"image"})
SEVERAL: Final = frozenset({"several"})
HELLO: Final = [{"role": "user", "content": "Say hello."}]


def _wants_several(fields: Json) -> bool:
    return isinstance(fields.get("n"), int) and fields["n"] > 1


def refusing_several(text: str, status: int = 422) -> Fault:
    """Of a server without several sequences."""

    async def fault(question: Question, forward: Forward) -> Answer:
        wants = question.fields is not None and _wants_several(question.fields)
        return replace(refusal(text), status=status) if wants else await forward(question)

    return fault


def _has_image(fields: Json) -> bool:
    return "image_url" in str(fields.get("messages"))


def _equal_twos(fields: Json) -> bool:
    return fields.get("n") == fields.get("best_of") == 2


LACKS: Final = (
    Mutant("n 1 refused for want of several", refusing(lambda f: f.get("n") == 1, "n"), "request.n.at-minimum",
           "status", lacks=SEVERAL),
    Mutant("best_of null refused", refusing(lambda f: "best_of" in f and f["best_of"] is None, "best_of"),
           "request.best_of.null", "status", lacks=SEVERAL),
    Mutant("no beam search refused", refusing(lambda f: f.get("use_beam_search") is False, "use_beam_search"),
           "request.neutral", "status", lacks=frozenset({"beam"})),
    Mutant("no logprobs refused", refusing(lambda f: f.get("logprobs") is False, "logprobs"),
           "request.logprobs.is-false", "status", lacks=frozenset({"logprobs"})),
    Mutant("several sequences refused with 400", refusing_several("n is refused", 400), "feature.several", "status"),
    Mutant("several sequences refused without a word", refusing_several("that cannot be done"), "feature.several",
           "refusal-names-field"),
)  # fmt: skip

BORDERS: Final = (
    Mutant("best_of that equals n refused", refusing(_equal_twos, "best_of"), "rules.best-of-below-n.border",
           "status"),
    Mutant("best_of that equals n refused in streams", refusing(_equal_twos, "best_of"),
           "rules.best-of-differs-from-n-in-stream.border", "status"),
    Mutant("the least temperature refused beside best_of", refusing(lambda f: f.get("temperature") == 1e-300 and
           "best_of" in f, "best_of"), "rules.best-of-needs-temperature.border", "status"),
    Mutant("the least temperature refused beside n", refusing(lambda f: f.get("temperature") == 1e-300, "n"),
           "rules.n-needs-temperature.border", "status"),
    Mutant("an empty list of stop texts refused", refusing(lambda f: f.get("stop") == [], "stop"),
           "rules.beam-excludes-stop.border", "status"),
    Mutant("stop_token_ids null refused", refusing(lambda f: "stop_token_ids" in f and f["stop_token_ids"] is None,
           "stop_token_ids"), "rules.beam-excludes-stop-token-ids.border", "status"),
    Mutant("long arguments refused", refusing(lambda f: len(str(f.get("messages"))) > 300_000, "messages"),
           "rules.tool-call-arguments-values.border", "refusal-names-field"),
    Mutant("the longest text refused", refusing(lambda f: len(str(f.get("messages"))) > 4_194_300, "messages"),
           "rules.messages-text-length.border", "refusal-names-field"),
    Mutant("a prompt cut where it is too long", accepting(lambda f: len(str(f.get("messages"))) > 1900, messages=HELLO),
           "errors.prompt-limit", "status"),
)  # fmt: skip

MESSAGES: Final = (
    Mutant("an image of any host taken", accepting(_has_image, messages=HELLO), "request.image.unlisted-host", "status",
           IMAGE),
    Mutant("an image of an internal address taken", accepting(_has_image, messages=HELLO),
           "request.image.unlisted-address", "status", IMAGE),
    Mutant("images ignored", accepting(_has_image, messages=HELLO), "request.image.unlisted-without-images", "status"),
    Mutant("control tokens of ChatML in messages", on_request(lambda f: _with_control_tokens(f, "<|im_end|>")),
           "request.special-tokens.chatml", "prompt-tokens"),
    Mutant("arguments that are a list", accepting(lambda f: "[1]" in str(f.get("messages")), messages=HELLO),
           "request.history.arguments.no-object", "status"),
)  # fmt: skip


def _with_control_tokens(fields: Json, token: str) -> Json:
    """As if each were one token."""
    messages = [{**one, "content": one["content"].replace(token, ".")} for one in fields.get("messages") or ()]
    return {**fields, "messages": messages}


MUTANTS: Final = (*LACKS, *BORDERS, *MESSAGES)
