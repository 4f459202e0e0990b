"""What users of such servers reported about clients (B), streams (C), tool calls and reasoning (D): for each report the
tests of its kind of fault.

The numbers are those of the collection of reports that the project started from; those left out of it are not missing
here. Whoever renames or deletes one of these tests is told which report loses its proof."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
THEMES: Final = {
    "B": (2, 4, 5, 7, 9, 10, 12, 14, 15),
    "C": (1, 3, 4, 6, 8, 9, 11, 13, 14, 16, 18, 19),
    "D": (2, 4, 5, 7, 9, 10, 12, 14, 15, 17, 19),
}
API, CHAT, INTEGRATION = "mindserve/api", "mindserve/chat", "integration"

PROOFS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "B02": (
        "a role that is null or empty in a delta",
        (
            f"{INTEGRATION}/test_requests.py::test_answered[log-probabilities]",
            f"{INTEGRATION}/test_tools.py::test_calls",
        ),
    ),
    "B04": (
        "an answer sent back with empty, null and foreign fields",
        (
            f"{INTEGRATION}/test_requests.py::test_answered[empty calls in history]",
            f"{INTEGRATION}/test_requests.py::test_answered[an answer sent back with all its fields]",
            f"{CHAT}/test_conversation.py::test_no_tool_calls_are_none",
        ),
    ),
    "B05": (
        "calls in the history beside no content",
        (
            f"{INTEGRATION}/test_tools.py::test_results_are_sent_back",
            f"{API}/test_checks.py::test_calls_and_tool_results_need_no_content",
            f"{CHAT}/test_qwen.py::test_what_clients_send_back_changes_nothing",
            f"{CHAT}/test_dropped.py::test_tool_calls_that_the_template_skips_are_refused",
        ),
    ),
    "B07": (
        "content as a list of parts, in any role",
        (
            f"{INTEGRATION}/test_requests.py::test_answered[lists of text parts]",
            f"{INTEGRATION}/test_requests.py::test_refused[an image for a model of text-True]",
            f"{CHAT}/test_conversation.py::test_text_parts_are_joined_without_a_separator",
        ),
    ),
    "B09": (
        "fields that other servers know",
        (
            f"{INTEGRATION}/test_requests.py::test_answered[fields of other servers]",
            f"{INTEGRATION}/test_requests.py::test_refused[a known field of a wrong type beside unknown ones-True]",
            f"{API}/test_decode.py::test_unknown_fields_are_ignored_at_every_level",
        ),
    ),
    "B10": (
        "the newer name of max_tokens",
        (
            f"{INTEGRATION}/test_requests.py::test_answered[max_completion_tokens]",
            f"{API}/test_lower.py::test_max_tokens",
        ),
    ),
    "B12": (
        "a refusal that clients cannot read",
        (
            f"{API}/test_dialect.py::test_refusals",
            f"{INTEGRATION}/test_clients.py::test_openai_errors",
            f"{INTEGRATION}/test_requests.py::test_refused[no messages-True]",
            f"{INTEGRATION}/test_http.py::test_openai_dialect_statuses",
        ),
    ),
    "B14": (
        "arguments that are an object instead of JSON text",
        (
            f"{INTEGRATION}/test_tools.py::test_calls[arguments are JSON text]",
            f"{INTEGRATION}/test_tools.py::test_results_are_sent_back",
        ),
    ),
    "B15": (
        "keys that typed clients require",
        (
            f"{INTEGRATION}/test_random_requests.py::test_every_answer_keeps_the_contract",
            f"{INTEGRATION}/test_agents.py::test_a_loop",
            f"{API}/test_assemble.py::test_key_order_of_a_body",
            f"{API}/test_assemble.py::test_key_order_of_chunks",
        ),
    ),
    # The chunk of usage alone is the openai dialect's wire; here: where the document has the usage.
    "C01": (
        "usage in a stream where clients do not look for it",
        (f"{INTEGRATION}/test_requests.py::test_answered[usage asked for]",),
    ),
    "C03": (
        "usage told more than once",
        (
            f"{INTEGRATION}/test_requests.py::test_answered[usage asked for]",
            f"{INTEGRATION}/test_sequences.py::test_streams_give_sequences_as_they_grow",
            f"{API}/test_assemble.py::test_calls_in_a_stream",
        ),
    ),
    "C04": (
        "stream_options without a stream",
        (f"{INTEGRATION}/test_requests.py::test_answered[usage asked for]",),
    ),
    "C06": (
        "text that differs between stream and body",
        (
            f"{CHAT}/test_detokenize.py::test_pieces_of_random_tokens_join_to_the_librarys_decode",
            f"{CHAT}/test_detokenize.py::test_any_split_of_byte_pieces_gives_the_same_text",
            f"{API}/test_assemble.py::test_deltas_joined_are_the_content",
            f"{INTEGRATION}/test_random_requests.py::test_a_stream_and_a_body_say_the_same",
        ),
    ),
    "C08": (
        "a stop string that begins inside a token",
        (
            f"{INTEGRATION}/test_requests.py::test_answered[a stop string across tokens]",
            f"{INTEGRATION}/test_requests.py::test_answered[a stop string that is kept]",
            f"{CHAT}/test_stop.py::test_any_split_gives_what_the_definition_says",
            f"{API}/test_assemble.py::test_a_stop_string_ends_the_answer_and_what_follows_is_not_counted",
        ),
    ),
    "C09": (
        "held back text that is lost at the end",
        (
            f"{INTEGRATION}/test_requests.py::test_answered[a stop string that never comes]",
            f"{API}/test_assemble.py::test_text_held_back_makes_no_chunk_and_is_flushed_with_the_finish",
            f"{CHAT}/test_output.py::test_held_text_comes_out_at_the_end",
        ),
    ),
    "C11": (
        "a choice without a finish reason",
        (
            f"{INTEGRATION}/test_tools.py::test_calls[the last piece is held back]",
            f"{API}/test_assemble.py::test_a_call_at_the_end_has_the_last_chunk",
        ),
    ),
    "C13": (
        "a failure in a stream that looks like an end",
        (
            f"{INTEGRATION}/test_failures.py::test_in_a_stream_it_is_the_last_event",
            f"{INTEGRATION}/test_clients.py::test_openai_sees_a_broken_stream",
        ),
    ),
    "C14": (
        "frames that parsers of event streams drop",
        (
            f"{API}/test_sse.py::test_a_frame_is_one_line_and_a_blank_one",
            f"{INTEGRATION}/test_http.py::test_stream_headers",
            f"{INTEGRATION}/test_clients.py::test_another_parser_of_event_streams",
            f"{INTEGRATION}/test_clients.py::test_heartbeats_are_comments",
        ),
    ),
    "C16": (
        "log-probabilities that are no numbers",
        (
            "mindserve_engine/native/sampling/test_logprobs.py::test_what_is_ruled_out_has_the_floor",
            "mindserve_engine/native/sampling/test_sampler.py::test_a_broken_row_fails_alone",
            "engine/test_logprobs_equality.py::test_before_penalties_temperature_and_truncation",
            f"{INTEGRATION}/test_requests.py::test_answered[log-probabilities]",
        ),
    ),
    "C18": (
        "tokens that are kept to be sent together",
        (
            f"{INTEGRATION}/test_clients.py::test_each_token_is_sent_at_once",
            f"{INTEGRATION}/test_disconnects.py::test_the_opening_chunk_does_not_wait_for_a_token",
        ),
    ),
    "C19": (
        "cumulative text that nobody asked for",
        (
            "mindserve/config/test_lower.py::test_an_empty_config_gives_the_settings_defaults",
            "mindserve/config/test_load.py::test_the_operator_is_told_what_may_surprise",
            f"{API}/test_assemble.py::test_deltas_joined_are_the_content",
        ),
    ),
    "D02": (
        "several calls under one index or id",
        (
            f"{INTEGRATION}/test_tools.py::test_calls[several calls, other alphabets]",
            f"{INTEGRATION}/test_tools.py::test_names_of_calls_are_unique",
            f"{INTEGRATION}/test_agents.py::test_a_loop",
        ),
    ),
    "D04": (
        "calls that depend on how the text was cut",
        (
            f"{CHAT}/parsing/test_corpus.py::test_every_cut_in_two",
            f"{CHAT}/parsing/test_corpus.py::test_cuts_in_many",
            f"{CHAT}/parsing/test_machine.py::test_the_cuts_of_any_text_make_no_difference",
            f"{INTEGRATION}/test_tools.py::test_calls[everything in one token]",
        ),
    ),
    "D05": (
        "a call without arguments",
        (
            f"{INTEGRATION}/test_tools.py::test_calls[no arguments are {{}}]",
            f"{INTEGRATION}/test_tools.py::test_results_are_sent_back",
            f"{CHAT}/test_conversation.py::test_arguments_are_parsed",
        ),
    ),
    "D07": (
        "other alphabets escaped on their way",
        (
            f"{INTEGRATION}/test_tools.py::test_calls[several calls, other alphabets]",
            f"{CHAT}/test_template.py::test_tojson_leaves_other_scripts_readable",
            f"{CHAT}/test_conversation.py::test_arguments_are_json_text_for_templates_that_want_it",
        ),
    ),
    "D09": (
        "a call that ends with another finish reason",
        (
            f"{INTEGRATION}/test_tools.py::test_calls[several calls, other alphabets]",
            f"{INTEGRATION}/test_enforced.py::test_calls_are_made[required]",
            f"{INTEGRATION}/test_enforced.py::test_calls_are_made[named]",
        ),
    ),
    "D10": (
        "a finish reason of calls without a call",
        (
            f"{INTEGRATION}/test_tools.py::test_calls[no call at all]",
            f"{INTEGRATION}/test_tools.py::test_calls[malformed calls are content]",
            f"{INTEGRATION}/test_enforced.py::test_calls_are_made[required]",
            f"{API}/test_lower.py::test_calls_are_not_forced_without_constrained_decoding",
        ),
    ),
    "D12": (
        "tools told or read where there should be none, and missed behind reasoning",
        (
            f"{INTEGRATION}/test_tools.py::test_without_tools_nothing_is_a_call",
            f"{INTEGRATION}/test_tools.py::test_calls_come_behind_the_reasoning",
            f"{INTEGRATION}/test_tools.py::test_calls_are_told_where_thinking_is_switched_off",
            f"{API}/test_lower.py::test_tools_of_the_template",
        ),
    ),
    "D14": (
        "reasoning of which the prompt has the opening tag",
        (
            f"{INTEGRATION}/test_tools.py::test_reasoning[only the closing tag comes]",
            f"{INTEGRATION}/test_tools.py::test_reasoning[the limit comes first]",
            f"{CHAT}/test_tokenizer.py::test_a_prompt_may_end_inside_the_thoughts",
            f"{CHAT}/parsing/test_machine.py::test_thoughts_end_once",
        ),
    ),
    "D15": (
        "content taken for reasoning where thinking is off",
        (
            f"{INTEGRATION}/test_tools.py::test_reasoning[thinking is switched off]",
            f"{CHAT}/parsing/test_machine.py::test_a_tag_is_held_back_only_while_it_may_be_one",
            f"{CHAT}/parsing/test_corpus.py::test_every_cut_in_two",
        ),
    ),
    "D17": (
        "reasoning under one of its two names",
        (
            f"{INTEGRATION}/test_tools.py::test_reasoning[only the closing tag comes]",
            f"{INTEGRATION}/test_tools.py::test_thoughts_that_are_sent_back_reach_the_template",
            f"{INTEGRATION}/test_agents.py::test_a_loop_with_thoughts",
        ),
    ),
    "D19": (
        "a template that raises, or none",
        (
            f"{INTEGRATION}/test_requests.py::test_a_template_that_objects_is_quoted",
            f"{CHAT}/test_template.py::test_a_refusal_names_the_message_and_quotes_the_template",
            f"{CHAT}/test_tokenizer.py::test_a_missing_template_is_refused_and_can_be_given",
        ),
    ),
}
"""Report -> the kind of fault, and its tests: a function, or one of its cases in brackets."""


@pytest.fixture(scope="module")
def collected(request: pytest.FixtureRequest) -> set[str]:
    """All tests of the files that are named: the functions, and each of their cases."""
    files = {f"tests/{test.partition('::')[0]}" for _, tests in PROOFS.values() for test in tests}
    nodes = {item.nodeid for item in request.session.items}
    if not files <= {node.partition("::")[0] for node in nodes}:  # not the whole suite is running
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *sorted(files)]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        nodes = set(run.stdout.splitlines())
    nodes = {node.removeprefix("tests/") for node in nodes}
    return nodes | {node.partition("[")[0] for node in nodes}


def test_every_report_has_its_tests(collected: set[str]) -> None:
    missing = {report: [test for test in tests if test not in collected] for report, (_, tests) in PROOFS.items()}
    assert {report: tests for report, tests in missing.items() if tests} == {}


def test_every_report_is_here() -> None:
    assert list(PROOFS) == [f"{theme}{number:02}" for theme, numbers in THEMES.items() for number in numbers]
    assert all(kind and tests for kind, tests in PROOFS.values())
