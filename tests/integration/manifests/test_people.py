"""Rights of users with Kubernetes' own roles on our kinds, and the examples."""

import subprocess
from dataclasses import dataclass

import pytest

from tests.conftest import fresh_namespace
from tests.support.controlplane.cluster import ControlPlane
from tests.support.controlplane.handles import Api, wait_for
from tests.support.overlays import MANIFESTS

pytestmark = pytest.mark.controlplane

IN_FORCE_S = 90.0
EXAMPLES = MANIFESTS.parent / "examples"
QUEUES = ("gpudepartments", "gpuprojects", "gpunodepools", "gputopologies")


@dataclass(slots=True)
class People:
    """Kubeconfigs of users with the role of their name in one namespace."""

    api: Api
    kubeconfigs: dict[str, str]

    def run(self, who: str, *args: str) -> str:
        """What kubectl printed for them in the namespace."""
        words = (*args, "--namespace", self.api.namespace)
        return self.api.kubectl(*words, kubeconfig=self.kubeconfigs[who])

    def refusal(self, who: str, *args: str) -> str:
        """The words with which the API server refuses them; empty when it does not."""
        try:
            self.run(who, *args)
        except subprocess.CalledProcessError as error:
            return str(error.stderr)
        return ""


@pytest.fixture(scope="module")
def people(control_plane: ControlPlane) -> People:
    api = Api(control_plane, fresh_namespace(control_plane))
    api.kubectl("apply", "--server-side", "-k", str(MANIFESTS / "base" / "rbac"))
    kubeconfigs = {}
    for role in ("view", "edit", "admin"):
        api.kubectl(
            "create", "rolebinding", role, f"--clusterrole={role}", f"--user=team-{role}",
            "--namespace", api.namespace,
        )  # fmt: skip
        kubeconfigs[role] = control_plane.kubeconfig_for(f"team-{role}", ())
    found = People(api, kubeconfigs)
    wait_for(
        lambda: not any(found.refusal(who, "get", "gpupodgroups") for who in kubeconfigs),
        IN_FORCE_S,
        "aggregated roles",
    )
    return found


@pytest.mark.parametrize("example", ["gang.yaml", "half-gpu.yaml", "inference.yaml"])
def test_tenant_makes_the_examples(people: People, example: str) -> None:
    assert "created" in people.run("edit", "create", "-f", str(EXAMPLES / example))


@pytest.mark.parametrize("role", ["edit", "admin"])
def test_tenant_makes_changes_and_deletes_a_group(people: People, role: str) -> None:
    text = (EXAMPLES / "gang.yaml").read_text("utf-8").split("---")[0]
    group = text.replace("name: finetune", f"name: {role}s")
    people.api.kubectl(
        "create", "-f-", "-n", people.api.namespace, stdin=group,
        kubeconfig=people.kubeconfigs[role],
    )  # fmt: skip
    patch = '{"spec": {"minMember": 3}}'
    people.run(role, "patch", "gpupodgroup", f"{role}s", "--type=merge", "-p", patch)
    people.run(role, "delete", "gpupodgroup", f"{role}s")


@pytest.mark.parametrize("kind", QUEUES)
def test_everybody_with_a_login_sees_quotas_and_shares_and_changes_none(
    people: People, kind: str
) -> None:
    assert people.refusal("view", "get", kind) == ""
    for verb in ("create", "patch", "delete"):
        with pytest.raises(subprocess.CalledProcessError):
            people.run("admin", "auth", "can-i", verb, kind)


def test_who_may_only_look_at_groups_does_not_change_them(people: People) -> None:
    group = ("create", "-f", str(EXAMPLES / "gang.yaml"), "--dry-run=server")
    assert "cannot create resource" in people.refusal("view", *group)


def test_only_administrators_see_the_ledger_or_write_a_status(people: People) -> None:
    assert "forbidden" in people.refusal("admin", "get", "gpunodes").lower()
    with pytest.raises(subprocess.CalledProcessError):
        people.run("admin", "auth", "can-i", "patch", "gpupodgroups", "--subresource=status")
