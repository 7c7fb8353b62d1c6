"""The verbs of `ballast serve` with TLS: its clients (T15), and the effects of abuse (T14)."""

import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.attacks.abuse import ABUSES, MIB, Line, filter_body
from tests.attacks.attempt import Tally
from tests.attacks.judge import NARROW, Judge, changes
from tests.attacks.papers import DAY, SERVER, Office, Paper
from tests.attacks.raw_client import RawClient
from tests.conftest import fresh_namespace
from tests.support.controlplane.cluster import SYSTEM_NAMESPACE, ControlPlane
from tests.support.controlplane.ports import LOOPBACK, free_port
from tests.support.installation import Program

pytestmark = pytest.mark.controlplane

NAME: Final = "system:kube-scheduler"
VERBS: Final = ("filter", "prioritize", "preempt", "bind")
TIMEOUT_S: Final = 10.0
GROWTH_BYTES: Final = 64 * MIB
BODY: Final = filter_body(3)


@dataclass(slots=True)
class Served:
    """A running extender with TLS, and the CA of its clients."""

    program: Program
    port: int
    office: Office
    judge: Judge
    token: str

    @property
    def right(self) -> ssl.SSLContext:
        """kube-scheduler's TLS context."""
        return self.context(self.office, Paper(NAME))

    def context(self, office: Office, paper: Paper | None) -> ssl.SSLContext:
        """The TLS context of a client with this certificate of this CA."""
        shown = office.issue(paper, "client") if paper else None
        return office.context(shown, self.office.certificate)

    def ask(
        self, tls: ssl.SSLContext, method: str, path: str, body: bytes = b"", token: str = ""
    ) -> tuple[int, Any]:
        """Code and JSON of the answer; code 0 if the connection is refused."""
        connection = http.client.HTTPSConnection(
            LOOPBACK, self.port, timeout=TIMEOUT_S, context=tls
        )
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode()

    def status(self, key: str) -> int:
        """A figure of the process in bytes: VmRSS, or its peak VmHWM."""
        lines = Path(f"/proc/{self.program.pid}/status").read_text().splitlines()
        found = next(line for line in lines if line.startswith(f"{key}:"))
        return int(found.split()[1]) * 1024

    def forget_peak(self) -> None:
        """Resets VmHWM."""
        Path(f"/proc/{self.program.pid}/clear_refs").write_text("5")


