"""What `appliance models show` says of a variant."""

from typing import Any

import pytest

from appliance.cli.models import _avoids, _explain_kinds
from appliance.wire.catalogue import GivenUpShape, VariantShape


def test_kinds_that_are_avoided_are_named_with_the_way_out() -> None:
    """By kind, where it serves meanwhile, and how it is let back."""
    facts: dict[str, Any] = {"name": "int8", "avoids": ["openvino", "cuda"], "serves_on": "cpu"}
    variant = VariantShape.model_construct(**facts)
    assert _avoids("face", variant) == (
        "int8: its process has crashed on openvino, cuda; it serves on cpu until the next start of the box or: "
        "appliance models release face int8"
    )


def test_kinds_are_told_with_the_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    """Why it serves where it does, and why it does not run elsewhere."""
    given_up = GivenUpShape(kind="dla", reason="dla cannot compile it: its inputs are of free size")
    facts: dict[str, Any] = {"name": "int8", "profiles": [], "avoids": [], "awaited": [], "cut": None}
    reason = "a request costs 18.9 ms on openvino and 24.1 on cpu, loads and memory counted in"
    _explain_kinds("face", VariantShape.model_construct(**facts, kind_reason=reason, given_up=[given_up]))
    assert capsys.readouterr().out.splitlines() == [
        f"  int8: {reason}",
        "  int8: does not run on dla: dla cannot compile it: its inputs are of free size",
    ]
