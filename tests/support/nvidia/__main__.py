"""`python -m tests.support.nvidia`: build NVIDIA's programs for a node with a GPU."""

from tests.support.nvidia import build

if __name__ == "__main__":
    print(f"nvidia: {build()}")
