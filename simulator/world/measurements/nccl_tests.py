"""Logs of nccl-tests (and rccl-tests), as launchers leave them.

A row is recognised wherever it stands in a line, by its two whole numbers and a data type, so that the prefixes of
mpirun, srun and kubectl do not matter.  Which columns follow is read from the header above; blank ``redop`` cells,
``N/A`` and lines of NCCL in between are survived.

Formats met: ``error`` and ``#wrong`` columns, without and with ``root``, ``redop`` blank or absent, wide type columns,
headers that do not stand above their numbers, ``cputime``, more columns at the end, rows elided with ``...``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from simulator.errors import InputError

__all__ = ["KINDS", "Row", "Timing", "read_nccl_tests", "rows_of"]

KINDS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter", "sendrecv",
    "hypercube",
)  # fmt: skip
"""What nccl-tests can measure."""

_SPELLINGS = {"alltoall": "all_to_all", "allreduce": "all_reduce", "allgather": "all_gather"} | {
    kind.replace("_", ""): kind for kind in KINDS
}

_TYPES = {
    "int8": 1, "uint8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "f8e4m3": 1, "f8e5m2": 1, "half": 2, "bfloat16": 2, "int32": 4,
    "uint32": 4, "float": 4, "int64": 8, "uint64": 8, "double": 8,
}  # fmt: skip
"""Data type: bytes."""

_ROW = re.compile(rf"(?<![\w.])(\d+)\s+(\d+)\s+({'|'.join(_TYPES)})\s(.*)$")
_HEADER = re.compile(r"#\s*size\s+count\s.*\btype\b.*\b(?:cpu)?time\b.*$")
_DEVICE = re.compile(r"#\s+Rank\s+(\d+)\s.*\bon\s+(\S+)\s+device\s")
_PREAMBLE = re.compile(r"#\s*nThread\s+\d+\s+nGpus\s+\d+")
_VERSION = re.compile(r"#\s*(?:nccl|rccl)-tests version\s+(\S+)")
_LIBRARY = re.compile(r"\b[NR]CCL version\s*:?\s*(\d[\w.+-]*)")
_PROGRAM = re.compile(rf"\b({'|'.join(_SPELLINGS | dict.fromkeys(KINDS))})(?:_perf|_?test)?\b")
_PLACEHOLDER = re.compile(r"[Xx]+(\.[Xx]+)?$|[<?.*_-]+.*$")

_US_PER_S, _GBPS = 1e6, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One of the two measurements of a row."""

    time: float
    """[s]"""
    algbw: float
    """Size per time [B/s]."""
    busbw: float
    """What that loads the busiest link with [B/s]."""
    wrong: float | None = None
    """Wrong values, or the error in old versions; None where the test did not check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a table."""

    kind: str
    """One of :data:`KINDS`."""
    size: int
    """Bytes of the whole array."""
    count: int
    """Elements, as the log counts them: those of one rank for gathering kinds."""
    dtype: str
    redop: str | None
    root: int | None
    out_of_place: Timing | None
    in_place: Timing | None
    ranks: int | None
    """From the list of devices, else worked out from size and count or from busbw and algbw; None if neither tells."""
    hosts: int | None
    """Different host names in the list of devices."""
    version: str | None
    """Of nccl-tests."""
    library: str | None
    """Of NCCL or RCCL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    redop: bool
    root: bool
    groups: tuple[tuple[str, ...], ...]
    """Names of the columns of each measurement, from its time on."""
    first: Literal["out_of_place", "in_place"]


@dataclass(slots=True, kw_only=True)
class _Table:
    """What is known when a row comes."""

    kind: str | None = None
    version: str | None = None
    library: str | None = None
    devices: dict[int, str] = field(default_factory=dict)
    columns: _Columns | None = None
    in_place_only: bool = False
    rows: list[Row] = field(default_factory=list)
    lines: list[tuple[str, str, str]] = field(default_factory=list)
    """As printed: busbw and algbw of every measurement, with the key of the row for errors."""


def read_nccl_tests(path: Path, kind: str | None = None) -> tuple[Row, ...]:
    """Read every table of the log at *path*.

    Parameters
    ----------
    path
        What the test printed, with anything that launchers and NCCL printed beside it.
    kind
        One of :data:`KINDS`, for a log that does not name its test; default: the log, the file's name, the columns.

    Raises
    ------
    InputError
        No table, placeholders instead of numbers, a row that does not fit its header, or a test that nothing names.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise InputError("no such file", file=path, remedy="check the path") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path) from None
    return rows_of(text, path, kind)


