"""The counter of pronouns for things."""

import pytest

from tests.tools.prose import ROOT, Count, count, faults, package_of, prose_of

PYTHON = '''"""Who comes first."""
# nobody waits
def f() -> None:
    """Whose turn it is."""
    print("who", f"whom")
    return g(
        "somebody",
    )
'''


def test_docstrings_and_comments_are_prose_and_other_strings_are_not() -> None:
    assert list(prose_of("x.py", PYTHON)) == [
        "Who comes first.",
        "nobody waits",
        "Whose turn it is.",
    ]
    assert count(prose_of("x.py", PYTHON)) == Count(9, 3)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("x.md", "Who?\n```\nwhom\n```\nAnd `whose` not.\n", Count(3, 1)),
        ("x.c", "/* who */ int whom; // nobody\n", Count(2, 2)),
        ("x.yaml", "whom: who\n  # Whose turn.\n", Count(2, 1)),
        ("x.pyx", "cdef int f(int whom) noexcept nogil:  # who\n    return 1\n", Count(1, 1)),
    ],
)
def test_pages_c_cython_and_comments_of_yaml_are_read(name: str, text: str, found: Count) -> None:
    assert count(prose_of(name, text)) == found


def test_package_above_the_limit_fails_unless_the_table_allows_its_rate() -> None:
    counts = {"a": Count(1000, 3)}
    assert list(faults(counts, {"a": 3.0})) == []
    assert "at most 2.0" in next(faults(counts, {}))
    assert "at most 2.9" in next(faults(counts, {"a": 2.9}))


def test_entry_that_is_not_needed_any_more_fails() -> None:
    assert "remove it" in next(faults({"a": Count(1000, 2)}, {"a": 3.0}))
    assert "remove it" in next(faults({}, {"gone": 3.0}))


def test_folders_of_the_large_packages_are_counted_apart() -> None:
    paths = ("extender/api/units.py", "extender/connection_limits.py", "webhooks/owners/table.py")
    found = [package_of((ROOT / path).relative_to(ROOT)) for path in paths]
    assert found == ["extender/api", "extender", "webhooks"]
