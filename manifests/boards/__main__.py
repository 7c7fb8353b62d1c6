"""`python -m manifests.boards --write` writes the boards; `--check` says whether they are so."""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from manifests.boards.boards import BOARDS

FOLDER: Final = Path(__file__).parents[1] / "overlays" / "monitoring" / "boards"


def rendered() -> dict[str, str]:
    """File name -> text of every board."""
    return {f"{each.uid}.json": json.dumps(each.as_json(), indent=1) + "\n" for each in BOARDS}


def differences(folder: Path = FOLDER) -> list[str]:
    """Names of files that are missing, superfluous or not as generated."""
    wanted = rendered()
    present = {path.name: path.read_text("utf-8") for path in folder.glob("*.json")}
    return sorted(name for name in wanted | present if wanted.get(name) != present.get(name))


def main() -> int:
    """The command line; returns 1 when `--check` found a difference."""
    parser = argparse.ArgumentParser(prog="python -m manifests.boards", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write what differs")
    action.add_argument("--check", action="store_true", help="exit 1 when something differs")
    if parser.parse_args().write:
        FOLDER.mkdir(exist_ok=True)
        for name, text in rendered().items():
            (FOLDER / name).write_text(text, "utf-8")
    for name in (found := differences()):
        sys.stderr.write(f"{FOLDER / name} is not as generated: run --write\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
