"""A store, seen from outside while a sweep writes it."""

import sqlite3
from pathlib import Path

__all__ = ["stored"]


def stored(place: Path) -> int:
    """Rows of a store that another process writes."""
    if not place.exists():
        return 0
    database = sqlite3.connect(f"file:{place}?mode=ro", uri=True)
    try:
        return int(database.execute("SELECT count(*) FROM results").fetchone()[0])
    except sqlite3.OperationalError:  # not made yet
        return 0
    finally:
        database.close()
