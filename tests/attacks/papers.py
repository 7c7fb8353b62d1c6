"""Certificates, including those that no server may accept."""

import datetime
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.support.controlplane.certificates import private_pem

DAY: Final = datetime.timedelta(days=1)
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


@dataclass(slots=True, frozen=True)
class Paper:
    """The content of a certificate; `begins` and `ends` are relative to now."""

    name: str
    usage: x509.ObjectIdentifier = CLIENT
    dns: tuple[str, ...] = ()
    begins: datetime.timedelta = -DAY
    ends: datetime.timedelta = DAY
    organisations: tuple[str, ...] = field(default=())


class Office:
    """A CA that signs any certificate and stores the files in its folder."""

    def __init__(self, folder: Path, name: str = "office") -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._begin(self._name, self._key.public_key(), -DAY, DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, True)
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(self._sign(builder))

    def issue(self, paper: Paper, stem: str) -> tuple[Path, Path]:
        """Issue a certificate; returns its file and that of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.COMMON_NAME, paper.name)]
        names += [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in paper.organisations
        ]
        builder = self._begin(x509.Name(names), key.public_key(), paper.begins, paper.ends)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([paper.usage]), False)
        if paper.dns:
            alternatives = x509.SubjectAlternativeName([x509.DNSName(each) for each in paper.dns])
            builder = builder.add_extension(alternatives, False)
        files = self._folder / f"{stem}.crt", self._folder / f"{stem}.key"
        files[0].write_bytes(self._sign(builder))
        files[1].write_bytes(private_pem(key))
        return files

    def context(self, shown: tuple[Path, Path] | None, trusts: Path) -> ssl.SSLContext:
        """A client's TLS context with these files."""
        context = ssl.create_default_context(cafile=str(trusts))
        context.check_hostname = False
        if shown is not None:
            context.load_cert_chain(str(shown[0]), str(shown[1]))
        return context

    def _begin(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        begins: datetime.timedelta,
        ends: datetime.timedelta,
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
        )

    def _sign(self, builder: x509.CertificateBuilder) -> bytes:
        signed = builder.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)
