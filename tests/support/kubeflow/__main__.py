"""`python -m tests.support.kubeflow`: build Kubeflow's operators for the tests of jobs."""

from tests.support.kubeflow import build

if __name__ == "__main__":
    print(f"kubeflow: {build()}")
