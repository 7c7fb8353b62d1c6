"""The command `ballast web`."""

import sys
from typing import Any

import click

from extender.cli.terminal.flags import examples


@click.command(
    epilog=examples(
        "kubectl ballast web --open",
        "kubectl ballast web -n vision --listen 127.0.0.1:8080",
    )
)
@click.option("--listen", default="127.0.0.1:0", show_default=True, help="Port 0: any free one.")
@click.option("--kubeconfig", default="", help="Default: $KUBECONFIG, else ~/.kube/config.")
@click.option("--context", default="", help="Context of the kubeconfig.")
@click.option("-n", "--namespace", default="", help="Default: that of the context.")
@click.option(
    "--behind-proxy",
    "is_behind_proxy",
    is_flag=True,
    help="Use the token that a proxy forwards for each request; in a cluster.",
)
@click.option(
    "--metrics-listen", default="", help="Serve health and metrics here; default: nowhere."
)
@click.option("--open", "opens_browser", is_flag=True, help="Open the URL in a browser.")
def web(**given: Any) -> None:
    """Show your work, projects, queue, cards, evictions, usage and what-if in a browser.

    Listens on loopback only and prints the URL, which has a random token. Every request goes to the
    API server with the rights of the kubeconfig.
    """
    import asyncio
    import logging

    import structlog

    from extender.api.shutdown import run_until_signal
    from extender.http.server import AddressError, ListenError
    from extender.kube.errors import KubeError
    from extender.web.program import WebOptions, run

    # Standard output has the URL alone, and standard error only problems.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        asyncio.run(run_until_signal(run(WebOptions(**given))))
    except AddressError as error:
        raise click.UsageError(str(error)) from None
    except (ListenError, KubeError) as error:
        raise click.ClickException(str(error)) from None
