"""`python -m tests.support.kuberay`: build KubeRay's operator for the tests of jobs."""

from tests.support.kuberay import build

if __name__ == "__main__":
    print(f"kuberay: {build()}")
