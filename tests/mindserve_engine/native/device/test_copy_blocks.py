"""Copies of whole KV blocks."""

import torch

from mindserve_engine.native.device.cpu import CpuDevice


def test_all_sources_are_read_before_anything_is_written() -> None:
    device = CpuDevice(num_threads=None, block_size=16)
    (cache,) = device.kv_cache(num_layers=1, num_blocks=4, block_size=16, kv_heads=2, head_dim=8, dtype=torch.float32)
    cache.copy_(torch.randn(cache.shape, generator=torch.Generator().manual_seed(0)))
    before = cache.clone()
    device.copy_blocks([cache], [(0, 1), (1, 3), (0, 2)])
    for destination, source in enumerate((0, 0, 0, 1)):
        assert torch.equal(cache[:, destination], before[:, source])
