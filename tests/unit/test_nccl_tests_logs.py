"""Logs of nccl-tests: every version, every launcher, and lines that help where there is nothing to read."""

import pytest

from simulator.errors import InputError
from simulator.world.measurements.nccl_tests import read_nccl_tests, rows_of

GB = 1e9

NEW = """\
# nccl-tests version 2.13.10 nccl-headers=22105 nccl-library=22105
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid 100 on alpha device  0 [0000:10:1c] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid 101 on alpha device  1 [0000:10:1d] NVIDIA A100-SXM4-40GB
#  Rank  2 Group  0 Pid 102 on beta device  0 [0000:10:1c] NVIDIA A100-SXM4-40GB
#  Rank  3 Group  0 Pid 103 on beta device  1 [0000:10:1d] NVIDIA A100-SXM4-40GB
NCCL version 2.21.5+cuda12.4
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    309.4    3.39    5.09      0    307.3    3.41    5.12    N/A
alpha:100:100 [0] NCCL INFO AllReduce: opCount 0
  1073741824     268435456  bfloat16     sum      -1    26217   40.96   61.43      2    26194   40.99   61.49      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 33.2
# Collective test concluded: all_reduce_perf
"""
HEADER = "\n".join(NEW.splitlines()[11:14])
ROW = NEW.splitlines()[14]


def test_a_new_log_tells_everything():
    first, last = rows_of(NEW, "run.log")
    assert (first.kind, first.size, first.count, first.dtype, first.redop, first.root) == (
        "all_reduce", 1048576, 262144, "float", "sum", -1,
    )  # fmt: skip
    assert (first.ranks, first.hosts, first.version, first.library) == (4, 2, "2.13.10", "2.21.5+cuda12.4")
    assert (first.out_of_place.time, first.out_of_place.algbw, first.out_of_place.busbw) == (
        309.4 / 1e6,
        3.39 * GB,
        5.09 * GB,
    )
    assert (first.out_of_place.wrong, first.in_place.wrong) == (0, None)
    assert (last.dtype, last.in_place.time, last.out_of_place.wrong) == ("bfloat16", 26194 / 1e6, 2)


@pytest.mark.parametrize("prefix", [
    "0: ", " 0: ", "[1,0]<stdout>:", "   [1,0]<stdout>:", "[1,0]<stderr>: ", "alpha: ", "[pod/launcher-x7/mpi] ",
    "2024-05-01T10:00:00.123Z ", "\t", "| ",
])  # fmt: skip
def test_prefixes_of_launchers_do_not_matter(prefix):
    tagged = "\n".join(prefix + line for line in NEW.splitlines())
    assert rows_of(tagged, "run.log") == rows_of(NEW, "run.log")


def test_windows_line_ends_and_elided_rows_do_not_matter():
    elided = NEW.replace(ROW, ROW + "\n   ...\n", 1).replace("\n", "\r\n")
    assert rows_of(elided, "run.log") == rows_of(NEW, "run.log")


OLD_HEADER = (
    "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error"
)


def test_error_columns_and_no_root():
    row = "     1048576        262144   float     sum    135.3    7.75   15.02  7e-07    132.7    7.90   15.31    N/A"
    (found,) = rows_of(f"{OLD_HEADER}\n{row}\n", "x_allreduce.log")
    assert (found.root, found.redop, found.out_of_place.wrong, found.in_place.wrong) == (None, "sum", 7e-07, None)
    assert found.in_place.busbw == 15.31 * GB


def test_a_blank_operation_does_not_shift_columns():
    row = "          32             1   float            89.00    0.00    0.00    N/A    85.13    0.00    0.00    N/A"
    (found,) = rows_of(f"{OLD_HEADER}\n{row}\n", "alltoall.log")
    assert (found.kind, found.redop, found.ranks) == ("all_to_all", None, 8)
    assert (found.out_of_place.time, found.in_place.time) == (89.0 / 1e6, 85.13 / 1e6)


def test_no_operation_column_at_all():
    header = OLD_HEADER.replace("redop", "     ")
    row = "          64             2   float    34.36    0.00    0.00    N/A    33.83    0.00    0.00    N/A"
    (found,) = rows_of(f"{header}\n{row}\n", "allgather.log")
    assert (found.kind, found.redop, found.ranks, found.in_place.time) == ("all_gather", None, 8, 33.83 / 1e6)


def test_more_columns_at_the_end_and_cpu_time_are_survived():
    header = HEADER.replace(" time ", " cputime ") + "  timestamp"
    (found,) = rows_of(f"{header.splitlines()[1]}  timestamp\n{ROW} 2024-05-01 10:00:00\n", "allreduce.log")
    assert (found.out_of_place.time, found.in_place.busbw) == (309.4 / 1e6, 5.12 * GB)


def test_times_that_were_not_measured_are_none():
    row = ROW.replace("   307.3    3.41    5.12    N/A", "     N/A     N/A     N/A    N/A")
    (found,) = rows_of(f"{HEADER}\n{row}\n", "all_reduce.log")
    assert found.in_place is None
    assert found.out_of_place.time == 309.4 / 1e6


def test_a_table_of_in_place_only():
    header = HEADER.replace("out-of-place", "            ").splitlines()
    text = [header[0], header[1][: header[1].index("#wrong") + 6], ROW[: ROW.index("307.3")].rstrip()]
    (found,) = rows_of("\n".join(text) + "\n", "all_reduce.log")
    assert found.out_of_place is None
    assert found.in_place.time == 309.4 / 1e6