def rows_of(text: str, file: object, kind: str | None = None) -> tuple[Row, ...]:
    """Read every table in *text* as :func:`read_nccl_tests` does; *file* is named in errors."""
    if kind is not None and kind not in KINDS:
        raise InputError("unknown kind", file=file, value=kind, remedy=f"known: {', '.join(KINDS)}")
    tables = [table for table in _tables(text, file) if table.rows]
    if not tables:
        remedy = "save all that the test prints, from '# size count type' on"
        raise InputError("no table of nccl-tests in this file", file=file, remedy=remedy)
    return tuple(row for table in tables for row in _completed(table, kind, file))


def _tables(text: str, file: object) -> Iterator[_Table]:
    table = _Table()
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if _starts_again(line, table):
            yield table
            table = replace(table, kind=None, devices={}, columns=None, in_place_only=False, rows=[], lines=[])
        row = _ROW.search(line)
        if row and not line.lstrip().startswith("#"):
            last = number == len(lines)
            _take_row(row, table, file, f"line {number}", last)
        else:
            _take_line(line, table)
    yield table


def _starts_again(line: str, table: _Table) -> bool:
    """True at the first line that belongs to another table."""
    signs = (_PREAMBLE, _HEADER, _DEVICE, _VERSION)
    return bool(table.rows) and (any(sign.search(line) for sign in signs) or _program(line) is not None)


def _program(line: str) -> str | None:
    """Kind of the test that *line* says is started."""
    if ("_perf" in line or "test starting" in line) and "concluded" not in line and (found := _PROGRAM.search(line)):
        return _SPELLINGS.get(found[1], found[1])
    return None


def _take_line(line: str, table: _Table) -> None:
    """Learn from a line that is no row."""
    if found := _DEVICE.search(line):
        table.devices[int(found[1])] = found[2]
    elif found := _HEADER.search(line):
        table.columns = _columns(found[0], "in_place" if table.in_place_only else "out_of_place")
    elif "in-place" in line and "#" in line:
        table.in_place_only = "out-of-place" not in line
    elif found := _VERSION.search(line):
        table.version = found[1]
    elif found := _LIBRARY.search(line):
        table.library = found[1]
    elif kind := _program(line):
        table.kind = kind


def _columns(header: str, first: Literal["out_of_place", "in_place"]) -> _Columns:
    words = header.replace("#", " ").split()
    starts = [index for index, word in enumerate(words) if word in ("time", "cputime")]
    ends = [*starts[1:], len(words)]
    groups = tuple(tuple(words[start:end]) for start, end in zip(starts, ends, strict=True))
    left = words[: starts[0]]
    return _Columns(redop="redop" in left, root="root" in left, groups=groups, first=first)


def _take_row(row: re.Match[str], table: _Table, file: object, key: str, last: bool) -> None:
    if table.columns is None:
        remedy = "keep the line '# size count type ...' above the rows"
        raise InputError("a row without the header that names its columns", file=file, key=key, remedy=remedy)
    words = row[4].split()
    columns = table.columns
    redop = words.pop(0) if columns.redop and words and not _numeric(words[0]) and words[0] != "N/A" else None
    if redop and _PLACEHOLDER.fullmatch(redop):
        raise _no_number(redop, file, key)
    root = int(words.pop(0)) if columns.root and words and re.fullmatch(r"-?\d+", words[0]) else None
    needed = sum(len(group) for group in columns.groups[:2])
    if len(words) < needed:
        if last:
            return  # the log was cut off while it was written
        problem = f"expected {needed} numbers after the type, found {len(words)}"
        raise InputError(problem, file=file, key=key, remedy="the row is cut off: delete it or save the log again")
    timings = []
    for group in columns.groups[:2]:
        timings.append(_timing(dict(zip(group, words, strict=False)), table, file, key))
        words = words[len(group) :]
    if columns.first == "in_place":
        timings = [None, *timings]
    out_of_place, in_place = (*timings, None)[:2]
    table.rows.append(
        Row(
            kind="", size=int(row[1]), count=int(row[2]), dtype=row[3], redop=redop, root=root,
            out_of_place=out_of_place, in_place=in_place, ranks=None, hosts=None,
            version=table.version, library=table.library,
        )
    )  # fmt: skip


