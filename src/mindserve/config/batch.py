"""How many sequences run at a time: the least of three keys."""

from __future__ import annotations

from mindserve.config._generated import Config


def max_batch_size(config: Config) -> tuple[int, str]:
    """Sequences in one step, and the key that says so. Each takes a token of the step and belongs to a connection."""
    schedule = config.backend_config.schedule_config
    limits = (
        (schedule.max_batch_size, "maxBatchSize"),
        (schedule.max_prefill_tokens, "maxPrefillTokens"),
        (config.server_config.max_link_num, "maxLinkNum"),
    )
    return min(limits, key=lambda limit: limit[0])
