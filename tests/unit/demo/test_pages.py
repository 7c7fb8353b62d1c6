"""Commands in pages are found, and their output is compared by its headings."""

import pytest

from tests.demo.docs.pages import Printed, missing, read, suggested

PAGE = """
A command is named `kubectl ballast why`, or given: `kubectl get pods -A`.

```
$ kubectl ballast top nodes
NODE   MODEL        HELD
gpu-0  NVIDIA-A100  6.5
$ kubectl ballast resume job/a
pod/a-1 resumed
```

   ```
   kubectl create secret generic login \\
     --from-literal=A=1
   ballast report usage     # all
   words
   ```

```yaml
spec: {gpu: 1}
```
"""


def test_commands_of_blocks_and_spans_are_found_in_order() -> None:
    found = [(each.line, each.command) for each in read("p", PAGE)]
    assert found == [
        (2, "kubectl get pods -A"),
        (5, "kubectl ballast top nodes"),
        (8, "kubectl ballast resume job/a"),
        (13, "kubectl create secret generic login --from-literal=A=1"),
        (15, "ballast report usage     # all"),
    ]


def test_output_belongs_to_the_command_above_it() -> None:
    top, resume = list(read("p", PAGE))[1:3]
    assert top.output == ("NODE   MODEL        HELD", "gpu-0  NVIDIA-A100  6.5")
    assert resume.output == ("pod/a-1 resumed",)


@pytest.mark.parametrize(
    ("shown", "said", "lacks"),
    [
        (("NODE  HELD", "gpu-0  6.5"), "NODE  POOL  HELD\ngpu-9  x  1", []),
        (("NODE  HELD",), "NODE\nHELD", ["NODE HELD"]),
        (("NAME  MODEL", "a  NVIDIA-A100"), "NAME  MODEL\nb  T4", []),
        (("pod/a-1 held",), "pod/b-7 held", []),
        (("pod/a-1 held",), "nothing waits", ["held"]),
        ((), "", []),
    ],
)
def test_headings_are_compared_and_names_are_not(
    shown: tuple[str, ...], said: str, lacks: list[str]
) -> None:
    assert missing(Printed("p", 1, "c", shown), said) == lacks


def test_suggestions_of_the_demonstration_are_its_commands() -> None:
    text = "\nTry:\n\n    export PATH=x\n    kubectl get gpunodes\n    ballast top\n\nLogs: y\n"
    assert [each.command for each in suggested(text)] == ["kubectl get gpunodes", "ballast top"]
