"""What is known of the documentation's commands: which the demonstration cannot run, and why."""

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
#: Beginnings of commands that are not run, and why. Each must be the beginning of some command.
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
#: Commands that run until Ctrl-C, and what they print first.
ENDLESS: Final = {"kubectl ballast web": "http://127.0.0.1:"}
#: Exit codes that the documentation gives a meaning, besides 0.
CODES: Final = {
    "kubectl ballast why": {3},
    "kubectl ballast whatif": {5},
    "ballast whatif": {5},
    "ballast convert": {1},
}
