"""Counts pronouns for things in docstrings, comments and pages: `python -m tests.tools.prose`.

A sentence about pods and queues names them. The words of `_PRONOUNS` are a sign that it does not,
so each package may have at most `LIMIT` of them per 1,000 words. Packages above the limit stand in
`prose.json` with their rate, which may only fall; `--write` lowers it.
"""

import argparse
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TABLE: Final = Path(__file__).with_suffix(".json")
#: Per 1,000 words.
LIMIT: Final = 2.0
#: Packages that are counted folder by folder; the others are counted as one.
_BY_FOLDER: Final = ("extender", "gpu_shim", "tests")
_OTHERS: Final = ("webhooks", "manifests", "docs")
_SOURCES: Final = {".py", ".pyx", ".pxd", ".pyi", ".c", ".h", ".md"}
_PRONOUNS: Final = re.compile(
    r"\b(who|whom|whose|whoever|nobody|somebody|anybody|everybody)\b", re.IGNORECASE
)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*")
_C_COMMENT: Final = re.compile(r"/\*(.*?)\*/|//([^\n]*)", re.DOTALL)
_FENCED: Final = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_IN_CODE: Final = re.compile(r"`[^`\n]*`")
#: After one of these a statement starts; the others may stand before it.
_STARTS: Final = frozenset((tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE))
_BLANK: Final = frozenset((tokenize.NL, tokenize.COMMENT, tokenize.ENCODING))


@dataclass(slots=True, frozen=True)
class Count:
    """Words of prose, and how many of them are pronouns for things."""

    n_words: int
    n_pronouns: int

    @property
    def rate(self) -> float:
        """Pronouns per 1,000 words, to one place."""
        return round(1000 * self.n_pronouns / max(1, self.n_words), 1)


def prose_of(name: str, text: str) -> Iterator[str]:
    """The docstrings and comments of one file, by its name's end; the text of a page."""
    suffix = Path(name).suffix
    if suffix == ".md":
        yield _IN_CODE.sub("", _FENCED.sub("", text))
    elif suffix in {".c", ".h"}:
        for block, line in _C_COMMENT.findall(text):
            yield block or line
    else:
        yield from _python_prose(text)


def _python_prose(text: str) -> Iterator[str]:
    """Comments, and strings that are statements; Cython is close enough to Python for both."""
    is_start, n_open = True, 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string.lstrip("#: ")
            elif token.type == tokenize.STRING and is_start:
                yield token.string.strip("\"'")
            if token.type == tokenize.OP:
                n_open += (token.string in "([{") - (token.string in ")]}")
            is_start = n_open == 0 and (
                token.type in _STARTS or (is_start and token.type in _BLANK)
            )
    except (tokenize.TokenError, SyntaxError):
        return


def count(texts: Iterator[str]) -> Count:
    """Words and pronouns of all texts together."""
    n_words = n_pronouns = 0
    for text in texts:
        n_words += len(_WORD.findall(text))
        n_pronouns += len(_PRONOUNS.findall(text))
    return Count(n_words, n_pronouns)


def package_of(path: Path) -> str:
    """The name under which a file is counted, from its path within the tree."""
    top = path.parts[0]
    if top in _BY_FOLDER and len(path.parts) > 2:
        return f"{top}/{path.parts[1]}"
    return top


def count_tree(root: Path) -> dict[str, Count]:
    """By package."""
    words: Counter[str] = Counter()
    pronouns: Counter[str] = Counter()
    files = [root / "README.md"]
    for top in (*_BY_FOLDER, *_OTHERS):
        files += sorted((root / top).rglob("*"))
    for file in files:
        if file.suffix not in _SOURCES or not file.is_file() or _is_made(file):
            continue
        package = package_of(file.relative_to(root))
        found = count(prose_of(file.name, file.read_text()))
        words[package] += found.n_words
        pronouns[package] += found.n_pronouns
    return {name: Count(n, pronouns[name]) for name, n in sorted(words.items())}


def _is_made(file: Path) -> bool:
    """Whether a tool wrote the file: Cython's C, protobuf's Python."""
    if file.suffix == ".c":
        return file.with_suffix(".pyx").exists()
    return "_pb2" in file.name


def faults(counts: dict[str, Count], allowed: dict[str, float]) -> Iterator[str]:
    """One sentence for each package above its rate, and for each entry that is not needed."""
    for name, found in counts.items():
        most = max(LIMIT, allowed.get(name, 0.0))
        if found.rate > most:
            yield (
                f"{name}: {found.rate} pronouns for things per 1,000 words ({found.n_pronouns} in"
                f" {found.n_words}), at most {most}: name the pod, queue or node instead"
            )
    for name in allowed:
        if name not in counts or counts[name].rate <= LIMIT:
            yield f"{name}: needs no entry in {TABLE.name} any more; remove it with --write"


def main(arguments: list[str]) -> int:
    """Print the table and what is wrong; 1 if something is."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.prose", description=__doc__)
    parser.add_argument("--write", action="store_true", help="lower the rates in the table")
    parser.add_argument("--all", action="store_true", help="print packages below the limit, too")
    options = parser.parse_args(arguments)
    counts = count_tree(ROOT)
    allowed: dict[str, float] = json.loads(TABLE.read_text())
    if options.write:
        allowed = {
            name: min(rate, counts[name].rate)
            for name, rate in allowed.items()
            if name in counts and counts[name].rate > LIMIT
        }
        TABLE.write_text(json.dumps(allowed, indent=2, sort_keys=True) + "\n")
    for name, found in counts.items():
        if options.all or name in allowed:
            print(f"{name:24} {found.rate:5.1f}  ({found.n_pronouns} in {found.n_words} words)")
    wrong = list(faults(counts, allowed))
    for sentence in wrong:
        print(f"error: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
