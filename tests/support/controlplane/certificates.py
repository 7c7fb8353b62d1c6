"""The control plane's certificates: a CA, serving certificates, client certificates.

Keys are P-256, which take microseconds to generate; an RSA key takes half a second.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = datetime.timedelta(days=7)
#: The most by which clocks of two machines may differ.
CLOCK_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class _Request:
    common_name: str
    organisations: Sequence[str]
    usages: Sequence[x509.ObjectIdentifier]
    alternative_names: Sequence[x509.GeneralName] = ()


class Authority:
    """A certificate authority for the lifetime of the control plane."""

    def __init__(self, common_name: str = "ballast-test-ca") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), False
        )
        builder = builder.add_extension(_key_usage(is_authority=True), True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.certificate = self._certificate.public_bytes(serialization.Encoding.PEM)

    def serving(
        self, names: Sequence[str], addresses: Sequence[str], *, is_client: bool = False
    ) -> KeyPair:
        """A certificate for a TLS server with these DNS names and IP addresses.

        With `is_client`, it is also valid as a client certificate.
        """
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH]
        if is_client:
            usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._issue(_Request(names[0], (), usages, alternatives))

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A client certificate: Kubernetes reads the user from CN, the groups from O."""
        return self._issue(_Request(user, groups, [ExtendedKeyUsageOID.CLIENT_AUTH]))

    def _issue(self, request: _Request) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.COMMON_NAME, request.common_name)]
        names += [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in request.organisations
        ]
        builder = _builder(x509.Name(names), self._name, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_key_usage(is_authority=False), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(request.usages), False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
        )
        if request.alternative_names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(request.alternative_names), False
            )
        signed = builder.sign(self._key, hashes.SHA256())
        return KeyPair(signed.public_bytes(serialization.Encoding.PEM), private_pem(key))


def token_keys() -> KeyPair:
    """The keys that sign and verify service account tokens; `certificate` is the public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return KeyPair(public, private_pem(key))


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The private key as PEM without a password."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def write_private(path: Path, content: bytes) -> Path:
    """Write a file that only its owner can read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return path


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID_FOR)
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
