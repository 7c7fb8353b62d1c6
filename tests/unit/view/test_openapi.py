"""The OpenAPI document of the aggregated API."""

import json
import re

from extender.view.openapi import DOCUMENT_PATH, KINDS, document, index


def test_index_leads_to_the_document() -> None:
    (entry,) = index()["paths"].values()
    assert entry["serverRelativeURL"] == DOCUMENT_PATH


def test_every_kind_has_one_schema_and_every_reference_leads_to_one() -> None:
    told = document(dict(zip("abcde", KINDS, strict=True)))
    schemas = told["components"]["schemas"]
    named = [each.get("x-kubernetes-group-version-kind", []) for each in schemas.values()]
    assert sorted(kind["kind"] for kinds in named for kind in kinds) == sorted(KINDS)
    text = json.dumps(told)
    assert {ref.rpartition("/")[2] for ref in re.findall(r'"\$ref": "([^"]+)"', text)} <= {*schemas}
    assert '"null"' not in text


def test_fields_are_named_as_in_yaml() -> None:
    text = document({})["components"]["schemas"]["Explanation"]["description"]
    assert "`gpuMemory` is the request" in text
    assert "`not_tried`" not in text
