"""A group of commands for people: what they print always comes out, or it is said why not."""

import errno
import io
import sys
from typing import Any

import click


class Commands(click.Group):
    """Characters that the output can't have are written as Python writes them; a disk that is full
    is one sentence. A reader that goes away is click's own matter."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and write all of its output."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            # What is still in it can't be written either, and would be tried again at the end.
            sys.stdout = io.StringIO()
            what = error.filename or "standard output"
            raise click.ClickException(f"{what}: {error.strerror or error}") from None
