"""The serving certificate: our own CA, and one leaf that it signed.

The CA's key is discarded once the leaf is signed, so it cannot be stolen to sign more. A renewal
makes a new CA, and trust bundles hold it beside the old one. Files are named as in a Secret of type
kubernetes.io/tls, so a mounted Secret and a folder are read alike.
"""

import ipaddress
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from extender.api.names import SYSTEM_NAMESPACE

SERVICE: Final = "ballast-webhooks"
#: Names by which the API server may call us: the Service's, and loopback for tests and trials.
SERVER_NAMES: Final = (
    f"{SERVICE}.{SYSTEM_NAMESPACE}.svc",
    f"{SERVICE}.{SYSTEM_NAMESPACE}.svc.cluster.local",
    "localhost",
    "127.0.0.1",
)
CA_FILE: Final = "ca.crt"
CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"

LIFETIME: Final = timedelta(days=365)
#: Clocks of a cluster's nodes differ by seconds; an hour covers what is seen in the wild.
CLOCK_SKEW: Final = timedelta(hours=1)


@dataclass(slots=True, frozen=True)
class Bundle:
    """A CA and the leaf it signed, in PEM."""

    ca: bytes
    certificate: bytes
    key: bytes

    def is_valid(self, now: datetime) -> bool:
        """Whether both certificates are in force at the wall-clock time `now`."""
        parsed = [x509.load_pem_x509_certificate(pem) for pem in (self.ca, self.certificate)]
        return all(c.not_valid_before_utc <= now <= c.not_valid_after_utc for c in parsed)

    def is_whole(self) -> bool:
        """Whether the key is the leaf's and the CA signed the leaf; not so in half a renewal."""
        try:
            leaf = self._leaf
            leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(self.ca))
            key = serialization.load_pem_private_key(self.key, password=None)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return key.public_key() == leaf.public_key()

    @property
    def made_at(self) -> datetime:
        """When the leaf was made, to the second, as in the certificate."""
        return self._leaf.not_valid_before_utc + CLOCK_SKEW

    @property
    def ends_at(self) -> datetime:
        """The last moment at which the leaf is valid."""
        return self._leaf.not_valid_after_utc

    @property
    def renew_at(self) -> datetime:
        """When two thirds of the leaf's life have passed."""
        return self.made_at + (self.ends_at - self.made_at) * 2 // 3

    @property
    def _leaf(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate)


def make(
    names: Sequence[str] = SERVER_NAMES,
    now: datetime | None = None,
    lifetime: timedelta = LIFETIME,
) -> Bundle:
    """A new CA and a leaf for `names`; valid from an hour before `now`."""
    made = now or datetime.now(UTC)
    start, end = made - CLOCK_SKEW, made + lifetime
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = _builder("ballast-webhooks-ca", ca_key.public_key(), start, end)
    ca = ca.issuer_name(_name("ballast-webhooks-ca"))
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    ca = ca.add_extension(_usage(is_ca=True), critical=True)
    leaf = _builder(names[0], key.public_key(), start, end).issuer_name(
        _name("ballast-webhooks-ca")
    )
    leaf = leaf.add_extension(
        x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False
    )
    leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    leaf = leaf.add_extension(_usage(is_ca=False), critical=True)
    leaf = leaf.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
    )
    pem = serialization.Encoding.PEM
    return Bundle(
        ca=ca.sign(ca_key, hashes.SHA256()).public_bytes(pem),
        certificate=leaf.sign(ca_key, hashes.SHA256()).public_bytes(pem),
        key=key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def load(folder: Path) -> Bundle | None:
    """The bundle in `folder`, or None if one of its files is missing."""
    paths = [folder / name for name in (CA_FILE, CERTIFICATE_FILE, KEY_FILE)]
    if not all(path.is_file() for path in paths):
        return None
    ca, certificate, key = (path.read_bytes() for path in paths)
    return Bundle(ca, certificate, key)


def store(bundle: Bundle, folder: Path) -> None:
    """Writes the bundle's files; the key is readable by its owner only."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pem, mode in (
        (CA_FILE, bundle.ca, 0o644),
        (CERTIFICATE_FILE, bundle.certificate, 0o644),
        (KEY_FILE, bundle.key, 0o600),
    ):
        part = folder / f".{name}"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
        part.replace(folder / name)


def load_or_make(folder: Path) -> Bundle:
    """The bundle in `folder`; made and stored first if there is none."""
    bundle = load(folder)
    if bundle is None:
        bundle = make()
        store(bundle, folder)
    return bundle


def server_context() -> ssl.SSLContext:
    """A context for TLS 1.2 and later, still without a leaf: see `serve_with`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def serve_with(context: ssl.SSLContext, folder: Path) -> None:
    """Use the leaf in `folder` for every handshake from now on; open connections stay."""
    context.load_cert_chain(folder / CERTIFICATE_FILE, folder / KEY_FILE)


def _builder(
    name: str, key: ec.EllipticCurvePublicKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _name(common_name: str) -> x509.Name:
    # A common name has at most 64 characters; clients check the alternative name.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )
