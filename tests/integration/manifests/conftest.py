"""CRDs of other projects that our manifests use."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def foreign_kinds() -> Path:
    """A folder of definitions: cert-manager's and the Prometheus operator's."""
    return HERE / "kinds"
