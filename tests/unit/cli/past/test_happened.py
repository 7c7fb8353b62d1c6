"""The history of workloads, from objects as the API server returns them."""

import asyncio
import json
from typing import Any

import pytest

from extender.cli.past import happened
from extender.kube.transport import Call


class TestHistory:
    def event(self, by: str, reason: str, note: str) -> dict[str, Any]:
        return {
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "reportingController": by,
            "eventTime": "2026-01-01T00:00:09.123456Z",
            "regarding": {"kind": "Pod", "namespace": "n", "name": "j-1"},
            "reason": reason,
            "note": note,
        }

    def test_only_events_of_ballast_are_told_without_their_word_twice(self) -> None:
        events = [
            self.event("ballast-controller", "Reclaimed", "Reclaimed: search takes it"),
            self.event("kubelet", "Pulled", "image"),
        ]
        (found,) = happened.from_events(events)
        assert (found["time"], found["what"]) == ("2026-01-01T00:00:09Z", "Reclaimed")
        assert found["message"] == "search takes it"
        assert found["isEviction"]

    def test_event_that_sums_up_evictions_for_the_owner_is_no_eviction(self) -> None:
        event = self.event("ballast-controller", "Reclaimed", "j-1: reclaimed")
        event["regarding"] = {"kind": "Job", "namespace": "n", "name": "j"}
        (found,) = happened.from_events([event])
        assert (found["object"], found["isEviction"]) == ("job:n/j", False)

    def test_event_that_was_repeated_counts_when_it_was_seen_last(self) -> None:
        event = self.event("ballast-controller", "Waiting", "")
        event["series"] = {"count": 2, "lastObservedTime": "2026-01-01T00:07:00.000000Z"}
        (found,) = happened.from_events([event])
        assert found["time"] == "2026-01-01T00:07:00Z"

    def test_pods_that_ballast_does_not_manage_are_left_out(self) -> None:
        meta = {"namespace": "n", "name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"}
        pod: dict[str, Any] = {"metadata": meta, "spec": {}, "status": {}}
        assert not list(happened.from_pods([pod]))
        gated = {**pod, "spec": {"schedulingGates": [{"name": "ballast.dev/admission"}]}}
        assert [each["what"] for each in happened.from_pods([gated])] == ["Created"]

    def test_pods_of_an_owner_are_found_by_its_name(self) -> None:
        assert happened.is_about("pod:n/j-1", "j")
        assert happened.is_about("pod:n/j", "j")
        assert not happened.is_about("pod:n/jj-1", "j")

    def test_condition_that_is_false_is_reported(self) -> None:
        condition = {"type": "Scheduled", "status": "False", "reason": "OverLimit",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        group = {"metadata": {"name": "g", "namespace": "n"}, "status": {"conditions": [condition]}}
        (found,) = happened.from_groups([group])
        assert (found["what"], found["message"]) == ("NotScheduled", "OverLimit")

    @pytest.mark.parametrize(
        ("name", "selector", "told"),
        [
            ("", "", ["j-1 Created", "other Created", "j-1 Reclaimed", "j-1 Started"]),
            ("j", "", ["j-1 Created", "j-1 Reclaimed", "j-1 Started"]),
            ("other", "", ["other Created"]),
            ("", "app=j", ["j-1 Created", "j-1 Reclaimed", "j-1 Started"]),
        ],
    )
    def test_the_newest_comes_last_and_other_work_is_left_out(
        self, name: str, selector: str, told: list[str]
    ) -> None:
        def made(pod: str, at: int, **status: str) -> dict[str, Any]:
            meta = {"namespace": "n", "name": pod, "labels": {"ballast.dev/project": "a"}}
            meta |= {"creationTimestamp": f"2026-01-01T00:00:0{at}Z"}
            return {"metadata": meta, "spec": {"nodeName": "n1"}, "status": status}

        class Api:
            async def send(self, call: Call) -> bytes:
                pods = [made("other", 2), made("j-1", 1, startTime="2026-01-01T00:00:10Z")]
                if call.query.get("labelSelector"):
                    pods = pods[1:]
                kind = call.path.rpartition("/")[2]
                items = {"events": [event], "pods": pods, "gpupodgroups": []}[kind]
                return json.dumps({"metadata": {}, "items": items}).encode()

        event = self.event("ballast-controller", "Reclaimed", "Reclaimed: search takes it")
        client: Any = Api()
        answer = asyncio.run(happened.read(client, "n", name, selector))
        assert [
            f"{each['object'].rpartition('/')[2]} {each['what']}" for each in answer["items"]
        ] == told

    @pytest.mark.parametrize(
        ("namespace", "name", "is_evictions", "told"),
        [
            ("a", "j", False, 'No events or pods of "j" found in namespace "a"; '),
            ("a", "", True, 'No evictions found in namespace "a"; '),
            ("", "", False, "No events or pods found in any namespace; "),
        ],
    )
    def test_a_history_without_entries_names_what_was_looked_for(
        self, namespace: str, name: str, is_evictions: bool, told: str
    ) -> None:
        listing = happened.listing_of(namespace, name, is_evictions=is_evictions)
        assert listing.empty == f"{told}the API server keeps events for an hour."

    @pytest.mark.parametrize(("namespace", "is_shown"), [("", True), ("a", False)])
    def test_a_history_of_all_namespaces_shows_them(self, namespace: str, is_shown: bool) -> None:
        columns = happened.listing_of(namespace, "", is_evictions=True).columns
        shown = [each.name for each in columns if not each.is_wide]
        assert ("NAMESPACE" in shown) == is_shown

    @pytest.mark.parametrize(
        ("annotation", "told"),
        [
            ("", "on n1"),
            ("3:1000:81920", "on n1, card 3"),
            ("1:470:7219", "on n1, card 1 (0.47)"),
            ("0:500:8192,2:500:8192", "on n1, cards 0 (0.5), 2 (0.5)"),
        ],
    )
    def test_a_started_pod_is_reported_with_its_cards(self, annotation: str, told: str) -> None:
        meta = {
            "namespace": "n",
            "name": "p",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"ballast.dev/project": "a"},
            "annotations": {"ballast.dev/cards": annotation},
        }
        status = {"startTime": "2026-01-01T00:00:01Z"}
        pod = {"metadata": meta, "spec": {"nodeName": "n1"}, "status": status}
        _, started = happened.from_pods([pod])
        assert started["message"] == told
