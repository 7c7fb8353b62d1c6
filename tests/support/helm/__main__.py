"""`python -m tests.support.helm`: build Helm for the tests of the chart."""

from tests.support.helm import build

if __name__ == "__main__":
    print(f"helm: {build()}")
