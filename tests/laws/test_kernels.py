"""Laws of kernel times."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import UnknownNameError
from simulator.laws.kernels import Kernel, kernel_time, rates
from simulator.laws.tiles import utilisation
from simulator.world.catalog import accelerator, tiles
from simulator.world.compute import Compute
from simulator.world.model.layer import Product, Work

A100, H100 = accelerator("a100-sxm-80gb"), accelerator("h100-sxm-80gb")
BF16 = Compute(precision="bf16")
PRODUCT = Work("matrix", flop=2.0 * 4096 * 4096, constant_traffic=2.0 * 4096 * 4096, product=Product(n=4096, k=4096))
NORM = Work("memory", traffic=5.0, python=10.0, fused=4.0)
SCORES = Work("attention", flop=2.0 * 2048 * 4096, scores=32.0 * 2048)


def spent(work, part=A100, *, kind="forward", tokens=4096, narrow=False, **compute):
    at = rates(part, replace(BF16, **compute))
    return kernel_time(Kernel(kind=kind, works=(work,), tokens=tokens, narrow=narrow), at)


def test_a_large_product_is_bound_by_arithmetic_and_reaches_the_efficiency():
    rate = A100.peak_flops["bf16"].value * A100.matrix_efficiency.value
    found = spent(PRODUCT, tokens=256 * 108 * 8)
    assert found.movement == 0
    assert found.total == pytest.approx(PRODUCT.flop * 256 * 108 * 8 / rate)


def test_a_product_of_few_tokens_is_bound_by_its_weights():
    found = spent(PRODUCT, tokens=1)
    assert found.arithmetic == 0
    assert found.total == PRODUCT.constant_traffic / (A100.memory_bandwidth.value * A100.memory_efficiency.value)


@given(tokens=st.integers(1, 65536))
def test_quantisation_only_costs(tokens):
    plain = replace(PRODUCT, product=None)
    assert spent(PRODUCT, tokens=tokens).total >= spent(plain, tokens=tokens).total * (1 - 1e-12)


@given(tokens=st.integers(1, 32768))
def test_a_product_of_twice_the_tokens_takes_at_most_twice_as_long(tokens):
    assert spent(PRODUCT, tokens=2 * tokens).total <= 2 * spent(PRODUCT, tokens=tokens).total * (1 + 1e-12)


def test_element_wise_kernels_move_what_their_kind_moves():
    python, kernels, compiled = (spent(NORM, element_wise=how).total for how in ("python", "kernels", "compiled"))
    assert (python / kernels, compiled / kernels) == pytest.approx((2.0, 0.8))


def test_attention_that_is_not_fused_multiplies_behind_the_mask_and_moves_each_score():
    """Forward: twice the FLOP; 20 B for each of 32 x 2048 scores of a token."""
    found = spent(SCORES, attention="naive")
    rate = A100.peak_flops["bf16"].value * A100.matrix_efficiency.value
    memory = A100.memory_bandwidth.value * A100.memory_efficiency.value
    assert found.arithmetic == pytest.approx(2 * SCORES.flop * 4096 / rate)
    assert found.movement == pytest.approx(20 * SCORES.scores * 4096 / memory)
    assert spent(SCORES, attention="sdpa") == spent(SCORES)


def test_backward_of_attention_that_is_not_fused_computes_nothing_again():
    """Fused: 5 products behind the mask's edge, 5/2 of forward; else 4 whole ones, twice what forward has."""
    backward = replace(SCORES, flop=2.5 * SCORES.flop)
    found = spent(backward, kind="backward", attention="naive")
    assert found.arithmetic == pytest.approx(2 * spent(SCORES, attention="naive").arithmetic)


def test_products_in_8_bits_run_at_that_peak_and_pay_for_conversions():
    narrow = {"narrow": True, "matrix_precision": "fp8", "tokens": 256 * 132 * 8}
    found = spent(PRODUCT, H100, **narrow)
    assert H100.narrow_efficiency is not None
    rate = H100.peak_flops["fp8"].value * H100.narrow_efficiency.value
    assert found.arithmetic == pytest.approx(PRODUCT.flop * 256 * 132 * 8 / rate)
    assert found.movement > 0
    assert spent(PRODUCT, H100, matrix_precision="fp8") == spent(PRODUCT, H100), "only inside of blocks"


def test_an_accelerator_without_such_products_is_refused():
    with pytest.raises(UnknownNameError, match=r"compute\.matrix_precision"):
        spent(PRODUCT, A100, matrix_precision="fp8")


def test_a_measured_rate_contains_shapes_and_memory():
    found = spent(PRODUCT, achieved=1e12, tokens=1)
    assert found.total == PRODUCT.flop / 1e12
    assert spent(NORM, achieved=1e12).total == 0


def test_experts_share_out_the_tokens():
    """Two of eight experts each: 4,096 tokens are 8,192 vectors, 1,024 for each expert, all in one kernel."""
    shape = {"n": 4096, "k": 4096, "count": 8, "per_token": 2}
    work = Work("matrix", flop=2.0 * 2 * 4096 * 4096, product=Product(**shape))
    peak = A100.peak_flops["bf16"].value * A100.matrix_efficiency.value
    used = utilisation(1024, 4096, 4096, A100.multiprocessors.value, tiles(), count=8)
    assert spent(work).arithmetic == pytest.approx(work.flop * 4096 / (peak * used))


def test_small_experts_leave_multiprocessors_idle():
    """64 experts get 16 tokens each, a sixteenth of a tile's rows or a quarter of the smallest's."""
    dense = Work("matrix", flop=2.0 * 1024 * 1024, product=Product(n=1024, k=1024))
    sparse = replace(dense, product=Product(n=1024, k=1024, count=64))
    assert spent(sparse, tokens=1024).arithmetic > 3 * spent(dense, tokens=64 * 1024).arithmetic / 64
