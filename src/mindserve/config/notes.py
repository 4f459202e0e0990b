"""What an operator should know at the start: what has no effect, what was lowered, what may surprise."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from mindserve.config._generated import Config
from mindserve.config.batch import max_batch_size
from mindserve.config.known_keys import ignored_keys, unknown_keys
from mindserve.config.listen import listen_addresses
from mindserve.config.overrides import the_model
from mindserve.config.paths import api_key_file
from mindserve.config.settings import Dialect
from mindserve.config.vllm_rules import plugins_without_effect, vllm_notes


def start_notes(path: Path | None, raw: dict[str, object], config: Config, base: Path) -> tuple[str, ...]:
    """One line each. ``raw`` is the file's content, ``config`` what came of it, ``base`` where relative paths start."""
    files = (*_file_notes(path), *_key_notes(config, base))
    return (*files, *unknown_keys(raw), *_ignored_note(raw), *_config_notes(config))


def _file_notes(path: Path | None) -> Iterator[str]:
    """MindIE insists on mode 640. What matters is that nobody else can make the server load another model or key."""
    if path is not None and path.stat().st_mode & stat.S_IWOTH:
        yield f"{path} can be changed by everyone on this machine: chmod o-w it"


def _key_notes(config: Config, base: Path) -> Iterator[str]:
    keys = {listen.tls.key for listen in listen_addresses(config, base) if listen.tls is not None}
    for key in sorted(key for key in keys if key is not None):
        if key.stat().st_mode & stat.S_IROTH:
            yield f"the private key {key} can be read by everyone on this machine: chmod o-r it"
    file = api_key_file(config, base)
    if file is not None and file.stat().st_mode & stat.S_IROTH:
        yield f"the API keys in {file} can be read by everyone on this machine: chmod o-r it"


def _ignored_note(raw: dict[str, object]) -> Iterator[str]:
    keys = ignored_keys(raw)
    if keys:
        yield f"ignored, without a meaning here: {', '.join(keys)}"


def _device_notes(config: Config) -> Iterator[str]:
    model, numbers = the_model(config), config.backend_config.npu_device_ids
    if model.backend_type == "vllm":
        if numbers:
            yield "npuDeviceIds has no effect on vLLM: ASCEND_RT_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES picks devices"
    elif model.device == "cpu" and (numbers or max(model.world_size or 1, model.tp, model.pp, model.dp) > 1):
        yield "npuDeviceIds, worldSize, tp, pp and dp have no effect on the CPU"


def _config_notes(config: Config) -> Iterator[str]:
    server, deploy = config.server_config, config.backend_config.model_deploy_config
    schedule = config.backend_config.schedule_config
    if server.full_text_enabled and server.open_ai_support != Dialect.VLLM:
        yield "fullTextEnabled has no effect where openAiSupport is not vllm"
    elif server.full_text_enabled:
        yield "fullTextEnabled: clients of OpenAI's API will show streamed text many times over"
    if deploy.truncation not in (None, 0, False):
        yield "truncation: prompts that are too long are refused here, not cut"
    if deploy.max_seq_len is not None and (deploy.max_input_token_len or 0) >= deploy.max_seq_len:
        yield f"maxInputTokenLen {deploy.max_input_token_len} is lowered to {deploy.max_seq_len - 1}, maxSeqLen - 1"
    yield from _device_notes(config)
    size, key = max_batch_size(config)
    if size < schedule.max_batch_size:
        yield f"maxBatchSize {schedule.max_batch_size} is lowered to {size}, {key}"
    without_effect = plugins_without_effect(config)
    if without_effect:
        yield f"plugin_params: no effect here: {', '.join(without_effect)}"
    yield from vllm_notes(config)
