"""`python -m tests.support.argo`: build Argo's workflow-controller for the tests of jobs."""

from tests.support.argo import build

if __name__ == "__main__":
    print(f"argo: {build()}")
