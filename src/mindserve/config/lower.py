"""From a config to settings: pure functions."""

from __future__ import annotations

from mindserve.config.load import LoadedConfig
from mindserve.config.media import media_settings
from mindserve.config.model_types import model_type_settings
from mindserve.config.overrides import the_model
from mindserve.config.packaged import PackagedModel
from mindserve.config.paths import model_place
from mindserve.config.settings import MIB, Dialect, LogSettings, ServeSettings


def serve_settings(loaded: LoadedConfig) -> ServeSettings:
    """What the front end needs of a config."""
    config = loaded.config
    server, backend = config.server_config, config.backend_config
    deploy = backend.model_deploy_config
    return ServeSettings(
        model_name=model_name(loaded),
        lora_names=tuple(module.name for module in deploy.lora_modules),
        dialect=Dialect.VLLM if server.open_ai_support == Dialect.VLLM else Dialect.OPENAI,
        api_keys=loaded.api_keys,
        cors_allow_origins=tuple(origin.root for origin in server.cors_allow_origins),
        browser_pages=server.browser_pages,
        max_iter_times=backend.schedule_config.max_iter_times,
        max_input_token_len=deploy.max_input_token_len,
        max_seq_len=deploy.max_seq_len,
        token_timeout_s=float(server.token_timeout),
        e2e_timeout_s=float(server.e2e_timeout),
        max_request_bytes=server.max_request_length * MIB,
        max_messages_length=server.max_messages_length,
        max_json_depth=server.max_json_depth,
        full_text_enabled=server.full_text_enabled,
        allow_empty_content=server.allow_empty_content,
        drain_timeout_s=float(server.drain_timeout),
        keep_alive_s=server.keep_alive_timeout,
        heartbeat_s=float(server.stream_heartbeat) or None,
        max_connections=server.max_link_num * backend.model_instance_number,
        max_waiting=max_waiting(loaded),
        tokenizer_workers=backend.tokenizer_process_number,
        tokenizer_timeout_s=float(server.tokenizer_timeout),
        model_types=model_type_settings(config, loaded.base),
        media=media_settings(config.media_config, loaded.base, loaded.media_hosts),
        tool_call_parser=_packaged_parser(loaded),
        trust_remote_code=the_model(config).trust_remote_code,
    )


def _packaged_parser(loaded: LoadedConfig) -> str | None:
    place = model_place(loaded.config, loaded.base)
    return place.tool_call_parser if isinstance(place, PackagedModel) else None


def log_settings(loaded: LoadedConfig, typed_level: str | None) -> LogSettings:
    """What is logged; ``typed_level`` of the command line wins."""
    log = loaded.config.log_config
    level = (typed_level or log.dynamic_log_level or LogSettings().level).upper()
    return LogSettings(level="WARNING" if level == "WARN" else level, requests=log.access_log_enabled)


def max_waiting(loaded: LoadedConfig) -> int:
    """Requests that may wait: maxQueueSize, or the length of MindIE's own queue."""
    server = loaded.config.server_config
    return server.max_queue_size if server.max_queue_size is not None else 2 * server.max_link_num


def model_name(loaded: LoadedConfig) -> str:
    """modelName, or the name of the weights' folder or file without ``.gguf``."""
    name = the_model(loaded.config).model_name
    if name is not None:
        return name
    place = model_place(loaded.config, loaded.base)
    if isinstance(place, PackagedModel):
        return place.title
    path = place.resolve()
    return path.stem if path.is_file() else path.name
