"""Many scenarios: varied along axes, simulated on all cores, stored as they arrive, continued where they ended."""

from simulator.readings.rows import as_frame, flat_rows
from simulator.sweep.axes import Axis, axis, axis_of_table, together
from simulator.sweep.evaluate import BUG, evaluate
from simulator.sweep.executors import dask_cluster, workers
from simulator.sweep.export import as_results, check_table, write_csv, write_parquet, write_table
from simulator.sweep.points import grid, latin_hypercube
from simulator.sweep.run import missing, sweep
from simulator.sweep.store import Row, Store
from simulator.sweep.study import Study, Task, code_version, load_study, tasks

__all__ = [
    "BUG",
    "Axis",
    "Row",
    "Store",
    "Study",
    "Task",
    "as_frame",
    "as_results",
    "axis",
    "axis_of_table",
    "check_table",
    "code_version",
    "dask_cluster",
    "evaluate",
    "flat_rows",
    "grid",
    "latin_hypercube",
    "load_study",
    "missing",
    "sweep",
    "tasks",
    "together",
    "workers",
    "write_csv",
    "write_parquet",
    "write_table",
]