def _timing(cells: dict[str, str], table: _Table, file: object, key: str) -> Timing | None:
    time = cells.get("time", cells.get("cputime", "N/A"))
    if time == "N/A":
        return None
    algbw, busbw = cells.get("algbw", "N/A"), cells.get("busbw", "N/A")
    for cell in (time, algbw, busbw):
        if not _numeric(cell):
            raise _no_number(cell, file, key)
    table.lines.append((busbw, algbw, key))
    wrong = next((cells[name] for name in ("#wrong", "wrong", "error") if name in cells), "N/A")
    return Timing(
        time=float(time) / _US_PER_S,
        algbw=float(algbw) * _GBPS,
        busbw=float(busbw) * _GBPS,
        wrong=float(wrong) if _numeric(wrong) else None,
    )


def _no_number(cell: str, file: object, key: str) -> InputError:
    if _PLACEHOLDER.fullmatch(cell):
        problem = "a placeholder stands where a number belongs: this is documentation, not a measurement"
        return InputError(problem, file=file, key=key, value=cell, remedy="use the log of a run")
    return InputError(
        "expected a number", file=file, key=key, value=cell, remedy="delete the row or save the log again"
    )


def _numeric(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _completed(table: _Table, kind: str | None, file: object) -> Iterator[Row]:
    """Rows with what only the whole table tells."""
    chosen = kind or table.kind or _named(file) or _by_columns(table, file)
    ranks = len(table.devices) or _ranks_by_count(table.rows, chosen) or _ranks_by_bandwidth(table.lines, chosen)
    for row in table.rows:
        yield replace(row, kind=chosen, ranks=ranks, hosts=len(set(table.devices.values())) or None)


def _named(file: object) -> str | None:
    """Kind in the file's name; the longest name wins, because ``reduce`` is in ``all_reduce``."""
    name = re.sub(r"[^a-z]", "", Path(str(file)).name.lower())
    found = [spelling for spelling in _SPELLINGS if spelling in name]
    return _SPELLINGS[max(found, key=len)] if found else None


def _by_columns(table: _Table, file: object) -> str:
    """Tell by busbw/algbw: above 1 only for all_reduce, below 1 with an operation only for reduce_scatter."""
    measured = [each for row in table.rows for each in (row.out_of_place, row.in_place) if each and each.algbw]
    largest = max(measured, key=lambda each: each.algbw, default=None)
    if largest and largest.busbw > 1.02 * largest.algbw:
        return "all_reduce"
    if largest and largest.busbw < 0.98 * largest.algbw and table.rows[0].redop not in (None, "none"):
        return "reduce_scatter"
    raise InputError(
        "which collective was measured? neither the log nor the file's name says",
        file=file,
        remedy=f"name it: {', '.join(KINDS)}",
    )


def _ranks_by_count(rows: Sequence[Row], kind: str) -> int | None:
    """Gathering kinds count the elements of one rank and the bytes of all."""
    if kind not in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "hypercube"):
        return None
    found = {row.size // (row.count * _TYPES[row.dtype]) for row in rows if row.count}
    return found.pop() if len(found) == 1 and found != {1} else None


def _ranks_by_bandwidth(lines: Sequence[tuple[str, str, str]], kind: str) -> int | None:
    """The one number of ranks that busbw/algbw, as far as they were printed, leave possible."""
    if kind not in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        return None
    factor = 2.0 if kind == "all_reduce" else 1.0
    low, high = 2.0, math.inf
    for busbw, algbw, _ in lines:
        (bus_low, bus_high), (alg_low, alg_high) = _rounded(busbw), _rounded(algbw)
        if alg_low <= 0:
            continue
        low = max(low, _ranks(bus_low / alg_high / factor))
        high = min(high, _ranks(bus_high / alg_low / factor))
    if math.isinf(low) or math.isinf(high):
        return None
    first = math.ceil(low)
    return first if first == math.floor(high) else None


def _ranks(share: float) -> float:
    """Ranks n of the share (n-1)/n."""
    return 1 / (1 - share) if share < 1 else math.inf


def _rounded(printed: str) -> tuple[float, float]:
    """Return between what *printed* was before it was rounded, and a bit more: algbw comes from a rounded time."""
    half = 0.51 * 10 ** -len(printed.partition(".")[2])
    return float(printed) - half, float(printed) + half
