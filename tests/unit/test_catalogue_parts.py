"""The numbers of the shipped accelerators, typed a second time.

The table was typed from the reference (network.md section 4 and gemm.csv), not from the YAML files; what the reference
lacks - fp32 rates, the memory bandwidth of the A100 PCIe - from the datasheets.
"""

from __future__ import annotations

import pytest

from simulator.world.catalog import Number, accelerator
from simulator.world.document import data_directory

GIGA, TERA = 1e9, 1e12

COLUMNS = {
    "memory": GIGA,
    "memory_bandwidth": TERA,
    "peak_flops.bf16": TERA,
    "peak_flops.fp16": TERA,
    "peak_flops.fp32": TERA,
    "peak_flops.fp8": TERA,
    "multiprocessors": 1.0,
    "matrix_efficiency": 1.0,
    "attention_efficiency": 1.0,
    "memory_efficiency": 1.0,
    "flash3_efficiency": 1.0,
    "narrow_efficiency": 1.0,
}

PARTS: dict[str, tuple[float | None, ...]] = {
    # HBM GB, TB/s, dense bf16, fp16, fp32 and fp8 TFLOP/s, multiprocessors, MAMF, attention, memory, FA3, fp8 MAMF
    "a100-pcie-80gb": (80, 1.935, 312, 312, 19.5, None, 108, 252.9 / 312, 0.55, 0.85, None, None),
    "a100-sxm-40gb": (40, 1.555, 312, 312, 19.5, None, 108, 271.2 / 312, 0.55, 0.85, None, None),
    "a100-sxm-80gb": (80, 2.04, 312, 312, 19.5, None, 108, 271.2 / 312, 0.55, 0.85, None, None),
    "b200-sxm-180gb": (
        180,
        8.0,
        2250,
        2250,
        75,
        4500,
        148,
        1745 / 2250,
        834 / 2250,
        0.85,
        834 / 2250 * 3.5 / 3,
        3432.5 / 4500,
    ),
    "b300-sxm-288gb": (
        288,
        8.0,
        2250,
        2250,
        75,
        4500,
        148,
        1769 / 2250,
        834 / 2250,
        0.85,
        834 / 2250 * 3.5 / 3,
        3353.3 / 4500,
    ),
    "gb200-186gb": (
        186,
        8.0,
        2500,
        2500,
        80,
        5000,
        152,
        1822 / 2500,
        834 / 2250,
        0.85,
        834 / 2250 * 3.5 / 3,
        3615.6 / 5000,
    ),
    "h100-pcie-80gb": (80, 2.0, 756, 756, 51, 1513, 114, 0.75, 0.35, 0.85, None, None),
    "h100-sxm-80gb": (80, 3.35, 989, 989, 67, 1979, 132, 794.5 / 989, 0.35, 0.85, 447 / 989 * 3.5 / 3, 1402.6 / 1979),
    "h100-sxm-96gb": (96, 2.4, 989, 989, 67, 1979, 132, 794.5 / 989, 0.35, 0.85, 447 / 989 * 3.5 / 3, 1402.6 / 1979),
    "h20-sxm-96gb": (96, 4.0, 148, 148, 44, 296, 78, 0.8, 0.35, 0.85, None, None),
    "h200-sxm-141gb": (141, 4.8, 989, 989, 67, 1979, 132, 794.5 / 989, 0.35, 0.85, 447 / 989 * 3.5 / 3, 1453.4 / 1979),
    "l40s-48gb": (48, 0.864, 362, 362, 91.6, 733, 142, 0.8, 0.5, 0.85, None, None),
    "mi300x-192gb": (192, 5.3, 1300, 1300, 163, 2615, 304, 668.4 / 1300, 0.3, 0.85, None, None),
    "rtx-4090-24gb": (24, 1.008, 165, 165, 82.6, None, 128, 0.8, 0.5, 0.85, None, None),
    "rtx-pro-6000-96gb": (96, 1.79, 468, 468, 120, None, 188, 0.8, 0.5, 0.85, None, None),
    "v100-sxm-32gb": (32, 0.9, None, 125, 15.7, None, 80, 0.8, 0.4, 0.85, None, None),
}

ROUNDING = 1e-3
"""The files round efficiencies to three digits; the reference rounds 2039 GB/s to 2.04 TB/s."""

MEASURED = {
    "a100-pcie-80gb",
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "b200-sxm-180gb",
    "b300-sxm-288gb",
    "gb200-186gb",
    "h100-sxm-80gb",
    "h100-sxm-96gb",
    "h200-sxm-141gb",  # gemm.csv's row of the H100 says that the H200 is the same
    "mi300x-192gb",
}
"""Parts whose matrix rate stands in gemm.csv."""


def numbers(name: str) -> dict[str, Number]:
    return {number.name.removeprefix(f"{name}."): number for number in accelerator(name).numbers()}


def test_the_table_knows_every_shipped_part() -> None:
    assert list(PARTS) == sorted(path.stem for path in (data_directory("topologies") / "parts").glob("*.yaml"))


@pytest.mark.parametrize("name", PARTS)
def test_a_part_has_the_numbers_of_its_sources_and_no_others(name: str) -> None:
    expected = {
        key: value * scale
        for (key, scale), value in zip(COLUMNS.items(), PARTS[name], strict=True)
        if value is not None
    }
    assert {key: number.value for key, number in numbers(name).items()} == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize("name", PARTS)
def test_an_efficiency_without_a_measurement_is_assumed(name: str) -> None:
    assert numbers(name)["matrix_efficiency"].basis == ("derived" if name in MEASURED else "assumed")
    assert numbers(name)["memory_efficiency"].basis == "assumed"


@pytest.mark.parametrize("name", PARTS)
def test_nothing_but_efficiencies_is_assumed(name: str) -> None:
    assert [key for key, number in numbers(name).items() if number.basis == "assumed" and number.unit] == []


def test_volta_has_no_bf16() -> None:
    assert set(accelerator("v100-sxm-32gb").peak_flops) == {"fp16", "fp32"}
