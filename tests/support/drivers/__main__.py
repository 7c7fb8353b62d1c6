"""`python -m tests.support.drivers [--write]`: downloads the drivers; writes `symbols/`."""

import sys

from tests.support.drivers import HERE, LIBRARIES, FetchError, fetch, table_of


def main(arguments: list[str]) -> int:
    """Download missing drivers; returns the exit status."""
    try:
        drivers = fetch()
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if "--write" in arguments:
        for library in LIBRARIES:
            text = "\n".join(table_of(drivers, library)) + "\n"
            (HERE / "symbols" / f"{library}.txt").write_text(text)
    for each in drivers:
        print(f"{each.version}: {each.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
