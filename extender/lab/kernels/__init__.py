"""Kernels that only replays use: policies that others have published."""

from pathlib import Path

from extender.kernels import load_all

load_all(__name__, Path(__file__).parent)
