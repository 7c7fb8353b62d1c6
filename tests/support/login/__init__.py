"""OAuth2 Proxy and an OpenID provider, run on loopback.

The proxy has the flags of the component `web-login` and the settings of its Secret, with other
addresses. The provider is zitadel's library with the storage and login page of its example.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.support.controlplane.builder import Source
from tests.support.controlplane.programs import Programs

MODULES: Final = Path(__file__).with_name("modules")
SOURCES: Final = {
    "oauth2-proxy": Source(MODULES / "oauth2-proxy", "github.com/oauth2-proxy/oauth2-proxy/v7"),
    "issuer": Source(MODULES / "issuer", "."),
}
PROGRAMS: Final = Programs("login", MODULES, SOURCES)
#: The provider's one client.
CLIENT: Final = "web"
CLIENT_SECRET: Final = "secret"
_COMPONENT: Final = Path(__file__).resolve().parents[3] / "manifests" / "components" / "web-login"


@dataclass(slots=True, frozen=True)
class Addresses:
    """Host and port of the provider, of the proxy, and of the pages behind it."""

    issuer: str
    proxy: str
    pages: str

    @property
    def redirect(self) -> str:
        """Where the provider sends a user who has logged in."""
        return f"http://{self.proxy}/oauth2/callback"


def proxy_command(at: Addresses, ca: Path) -> list[str]:
    """OAuth2 Proxy as in the cluster; `ca` signed the provider's certificate."""
    listen, upstream = "--http-address=", "--upstream="
    given = [flag for flag in _flags() if not flag.startswith((listen, upstream))]
    return [
        str(PROGRAMS.path("oauth2-proxy")),
        *given,
        f"{listen}{at.proxy}",
        f"{upstream}http://{at.pages}/",
        f"--provider-ca-file={ca}",
    ]


def proxy_settings(at: Addresses, **more: str) -> dict[str, str]:
    """The environment variables from the Secret, without their common prefix."""
    settings = {
        "OIDC_ISSUER_URL": f"https://{at.issuer}",
        "CLIENT_ID": CLIENT,
        "CLIENT_SECRET": CLIENT_SECRET,
        "COOKIE_SECRET": "x" * 32,
        # There is no Ingress that would set the scheme.
        "REDIRECT_URL": at.redirect,
        **more,
    }
    return {f"OAUTH2_PROXY_{name}": value for name, value in settings.items()}


def _flags() -> list[str]:
    component = yaml.safe_load((_COMPONENT / "kustomization.yaml").read_text())
    deployment = yaml.safe_load(component["patches"][0]["patch"])
    flags: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return flags
