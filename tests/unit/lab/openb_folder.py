"""A folder with a small openb trace, which a test describes in one line."""

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")


def write(file: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A CSV file, gzipped if its name says so."""
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "wt", encoding="utf-8", newline="") as text:
        csv.writer(text).writerows([columns, *rows])


def nodes(folder: Path, *rows: tuple[str, int, int, int, str]) -> None:
    """Nodes by (name, CPU milli, memory MiB, GPUs, model)."""
    write(folder / "openb_node_list_gpu_node.csv", NODE_COLUMNS, rows)


def pods(folder: Path, trace: str, *rows: tuple[int, int, int, str]) -> None:
    """Pods p0000, p0001, ... by (CPU milli, GPUs, milli of each, models), 1 GiB each."""
    lines = [
        (f"p{at:04}", cpu, 1024, n, milli, spec) for at, (cpu, n, milli, spec) in enumerate(rows)
    ]
    write(folder / f"openb_pod_list_{trace}.csv.gz", POD_COLUMNS, lines)
