"""`python -m tests.support.jobset`: build JobSet's controller for the tests of jobs."""

from tests.support.jobset import build

if __name__ == "__main__":
    print(f"jobset: {build()}")
