"""What `appliance models show` says of a variant."""

from appliance.cli.models import _avoids
from appliance.wire.catalogue import VariantShape


def test_kinds_that_are_avoided_are_named_with_the_way_out() -> None:
    """By kind, where it serves meanwhile, and how it is let back."""
    variant = VariantShape.model_construct(name="int8", avoids=["openvino", "cuda"], serves_on="cpu")
    assert _avoids("face", variant) == (
        "int8: its process has crashed on openvino, cuda; it serves on cpu until the next start of the box or: "
        "appliance models release face int8"
    )
