"""`python -m tests.support.lws`: build LeaderWorkerSet's controller for the tests of inference."""

from tests.support.lws import build

if __name__ == "__main__":
    print(f"lws: {build()}")
