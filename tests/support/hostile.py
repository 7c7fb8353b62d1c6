"""A corpus of texts that resemble numbers, and that no parser of requests may accept.

Each kind of trick is combined with each way of hiding it, which gives some hundreds of texts. None
is a fraction of a card or a count, even if Python's or Go's own parsers accept it.
"""

from typing import Final

#: Characters that readers or parsers skip; around or within a number they must make it invalid.
INVISIBLE: Final = (
    " ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\0", "\x1c", "\x1f", "\x7f", "\x85", "\xa0",
    "\xad", "\u1680", "\u180e", "\u2000", "\u2003", "\u2009", "\u200a", "\u200b", "\u200c",
    "\u200d", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202d", "\u202e", "\u202f",
    "\u205f", "\u2060", "\u2066", "\u2069", "\u3000", "\ufe0f", "\ufeff",
)  # fmt: skip
#: Signs, units, brackets and notations around a valid number.
DECORATIONS: Final = (
    "{}%", "{}f", "{}F", "{}d", "{}m", "{}u", "{}n", "{}k", "{}K", "{}Ki", "{}Mi", "{}MiB", "{}Gi",
    "{}G", "{}e0", "{}E0", "{}e+0", "{}e-0", "{}e1", "{}j", "{}L", "{}_", "_{}", "+{}", "-{}",
    "--{}", "\u2212{}", "~{}", "={}", "\"{}\"", "'{}'", "[{}]", "({})", "{{{}}}", "{},", "{};",
    "{}/1", "{}:1", "{}#", "{}\\n", "{}%0a", "${{{}}}", "$({})", "`{}`", "0x{}", "0b{}", "0o{}",
    "{} GPU", "{}gpu", "{0},{0}", "{0} {0}", "00{}",
)  # fmt: skip
#: Written in digits or forms that are not ASCII decimal.
OTHER_FORMS: Final = (
    "", ".", "..", "-", "+", "0", "-0", "+0", "00", "0.", ".0", "0.0", "0.00", "0.000", "-0.0",
    ".5", "5.", "0..5", "0.5.0", "1.", "1.0", "1.5", "01.5", "0.0005", "0.9999", "0.5000",
    "0.99999999999999999", "0.50000000000000001", "0.333333", "1e-1", "5e-1", "5E-1", "1e308",
    "1e309", "1e-400", "4.9e-324", "0x1p-1", "0x.8", "0x1", "1/2", "\u00bd", "\u00bc", "\u2153",
    "0,5", "0\u066b5", "0\u00b75", "0\u20245", "0\uff0e5", "\uff10.\uff15", "\u0660.\u0665",
    "\u0660\u066b\u0665", "\u06f0.\u06f5", "\u0966.\u096b", "0.\u0665", "0.\uff15", "0.\u00b2",
    "0.\u2075", "0.\u2460", "\u2460", "\u00b2", "\u2081", "0_5", "0._5", "0.5_0", "1_0",
    "nan", "NaN", "-nan", "inf", "Infinity", "-inf", "null", "None", "true", "false", "undefined",
    "half", "one", "0 .5", "0. 5", "O.5", "0.S", "\U0001d7ce.\U0001d7d3", "2147483648",
    "-2147483649", "4294967296", "9223372036854775808", "18446744073709551616", "-1", "-0.5",
    "0." + "5" * 10_000, "9" * 10_000, "0" * 10_000 + ".5", " " * 10_000, "1" + "0" * 400,
)  # fmt: skip


def _hidden(good: str) -> list[str]:
    middle = len(good) // 2
    around = [
        form
        for sign in INVISIBLE
        for form in (sign + good, good + sign, good[:middle] + sign + good[middle:])
    ]
    return [*around, *(form.format(good) for form in DECORATIONS)]


def hostile_fractions() -> list[str]:
    """Texts that are not a fraction of one card."""
    return [*_hidden("0.5"), *_hidden("0.25"), *OTHER_FORMS, "1", "2", "10", "100", "1000"]


def hostile_counts() -> list[str]:
    """Texts that are not a whole number from 1 to 999999999."""
    return [*_hidden("8192"), *OTHER_FORMS, "0.5", "1000000000", "01", "08192"]
