"""The serving certificate, created at each start, and the APIService that trusts it.

The key never leaves the process's folder. The program writes its own CA into the APIService, so
there is one replica; while it restarts, requests are answered with 503. It writes the CA again and
again, since a tool that replaces or recreates the APIService removes it: until it is back, every
request is answered with 503, and Kubernetes deletes no namespace completely.
"""

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NoReturn

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from extender.api.names import SYSTEM_NAMESPACE
from extender.kube.client import MERGE_PATCH, Client
from extender.kube.errors import KubeError
from extender.kube.transport import Call
from extender.view.answers import GROUP, VERSION

SERVICE: Final = "ballast-view"
#: The name by which kube-apiserver calls.
SERVER_NAME: Final = f"{SERVICE}.{SYSTEM_NAMESPACE}.svc"
API_SERVICE: Final = f"{VERSION}.{GROUP}"
#: Seconds between two writes; one that changes nothing is not stored.
REGISTER_EVERY_S: Final = 10.0

#: Clocks of a cluster's nodes differ by seconds.
_SKEW: Final = timedelta(hours=1)
#: A restart makes a new one; a Deployment lives shorter than this between two upgrades.
_LIFETIME: Final = timedelta(days=3650)

_log = structlog.get_logger(__name__)


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A new self-signed certificate and its key, as PEM files in `folder`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, SERVER_NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    certificate_file, key_file = folder / "tls.crt", folder / "tls.key"
    key_file.touch(mode=0o600)
    key_file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    certificate_file.write_bytes(certificate.public_bytes(pem))
    return certificate_file, key_file


async def register(client: Client, certificate: bytes) -> None:
    """Write the certificate (PEM) into the APIService; raises a KubeError if there is none."""
    bundle = base64.b64encode(certificate).decode()
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}"
    body = {"spec": {"caBundle": bundle}}
    await client.send(Call("PATCH", path, "apiservices", body=body, content_type=MERGE_PATCH))


async def keep_registered(client: Client, certificate: bytes) -> NoReturn:
    """Write the certificate into the APIService every `REGISTER_EVERY_S`, until cancelled."""
    while True:
        await asyncio.sleep(REGISTER_EVERY_S)
        try:
            await register(client, certificate)
        except KubeError as error:
            _log.warning("certificate not registered", error=str(error))
