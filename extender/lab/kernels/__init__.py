"""Kernels that only replays use: published policies."""

from pathlib import Path

from extender.kernels import load_all

load_all(__name__, Path(__file__).parent)
