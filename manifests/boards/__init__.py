"""Grafana boards, generated: `python -m manifests.boards --write`. Not looked at in Grafana yet."""
