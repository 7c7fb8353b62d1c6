"""Health checks of components by their own endpoints."""

import http.client
import ssl

from tests.support.controlplane.ports import LOOPBACK

TIMEOUT_S = 5.0


def is_healthy(port: int, path: str = "/healthz", *, is_tls: bool = True) -> bool:
    """Whether the component on this loopback port answers 200.

    Certificates are not checked: kube-scheduler and kube-controller-manager sign their own.
    """
    connection: http.client.HTTPConnection
    if is_tls:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
