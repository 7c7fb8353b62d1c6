"""The pages behind OAuth2 Proxy, with a real OpenID provider and an API server that trusts it."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.integration.web.test_web import pages
from tests.support import login, workloads
from tests.support.chromium import CHROMIUM, Browser
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import run_kubectl, wait_for
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.controlplane.probes import is_healthy
from tests.support.controlplane.process import Process
from tests.support.installation import Installation, install

pytestmark = pytest.mark.controlplane

START_S = 90.0
#: Of ID tokens: long enough to log in with, short enough to wait for its end.
LIFETIME_S = 30
USERS = ("ann", "bob")
_VIEW = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.view.ballast.dev"


@dataclass(slots=True, frozen=True)
class Stage:
    """A control plane that takes the provider's tokens, `ballast view`, and work of two teams."""

    plane: ControlPlane
    at: login.Addresses
    ca: Path
    work: Path

    @property
    def url(self) -> str:
        """Where users find the pages."""
        return f"http://{self.at.proxy}/"

    def users_seen(self) -> set[str]:
        """Users whose questions to `ballast view` the API server passed on."""
        found = set()
        for line in self.plane.audit_log.read_text().splitlines():
            event = json.loads(line)
            # A request that the API server could not authenticate has no user.
            name = event["user"].get("username")
            if name and re.match(r"/apis/view\.ballast\.dev/v1alpha1/.", event["requestURI"]):
                found.add(name)
        return found

    @asynccontextmanager
    async def proxied(self, *flags: str, **settings: str) -> AsyncIterator[None]:
        """The pages and the proxy in front of them, with these flags in place of its own."""
        config = yaml.safe_load(Path(self.plane.kubeconfig).read_text())
        for user in config["users"]:
            user["user"] = {}
        anonymous = self.work / "anonymous.kubeconfig"
        anonymous.write_text(yaml.safe_dump(config))
        options = ("--behind-proxy", f"--listen={self.at.pages}")
        command = login.proxy_command(self.at, self.ca)
        for flag in flags:
            name = flag.partition("=")[0]
            command = [each for each in command if each.partition("=")[0] != name] + [flag]
        env = login.proxy_settings(self.at, **settings)
        proxy = Process("oauth2-proxy", command, self.work / "proxy.log", env)
        async with pages(str(anonymous), "", *options):
            proxy.start()
            try:
                port = int(self.at.proxy.rpartition(":")[2])
                await asyncio.to_thread(
                    proxy.wait_until, lambda: is_healthy(port, "/ready", is_tls=False), START_S
                )
                yield
            finally:
                proxy.kill()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if not login.PROGRAMS.has():
        pytest.skip("OAuth2 Proxy is missing: `make login` builds it")
    if CHROMIUM is None:
        pytest.skip("no chromium to log in with (apt install chromium)")
    work = tmp_path_factory.mktemp("login")
    at = login.Addresses(*(f"{LOOPBACK}:{free_port()}" for _ in range(3)))
    ca = work / "ca.crt"
    plane = ControlPlane(
        flags={
            "kube-apiserver": [
                f"--oidc-issuer-url=https://{at.issuer}",
                f"--oidc-client-id={login.CLIENT}",
                "--oidc-username-claim=email",
                f"--oidc-ca-file={ca}",
            ]
        }
    )
    ca.write_bytes(plane.authority.certificate)
    issuer = Process("issuer", _issuer_command(plane, at, work), work / "issuer.log")
    issuer.start()
    port = int(at.issuer.rpartition(":")[2])
    issuer.wait_until(lambda: is_healthy(port, "/healthz", is_tls=True), START_S)
    try:
        with plane:
            install(plane)
            _submit_work(plane)
            view = Installation(plane).view()
            view.start()
            wait_for(lambda: _is_available(plane), START_S, "ballast view")
            yield Stage(plane, at, ca, work)
            view.end()
    finally:
        issuer.kill()


def _issuer_command(plane: ControlPlane, at: login.Addresses, work: Path) -> list[str]:
    pair = plane.authority.serving(("localhost",), (LOOPBACK,))
    (work / "issuer.crt").write_bytes(pair.certificate)
    (work / "issuer.key").write_bytes(pair.key)
    users = {
        name: {
            "ID": name, "Username": name, "Password": f"of {name}", "PreferredLanguage": "en",
            "Email": f"{name}@example.test", "EmailVerified": True,
        }
        for name in USERS
    }  # fmt: skip
    (work / "users.json").write_text(json.dumps(users))
    return [
        str(login.PROGRAMS.path("issuer")),
        f"-listen={at.issuer}",
        f"-certificate={work / 'issuer.crt'}",
        f"-key={work / 'issuer.key'}",
        f"-users={work / 'users.json'}",
        f"-redirect={at.redirect}",
        f"-lifetime={LIFETIME_S}s",
    ]


