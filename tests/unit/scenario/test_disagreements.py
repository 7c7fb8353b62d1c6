"""How the list of disagreements is read."""

from tests.scenarios.listed import Disagreement, disagreements

TEXT = """# Title

An entry looks like this:

    ## not/an/entry
    Differs: `x`

## kai/area/one
Differs: `a: expected it bound, got 1 pending`, and
`b: expected on n0, got bound on n1`
Why: ours is `better`.

## kai/area/two
Differs: `c`
Why: so.
"""


def test_entries_name_a_case_and_every_line_that_differs() -> None:
    found = disagreements(TEXT)
    assert list(found) == ["kai/area/one", "kai/area/two"]
    assert found["kai/area/one"] == Disagreement(
        "kai/area/one",
        ("a: expected it bound, got 1 pending", "b: expected on n0, got bound on n1"),
    )
