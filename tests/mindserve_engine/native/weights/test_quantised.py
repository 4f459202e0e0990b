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
    int8 = Int8Weight.quantise(torch.randn(5, 64))
    for weight in (int4(5), int8):
        assert torch.equal(weight.take_rows(order).dequantise(), weight.dequantise()[order])


def test_int8_is_within_half_a_step_of_the_wide_weight() -> None:
    """A scale rounded down to float16 leaves the greatest weight of a group a little outside."""
    wide = torch.randn(7, 96)
    weight = Int8Weight.quantise(wide)
    error = (weight.dequantise() - wide).abs()
    assert (error <= weight.scale.repeat_interleave(32, dim=1) * 0.57).all()
    assert torch.equal(weight.scale, weight.scale.half().float())


def test_what_was_int8_stays_as_it_was() -> None:
    codes = torch.randint(-127, 128, (5, 64), dtype=torch.int8)
    codes[:, ::32] = 127
    once = Int8Weight(codes, torch.rand(5, 2).half().float())
    again = Int8Weight.quantise(once.dequantise())
    assert torch.equal(again.dequantise(), once.dequantise())
    assert torch.equal(again.codes, codes)


def test_int8_of_zeros() -> None:
    weight = Int8Weight.quantise(torch.zeros(2, 32))
    assert not weight.codes.any()
    assert not weight.dequantise().any()


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
    wide = torch.cat([int4(3).dequantise(), plain])
    assert torch.equal(mixed.dequantise(), Int8Weight.quantise(wide).dequantise())
    assert torch.equal(widen(concatenate([mixed, int4(3)]))[:5], mixed.dequantise())
