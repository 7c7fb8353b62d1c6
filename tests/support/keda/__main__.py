"""`python -m tests.support.keda`: build KEDA for the tests of inference."""

from tests.support.keda import build

if __name__ == "__main__":
    print(f"keda: {build()}")
