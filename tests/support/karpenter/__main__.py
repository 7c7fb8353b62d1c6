"""`python -m tests.support.karpenter`: build Karpenter for the tests of autoscaling."""

from tests.support.karpenter import build

if __name__ == "__main__":
    print(f"karpenter: {build()}")
