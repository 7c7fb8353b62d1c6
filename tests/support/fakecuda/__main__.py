"""`python -m tests.support.fakecuda DIR` builds the driver and a card in a folder."""

import argparse
from pathlib import Path

from tests.support.fakecuda import Card, build

#: Memory of an H100, and the least that a context takes of it.
TOTAL_MIB = 81920
CONTEXT_MIB = 550


def main() -> None:
    """Build both, and print how programs find them."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fakecuda", description=__doc__)
    parser.add_argument("folder", type=Path, help="made where it is not there")
    folder: Path = parser.parse_args().folder.resolve()
    build(folder)
    card = Card(folder / "card", TOTAL_MIB, CONTEXT_MIB)
    print(f"FAKECUDA_STATE={card.path} python -m gpu_shim.bench 10 11 12 --driver {folder}")


if __name__ == "__main__":
    main()
