"""Results in one SQLite file, which survives whatever ends the program that writes it.

Results are stored in the moment in which they arrive, in one transaction.  ``journal_mode=WAL`` lets others read and
queues others who write; ``synchronous=FULL`` has the log on the disk before a transaction counts as done, so that a
power loss takes nothing that was done (https://www.sqlite.org/pragma.html#pragma_synchronous).  Keys are primary and a
second result for one is ignored: two sweeps on one file cost time and spoil nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from simulator.errors import InputError

__all__ = ["Row", "Store"]

APPLICATION: Final = 0x7A73696D  # definition: "zsim", by which files of ours are known

PATIENCE: Final = 60.0  # definition: that long a sweep waits for another one that writes [s]

TABLE: Final = """
CREATE TABLE IF NOT EXISTS results (
    key TEXT PRIMARY KEY,                              -- hash of scenario, variant and code
    code TEXT NOT NULL,                                -- hash of the code alone
    scenario TEXT NOT NULL,                            -- its name
    variant TEXT NOT NULL,
    point TEXT NOT NULL,                               -- JSON: values of the keys that the sweep varied
    result TEXT,                                       -- JSON: a result as `zerosim run --json` has it, or null
    failure TEXT,                                      -- why there is none
    stored_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ'))
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one simulation: a result or a failure."""

    key: str
    point: Mapping[str, Any]
    variant: str
    result: Mapping[str, Any] | None = None
    failure: str | None = None


class Store:
    """Results by key.

    Parameters
    ----------
    path
        Is made if it is not there.

    Raises
    ------
    InputError
        The file is something else, or cannot be read or written; also from the methods.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            self._database = sqlite3.connect(path, timeout=PATIENCE)
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def __contains__(self, key: str) -> bool:
        with self._explained():
            return self._database.execute("SELECT 1 FROM results WHERE key = ?", (key,)).fetchone() is not None

    def add(self, rows: Iterable[Row], *, code: str, scenario: str) -> None:
        """Store *rows*, all of them or none; those whose keys are there already change nothing."""
        values = [
            (row.key, code, scenario, row.variant, _json(row.point), row.result and _json(row.result), row.failure)
            for row in rows
        ]
        columns = "key, code, scenario, variant, point, result, failure"
        with self._explained(), self._database:
            self._database.executemany(f"INSERT OR IGNORE INTO results ({columns}) VALUES (?,?,?,?,?,?,?)", values)

    def forget_failures(self, keys: Iterable[str]) -> None:
        """Forget those of *keys* that have no result, so that they are simulated again."""
        with self._explained(), self._database:
            self._database.executemany(
                "DELETE FROM results WHERE key = ? AND failure IS NOT NULL", ((key,) for key in keys)
            )

    def found(self, keys: Iterable[str]) -> Iterator[tuple[Mapping[str, Any] | None, str | None]]:
        """Yield result and failure of each of *keys*, in order.

        Raises
        ------
        KeyError
            One of them is not stored.
        """
        for key in keys:
            with self._explained():
                row = self._database.execute("SELECT result, failure FROM results WHERE key = ?", (key,)).fetchone()
            if row is None:
                raise KeyError(key)
            yield row[0] and json.loads(row[0]), row[1]

    def _prepare(self) -> None:
        self._database.execute("PRAGMA synchronous = FULL")
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            (owner,) = self._database.execute("PRAGMA application_id").fetchone()
            (tables,) = self._database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if owner != APPLICATION and tables:
                remedy = "name a new file or one that a sweep has made"
                raise InputError("is a database of something else", file=self._path, remedy=remedy)
            self._database.execute(f"PRAGMA application_id = {APPLICATION}")
            self._database.execute(TABLE)
        self._database.execute("PRAGMA journal_mode = WAL")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn complaints of SQLite into a line about the file."""
        try:
            yield
        except sqlite3.Error as error:
            remedy = "nothing that it holds is lost; mend that and run the same command again"
            raise InputError(f"cannot be used: {error}", file=self._path, remedy=remedy) from None


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
