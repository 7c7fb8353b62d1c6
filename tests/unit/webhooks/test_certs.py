"""The serving certificate: its names, its lifetime, and its stored parts."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from webhooks import certs

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def bundle() -> certs.Bundle:
    return certs.make(now=NOW)


def test_leaf_is_good_for_the_service_by_its_own_ca(bundle: certs.Bundle) -> None:
    leaf = x509.load_pem_x509_certificate(bundle.certificate)
    leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(bundle.ca))
    found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "ballast-webhooks.ballast-system.svc" in found.get_values_for_type(x509.DNSName)
    assert [str(ip) for ip in found.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_leaf_of_one_ca_is_nothing_to_another(bundle: certs.Bundle) -> None:
    other = certs.make(now=NOW)
    leaf = x509.load_pem_x509_certificate(bundle.certificate)
    with pytest.raises((InvalidSignature, ValueError)):
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(other.ca))


def test_leaf_cannot_sign(bundle: certs.Bundle) -> None:
    leaf = x509.load_pem_x509_certificate(bundle.certificate)
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize(
    ("passed", "is_valid"),
    [
        (timedelta(0), True),
        (-certs.CLOCK_SKEW, True),
        (-certs.CLOCK_SKEW * 2, False),
        (certs.LIFETIME, True),
        (certs.LIFETIME + timedelta(seconds=1), False),
    ],
)
def test_bundle_is_judged_by_the_wall_clock(
    bundle: certs.Bundle, passed: timedelta, is_valid: bool
) -> None:
    assert bundle.is_valid(NOW + passed) is is_valid


def test_key_is_readable_by_its_owner_only(tmp_path: Path, bundle: certs.Bundle) -> None:
    certs.store(bundle, tmp_path)
    assert stat.S_IMODE((tmp_path / certs.KEY_FILE).stat().st_mode) == 0o600


def test_what_is_stored_is_loaded_again(tmp_path: Path, bundle: certs.Bundle) -> None:
    assert certs.load(tmp_path) is None
    certs.store(bundle, tmp_path)
    assert certs.load(tmp_path) == bundle
    assert certs.load_or_make(tmp_path) == bundle


def test_key_of_the_ca_is_kept_nowhere(tmp_path: Path) -> None:
    certs.load_or_make(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"ca.crt", "tls.crt", "tls.key"}
    keys = [path for path in tmp_path.iterdir() if b"PRIVATE KEY" in path.read_bytes()]
    assert [path.name for path in keys] == ["tls.key"]
