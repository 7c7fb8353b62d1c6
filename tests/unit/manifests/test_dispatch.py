"""The overlay `dispatch`: its program starts with its arguments, and has few rights."""

import click

from extender.__main__ import main
from tests.support.overlays import of_kind, rendered


def test_the_program_knows_its_flags() -> None:
    (deployment,) = of_kind(rendered("dispatch"), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    program, name = container["command"]
    assert program == "ballast"
    command = main.get_command(click.Context(main), name)
    assert command is not None
    known = {option for each in command.params for option in each.opts}
    assert {each.split("=")[0] for each in container["args"]} <= known


def test_it_reads_secrets_of_one_namespace_and_writes_the_status_of_workloads_alone() -> None:
    documents = rendered("dispatch")
    (cluster_wide,) = of_kind(documents, "ClusterRole")
    resources = {each for rule in cluster_wide["rules"] for each in rule["resources"]}
    assert "secrets" not in resources
    written = {
        (resource, verb)
        for role in of_kind(documents, "ClusterRole", "Role")
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }
    assert written == {("workloads/status", "patch"), ("leases", "create"), ("leases", "patch")}
