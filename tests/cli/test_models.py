"""What `appliance models show` says of a variant."""

from typing import Any

from appliance.cli.models import _avoids
from appliance.wire.catalogue import VariantShape


def test_kinds_that_are_avoided_are_named_with_the_way_out() -> None:
    """By kind, where it serves meanwhile, and how it is let back."""
    facts: dict[str, Any] = {"name": "int8", "avoids": ["openvino", "cuda"], "serves_on": "cpu"}
    variant = VariantShape.model_construct(**facts)
    assert _avoids("face", variant) == (
        "int8: its process has crashed on openvino, cuda; it serves on cpu until the next start of the box or: "
        "appliance models release face int8"
    )
