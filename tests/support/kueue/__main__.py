"""`python -m tests.support.kueue`: build Kueue for the tests of many clusters."""

from tests.support.kueue import build

if __name__ == "__main__":
    print(f"kueue: {build()}")