def _submit_work(plane: ControlPlane) -> None:
    plane.admin.post(f"{workloads.API}/gpudepartments", workloads.department("research", 8))
    for team, user in zip(("team-a", "team-b"), USERS, strict=True):
        plane.make_namespace(team)
        body = workloads.project(team, "research", team, 4)
        plane.admin.post(f"{workloads.API}/gpuprojects", body)
        pod = workloads.bare_pod(f"of-{user}", team, 1000)
        plane.admin.post(f"/api/v1/namespaces/{team}/pods", pod)
        run_kubectl(
            plane, "create", "rolebinding", user, "--clusterrole=view",
            f"--user={user}@example.test", "-n", team,
        )  # fmt: skip


def _is_available(plane: ControlPlane) -> bool:
    conditions = plane.admin.get(_VIEW).get("status", {}).get("conditions", [])
    return any((each["type"], each["status"]) == ("Available", "True") for each in conditions)


@asynccontextmanager
async def a_browser(stage: Stage, name: str) -> AsyncIterator[Browser]:
    """With the provider's certificate taken as it is."""
    async with Browser.open(stage.work / name, "--ignore-certificate-errors") as browser:
        yield browser


async def log_in(browser: Browser, user: str) -> None:
    """Fill in the provider's form, which the browser was led to."""
    await browser.submit({"username": user, "password": f"of {user}"})


async def test_the_api_server_is_asked_as_the_user_that_logged_in(stage: Stage) -> None:
    async with stage.proxied(), a_browser(stage, "ann") as browser:
        await browser.load(f"{stage.url}mine")
        assert "username" in (await browser.text()).lower()
        await log_in(browser, "ann")
        await browser.until_text("team-a/of-ann")
        text = await browser.text()
        assert "of-bob" not in text
        for page in ("workload/team-b/of-bob", "queue?namespace=team-b", "queue?all=1", "cluster"):
            await browser.load(f"{stage.url}{page}")
            text = await browser.text()
            assert 'User "ann@example.test" cannot' in text, page
            assert "team-b/of-bob" not in text, page
        await browser.load(f"{stage.url}project/team-b")
        assert "team-b/of-bob" not in await browser.text()
        async with a_browser(stage, "bob") as other:
            await other.load(f"{stage.url}mine")
            await log_in(other, "bob")
            await other.until_text("team-b/of-bob")
        await _forged(stage)
    asked = stage.users_seen() - {"kubernetes-admin"}
    assert asked == {"ann@example.test", "bob@example.test"}


async def _forged(stage: Stage) -> None:
    """Headers that name a user, and invalid tokens, do not get past the proxy."""
    for headers in (
        {"X-Forwarded-User": "ann"},
        {"X-Forwarded-Access-Token": "none"},
        {"Authorization": "Bearer none"},
    ):
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{stage.url}mine", allow_redirects=False) as answer,
        ):
            assert answer.status == 302
            assert answer.headers["Location"].startswith(f"https://{stage.at.issuer}/")


async def test_a_page_whose_login_has_ended_says_so_and_leads_to_a_new_one(stage: Stage) -> None:
    """Without a refresh token; the proxy looks at the ID token every four minutes only."""
    async with stage.proxied(), a_browser(stage, "ended") as browser:
        await browser.load(f"{stage.url}mine")
        await log_in(browser, "ann")
        await browser.until_text("team-a/of-ann")
        # The page is live, and finds out by itself.
        await browser.until_text("Your login has expired")
        assert "of-bob" not in await browser.text()
        await browser.click("Log in again")
        await log_in(browser, "ann")
        await browser.until_text("team-a/of-ann")
        assert await browser.evaluate("location.pathname") == "/mine"


async def test_a_live_page_that_the_proxy_leads_to_a_login_offers_to_be_loaded_again(
    stage: Stage,
) -> None:
    """A stream cannot follow to another site."""
    async with stage.proxied("--cookie-refresh=2s"), a_browser(stage, "refused") as browser:
        await browser.load(f"{stage.url}mine")
        await log_in(browser, "ann")
        await browser.until_text("team-a/of-ann")
        await browser.until_text("Load again")
        await browser.click("Load again")
        await log_in(browser, "ann")
        await browser.until_text("team-a/of-ann")


async def test_a_login_is_prolonged_where_the_provider_gives_refresh_tokens(stage: Stage) -> None:
    scope = "openid email profile offline_access"
    async with (
        stage.proxied("--cookie-refresh=2s", SCOPE=scope),
        a_browser(stage, "prolonged") as browser,
    ):
        await browser.load(f"{stage.url}mine?live=0")
        await log_in(browser, "ann")
        await browser.until_text("team-a/of-ann")
        ended = time.monotonic() + 1.5 * LIFETIME_S
        while time.monotonic() < ended:
            # One request at a time, without a page's styles and pictures: of two requests that
            # refresh with the same token the provider refuses one.
            page = await browser.evaluate("fetch('/mine?live=0').then((answer) => answer.text())")
            assert "of-ann" in page
            await asyncio.sleep(1)
