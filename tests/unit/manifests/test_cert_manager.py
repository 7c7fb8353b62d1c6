"""A Secret as cert-manager writes it, mounted read-only where the webhooks look."""

from pathlib import Path

from cryptography.hazmat.primitives import serialization

from webhooks import certs
from webhooks.certs import Bundle
from webhooks.rotator import Folder


def test_certificate_of_cert_manager_is_served_from_where_it_is_mounted(tmp_path: Path) -> None:
    made = certs.make()
    key = serialization.load_pem_private_key(made.key, password=None)
    # cert-manager writes the key of an ECDSA certificate in the older of the two forms.
    sec1 = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    for name, content in (("ca.crt", made.ca), ("tls.crt", made.certificate), ("tls.key", sec1)):
        (tmp_path / name).write_bytes(content)
    tmp_path.chmod(0o555)
    certs.load_or_make(tmp_path)
    served: list[Bundle] = []
    Folder(tmp_path, served.append).turn()
    assert [each.certificate for each in served] == [made.certificate]
    certs.serve_with(certs.server_context(), tmp_path)