def test_rows_of_size_zero_stay():
    zero = "      0      0     float     sum      -1    15.51    0.00    0.00      0    15.52    0.00    0.00      0"
    rows = rows_of(f"{HEADER}\n{zero}\n{zero}\n{ROW}\n", "all_reduce.log")
    assert [row.size for row in rows] == [0, 0, 1048576]


def test_several_tables_in_one_log_keep_apart():
    gather = NEW.replace("all_reduce", "all_gather").replace("2.13.10", "2.14.1").replace("     sum", "    none")
    rows = rows_of(f"{NEW}$ mpirun -np 4 ./build/all_gather_perf -b 1M\n{gather}", "run.log")
    assert [(row.kind, row.version) for row in rows] == [("all_reduce", "2.13.10")] * 2 + [("all_gather", "2.14.1")] * 2


def test_ranks_follow_from_what_was_printed():
    rows = "\n".join([
        "  2147483648     536870912   float     sum    21874   98.18  190.22  1e-06    21929   97.93  189.74  1e-06",
        "  4294967296    1073741824   float     sum    43557   98.61  191.05  1e-06    43440   98.87  191.56  1e-06",
    ])  # fmt: skip
    assert {row.ranks for row in rows_of(f"{OLD_HEADER}\n{rows}\n", "x.log")} == {32}
    assert {row.kind for row in rows_of(f"{OLD_HEADER}\n{rows}\n", "x.log")} == {"all_reduce"}


def test_too_few_digits_leave_ranks_open():
    row = "           8             2   float     sum    38.63    0.01    0.02  2e-07    38.85    0.01    0.02  1e-07"
    assert rows_of(f"{OLD_HEADER}\n{row}\n", "allreduce.log")[0].ranks is None


def test_the_kind_may_be_given():
    none = ROW.replace("sum", "none").replace("5.09", "3.39").replace("5.12", "3.41")
    with pytest.raises(InputError, match=r"which collective was measured.*name it: all_reduce"):
        rows_of(f"{HEADER}\n{none}\n", "run.log")
    assert rows_of(f"{HEADER}\n{none}\n", "run.log", kind="broadcast")[0].kind == "broadcast"
    with pytest.raises(InputError, match="unknown kind"):
        rows_of(NEW, "run.log", kind="allreduce")


def test_a_log_cut_off_in_its_last_row_loses_only_that():
    cut = NEW[: NEW.index("   26194")]
    assert len(rows_of(cut, "run.log")) == 1


@pytest.mark.parametrize(("text", "words"), [
    (f"{HEADER}\n{ROW.replace('309.4', 'XXXXX')}\n", ["line 4", "'XXXXX'", "placeholder", "log of a run"]),
    (f"{HEADER}\n{ROW.replace('3.39', 'oops')}\n", ["line 4", "'oops'", "expected a number"]),
    (f"{ROW}\n", ["line 1", "without the header", "keep the line"]),
    (f"{HEADER}\n", ["no table of nccl-tests", "save all"]),
    ("hello\n", ["no table of nccl-tests"]),
    (f"{HEADER}\n{ROW[:90]}\n{ROW}\n", ["line 4", "cut off"]),
])  # fmt: skip
def test_what_cannot_be_read_gets_a_line_that_helps(text, words):
    with pytest.raises(InputError) as caught:
        rows_of(text, "allreduce.log")
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_nccl_tests(tmp_path / "none.log")
    with pytest.raises(InputError, match="cannot be read"):
        read_nccl_tests(tmp_path)


FIELD = {  # rows, kind, ranks, hosts, size of the last row, its busbw out of place and in place [GB/s]
    "aws_p4d_2node_allreduce_srun_label.log": (29, "all_reduce", 16, None, 2**31, 78.33, 78.33),
    "aws_p5_mpijob_tagged_elided_rows.log": (7, "all_reduce", 16, None, 2**31, 437.79, 437.89),
    "deepops_dgx_32gpu_allreduce_err_col_no_preamble.log": (13, "all_reduce", 32, None, 2**32, 191.05, 191.56),
    "deepops_k8s_16gpu_allreduce_wide_type_col.log": (30, "all_reduce", 16, None, 2**32, 188.53, 188.70),
    "gcp_a3mega_2node_allgather_shifted_header.log": (31, "all_gather", 16, None, 2**33, 188.73, 188.90),
    "superbench_a100x8_allgather_oldfmt_NA.log": (34, "all_gather", 8, 1, 2**33, 223.39, 230.07),
    "superbench_a100x8_allreduce_oldfmt_NA.log": (34, "all_reduce", 8, 1, 2**33, 235.26, 235.03),
    "superbench_a100x8_alltoall_oldfmt_NA.log": (34, "all_to_all", 8, 1, 2**33, 224.31, 226.16),
}
PLACEHOLDER = "gcp_a3ultra_placeholder_not_numbers.log"


def test_every_log_of_the_field_is_covered(shared):
    assert {path.name for path in (shared / "data" / "nccl_tests").iterdir()} == {*FIELD, PLACEHOLDER}


@pytest.mark.parametrize("name", FIELD)
def test_logs_of_the_field(shared, name):
    rows = read_nccl_tests(shared / "data" / "nccl_tests" / name)
    last = rows[-1]
    busbw = [round(each.busbw / GB, 2) for each in (last.out_of_place, last.in_place)]
    assert (len(rows), last.kind, last.ranks, last.hosts, last.size, *busbw) == FIELD[name]
    for row in rows:
        for each in (row.out_of_place, row.in_place):
            assert row.size <= 2**24 or each.algbw == pytest.approx(row.size / each.time, rel=2e-3)


def test_documentation_of_the_field_is_refused(shared):
    with pytest.raises(InputError, match="placeholder"):
        read_nccl_tests(shared / "data" / "nccl_tests" / PLACEHOLDER)
