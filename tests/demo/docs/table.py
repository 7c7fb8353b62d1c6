"""Exceptions among the documentation's commands: those that the demonstration cannot run."""

from typing import Final

PAGES: Final = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "cli",
            "researchers",
            "leads",
            "questions",
            "usage",
            "simulate",
            "objects",
            "web",
            "operations",
        )
    ),
)
IN_CLUSTER: Final = "the demonstration runs Ballast's programs as processes, not as Deployments"
E2E: Final = "installs or uninstalls Ballast; tests/e2e does"
PART: Final = "names a command in a sentence, without the arguments that it needs"
#: Prefix of commands that are not run -> why. Each must be a prefix of some command.
NOT_RUN: Final = {
    "kubectl apply --server-side -k manifests/overlays/": E2E,
    "kubectl delete -k manifests/overlays/": E2E,
    "kubectl wait -n ballast-system": E2E,
    "kubectl logs -n ballast-system": IN_CLUSTER,
    "kubectl create secret generic ballast-web-login": IN_CLUSTER,
    "kubectl delete secret ballast-webhooks-tls": IN_CLUSTER,
    "kubectl create job": PART,
    "kubectl describe pod": PART,
    "kubectl debug": "no container runs in the simulated pods",
    "ballast simulate FILE --days N": "names the command that the block below it has",
    "ballast convert --from kueue": "needs Kueue's kinds; tests/unit/convert",
}
#: Commands that run until Ctrl-C -> their first output.
ENDLESS: Final = {"kubectl ballast web": "http://127.0.0.1:"}
#: Documented exit codes besides 0.
CODES: Final = {
    "kubectl ballast why": {3},
    "kubectl ballast whatif": {5},
    "ballast whatif": {5},
    "ballast convert": {1},
}
