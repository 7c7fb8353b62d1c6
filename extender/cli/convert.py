import click


@click.command()
def convert() -> None:
    """Turn."""
