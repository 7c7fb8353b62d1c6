"""`python -m tests.support.dra`: build the DRA example driver for the tests."""

from tests.support.dra import build

if __name__ == "__main__":
    print(f"dra: {build()}")
