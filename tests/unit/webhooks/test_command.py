"""The command line of the webhooks."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from webhooks.__main__ import main


@pytest.mark.parametrize("address", ["8443", ":8443", "host:", "host:x", "host:70000", "host:-1"])
def test_address_that_is_none_is_refused_with_an_example(address: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--cert-dir", str(tmp_path), "--listen", address])
    assert result.exit_code == 2
    assert "such as 127.0.0.1:8443" in result.output


def test_folder_of_the_certificate_is_needed() -> None:
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2
    assert "--cert-dir" in result.output
