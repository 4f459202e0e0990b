"""Weights that stay quantised."""

from __future__ import annotations

import torch

from mindserve_engine.native.weights.quantised import Int4Weight, Int8Weight, concatenate, widen


def int4(rows: int, columns: int = 64, seed: int = 0) -> Int4Weight:
    generator = torch.Generator().manual_seed(seed)
    return Int4Weight(
        torch.randint(0, 16, (rows, columns), generator=generator).to(torch.uint8),
        torch.rand(rows, columns // 32, generator=generator),
        torch.randn(rows, columns // 32, generator=generator),
    )


def test_int4_dequantises_group_by_group() -> None:
    weight = int4(5)
    for row in range(5):
        for column in range(64):
            scale, minimum = weight.scale[row, column // 32], weight.minimum[row, column // 32]
            expected = float(weight.codes[row, column]) * float(scale) + float(minimum)
            assert abs(float(weight.dequantise()[row, column]) - expected) < 1e-5


def test_rows_are_taken_with_their_groups() -> None:
    order = torch.tensor([4, 0, 2])
    assert torch.equal(int4(5).take_rows(order).dequantise(), int4(5).dequantise()[order])


def test_int8_is_within_half_a_step_of_the_wide_weight() -> None:
    wide = torch.randn(7, 96)
    weight = Int8Weight.quantise(wide)
    error = (weight.codes.float() * weight.scale[:, None] - wide).abs()
    assert (error <= weight.scale[:, None] * 0.5001).all()
    assert weight.wide is wide


def test_int8_of_a_zero_row() -> None:
    weight = Int8Weight.quantise(torch.zeros(2, 32))
    assert not weight.codes.any()
    assert weight.scale.isfinite().all()


def test_concatenation_keeps_what_is_common() -> None:
    both = concatenate([int4(3, seed=1), int4(2, seed=2)])
    assert isinstance(both, Int4Weight)
    assert torch.equal(both.dequantise(), torch.cat([int4(3, seed=1).dequantise(), int4(2, seed=2).dequantise()]))
    plain = [torch.randn(3, 64), torch.randn(2, 64)]
    assert torch.equal(widen(concatenate(list(plain))), torch.cat(plain))


def test_concatenation_of_mixed_kinds_has_8_bits() -> None:
    plain = torch.randn(2, 64)
    mixed = concatenate([int4(3), plain])
    assert isinstance(mixed, Int8Weight)
    assert torch.equal(mixed.wide, torch.cat([int4(3).dequantise(), plain]))
