"""Reading a kubeconfig does not import the Kubernetes client."""

import subprocess
import sys

_LOADED = """
import sys
import extender.kube.connection as connection
assert connection._config.Configuration().verify_ssl
print(sum(name.startswith("kubernetes_asyncio") for name in sys.modules))
import kubernetes_asyncio
print(kubernetes_asyncio.client.ApiClient.__name__, kubernetes_asyncio.client.V1Pod.__name__)
print(connection._config is kubernetes_asyncio.config)
"""


def test_the_client_is_not_loaded_and_remains_whole_for_others() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr == ""
    assert done.stdout.split("\n")[:3] == ["0", "ApiClient V1Pod", "False"]
