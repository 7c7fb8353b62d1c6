"""Checks that compiled kernels are newer than their sources: a stale one follows old rules."""

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_KERNELS = ("extender/kernels", "extender/lab/kernels", "gpu_shim/arbiter/fast_path")


def stale_kernels() -> list[str]:
    """Names of kernels that are older than their source."""
    return [
        source.name
        for folder in _KERNELS
        for source in sorted((_ROOT / folder).glob("*.pyx"))
        for built in source.parent.glob(f"{source.stem}.*.so")
        if built.stat().st_mtime < source.stat().st_mtime
    ]


def require_current_kernels() -> None:
    """Raise SystemExit if a kernel is older than its source."""
    if stale := stale_kernels():
        raise SystemExit(
            f"kernels older than their sources: {', '.join(stale)}; run `make setup`,"
            " or `python setup.py build_ext --inplace` in its environment"
        )