@pytest.fixture(scope="module")
def served(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    namespace = fresh_namespace(control_plane)
    office = Office(tmp_path_factory.mktemp("office"))
    certificate, key = office.issue(Paper("localhost", SERVER, ("localhost",)), "serving")
    port, observed = free_port(), free_port()
    user = f"system:serviceaccount:{SYSTEM_NAMESPACE}:ballast-scheduler"
    kubeconfig = control_plane.kubeconfig_for(user, ("system:serviceaccounts",))
    argv = [
        "extender",
        "serve",
        f"--kubeconfig={kubeconfig}",
        f"--listen={LOOPBACK}:{port}",
        f"--tls-cert={certificate}",
        f"--tls-key={key}",
        f"--client-ca={office.certificate}",
        f"--metrics-listen={LOOPBACK}:{observed}",
    ]
    program = Program("serve-tls", argv, observed, control_plane.logs / "ballast-serve-tls.log")
    program.start()
    config = json.loads(
        Path(control_plane.kubeconfig_for_service_account(namespace, "default")).read_text()
    )
    judge = Judge(RawClient(control_plane.kubeconfig))
    token = config["users"][0]["user"]["token"]
    try:
        yield Served(program, port, office, judge, token)
    finally:
        program.kill()


STRANGERS: Final[dict[str, Paper | None]] = {
    "no certificate": None,
    "an expired certificate": Paper(NAME, begins=-2 * DAY, ends=-DAY),
    "a certificate of tomorrow": Paper(NAME, begins=DAY, ends=2 * DAY),
    "a server's certificate": Paper(NAME, SERVER, ("localhost",)),
    "a tenant's certificate": Paper("system:serviceaccount:team-a:default"),
    "an administrator's certificate": Paper("admin", organisations=("system:masters",)),
    "the scheduler's group": Paper("mallory", organisations=(NAME,)),
    "nearly the name": Paper(f"{NAME} "),
    "the name in capitals": Paper(NAME.upper()),
    "a longer name": Paper(f"{NAME}.mallory"),
    "a wildcard": Paper("*", dns=("*", "*.kube-scheduler")),
    "an empty name": Paper(" "),
    "the webhook's certificate": Paper(
        "ballast-webhooks", dns=("ballast-webhooks.ballast-system.svc",)),
}  # fmt: skip


@pytest.mark.parametrize("stranger", STRANGERS)
def test_verbs_are_not_answered_with(served: Served, tally: Tally, stranger: str) -> None:
    before = served.judge.picture(NARROW)
    tls = served.context(served.office, STRANGERS[stranger])
    codes = {}
    for verb in VERBS:
        code, _ = codes[verb] = served.ask(tls, "POST", f"/{verb}", BODY)
        tally.note("T15", f"{stranger} calls {verb}", f"{code}" if code not in (0, 403) else "")
    assert {code for code, _ in codes.values()} <= {0, 403}, codes
    assert not changes(before, served.judge.picture(NARROW))


def test_verbs_are_not_answered_with_papers_of_another_ca(
    served: Served, tally: Tally, tmp_path: Path
) -> None:
    forger = Office(tmp_path / "forger", "office")
    for verb in VERBS:
        code, _ = served.ask(served.context(forger, Paper(NAME)), "POST", f"/{verb}", BODY)
        tally.note("T15", f"another CA calls {verb}", f"{code}" if code else "")
        assert code == 0


def test_a_tenants_token_is_no_certificate(served: Served, tally: Tally) -> None:
    bare = served.context(served.office, None)
    tenant = served.context(served.office, Paper("tenant"))
    for verb in VERBS:
        codes = {served.ask(tls, "POST", f"/{verb}", BODY, served.token)[0]
                 for tls in (bare, tenant)}  # fmt: skip
        tally.note("T15", f"a token calls {verb}", f"{codes}" if not codes <= {0, 403} else "")
        assert codes <= {0, 403}


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        *((method, f"/{verb}", 405) for method in ("GET", "PUT", "DELETE") for verb in VERBS),
        *(("POST", path, 405) for path in ("/healthz", "/readyz", "/metrics")),
        *(("GET", path, 404) for path in ("/", "/debug/pprof", "/filter/", "/../bind", "//bind")),
    ],
)
def test_the_right_certificate_does_nothing_by_a_wrong_verb(
    served: Served, tally: Tally, method: str, path: str, code: int
) -> None:
    answered, said = served.ask(served.right, method, path, BODY)
    tally.note("T15", f"{method} {path}", "" if answered == code else f"{answered}")
    assert answered == code
    assert said["Error"]


def test_the_right_certificate_binds_nothing_that_is_not_planned(
    served: Served, tally: Tally
) -> None:
    before = served.judge.picture(NARROW)
    for name, namespace, uid in (
        ("nobody", "team-a", "u"),
        ("ballast-control", SYSTEM_NAMESPACE, "11111111-2222-3333-4444-555555555555"),
        ("../../nodes/n", "team-a", "u"),
        ("a", "team-a/pods/b", "u"),
        ("a", "team-a", "u u"),
    ):
        args = {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": "gpu-node-0000"}
        code, said = served.ask(served.right, "POST", "/bind", json.dumps(args).encode())
        is_bound = code == 200 and not said["Error"]
        tally.note("T15", f"bind of {namespace}/{name}", "was bound" if is_bound else "")
        assert code in (200, 400)
        assert said["Error"]
    assert not changes(before, served.judge.picture(NARROW))


def test_abuse_neither_stops_other_calls_nor_fills_memory(served: Served, tally: Tally) -> None:
    scheduler = served.right
    assert served.ask(scheduler, "POST", "/filter", BODY)[0] == 200
    at_rest = served.status("VmRSS")
    served.forget_peak()
    line = Line(served.port, served.right)
    found = []
    try:
        for title, (abuse, accepted) in ABUSES.items():
            answer = abuse(line)
            code = answer[9:12]
            why = "" if not answer or not accepted or code in accepted else f"got {code!r}"
            if code.startswith(b"5"):
                why = f"made it fail: {answer!r:.200}"
            if served.ask(scheduler, "POST", "/filter", BODY)[0] != 200:
                why = f"{why}; kept another caller waiting"
            if said := tally.note("T14", title, why):
                found.append(said)
    finally:
        line.close()
    growth = served.status("VmHWM") - at_rest
    assert not found, "\n".join(found)
    assert served.program.is_alive
    assert growth < GROWTH_BYTES, f"grew by {growth / MIB:.0f} MiB from {at_rest / MIB:.0f}"
