"""Results on disk: a file is either whole or not there."""

from __future__ import annotations

import errno
import json
import secrets
from collections.abc import Callable
from pathlib import Path

__all__ = ["write_atomically", "write_json"]


def write_atomically(path: Path, writer: Callable[[Path], object]) -> None:
    """Let *writer* fill a file of another name in the same folder, then give it the name *path*.

    The temporary name has the suffix of *path*, by which libraries choose a format.  If *writer* fails or is
    interrupted, nothing of it stays and an older file at *path* is as it was.

    Raises
    ------
    OSError
        The folder does not exist or cannot be written to.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "answer.txt", lambda path: path.write_text("42"))
    ...     [(path.name, path.read_text()) for path in Path(folder).iterdir()]
    [('answer.txt', '42')]
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
    temporary = path.with_name(f".writing-{secrets.token_hex(8)}{path.suffix}")
    try:
        writer(temporary)
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: object) -> None:
    """Write *content* as JSON, whole or not at all.

    Raises
    ------
    ValueError
        A number in it is infinite or not a number, which JSON does not know.
    """
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, indent=1)
    write_atomically(path, lambda temporary: temporary.write_text(text + "\n", encoding="utf-8"))
