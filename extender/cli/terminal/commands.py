"""A click group whose commands print all of their output or report why they could not."""

import errno
import io
import sys
from typing import Any, Final

import click

#: Longer than the first sentence of any command's help.
_WHOLE: Final = 1000


class Commands(click.Group):
    """Writes characters that the output encoding lacks as escapes, and reports an error of the
    output, such as a full disk, in one sentence. click handles a closed pipe."""

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
            # Python would write the buffered rest again at exit, and fail again.
            sys.stdout = io.StringIO()
            what = error.filename or "standard output"
            raise click.ClickException(f"{what}: {error.strerror or error}") from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first sentence of each command's help, wrapped; click's own cuts long ones off."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, command.get_short_help_str(_WHOLE))
            for name, command in found.items()
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
