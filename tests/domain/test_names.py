"""Names that people choose, and the ids made of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.errors import BadName
from appliance.domain.names import application_id, build_id, checked_name, checked_variant_name, model_id, variant_id

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789._-"


@given(st.sampled_from(ALPHABET[:36]), st.text(ALPHABET, max_size=62))
def test_legal_name_is_accepted_unchanged(first: str, rest: str) -> None:
    """A letter or digit and up to 62 more of the alphabet is a name."""
    assert checked_name(first + rest, "model") == first + rest


@pytest.mark.parametrize("text", ["", "A", ".a", "-a", "_a", "a/b", "a:b", "a@b", "a b", "ä", "a\n", "a" * 64, "../a"])
def test_illegal_name_is_refused(text: str) -> None:
    """Separators, capitals, blanks, a newline at the end, and anything longer than 63 characters."""
    with pytest.raises(BadName) as caught:
        checked_name(text, "model")
    assert "no name for a model" in str(caught.value)


def test_variant_name_that_is_a_number_is_refused() -> None:
    """`/v2` knows a variant by name and by number; the two must not be mixed up."""
    assert checked_variant_name("2x") == "2x"
    with pytest.raises(BadName, match="'2' is no name for a variant: a number alone is a version"):
        checked_variant_name("2")
    with pytest.raises(BadName, match="use 1 to 63"):
        checked_variant_name("Big")


def test_refused_name_is_truncated_in_the_error() -> None:
    """A message does not repeat a name of a megabyte."""
    with pytest.raises(BadName) as caught:
        checked_name("X" * 10**6, "key")
    assert len(str(caught.value)) < 300


names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,5}", fullmatch=True)


@given(names, names, names, names)
def test_ids_of_different_tenants_or_names_differ(tenant: str, name: str, other_tenant: str, other_name: str) -> None:
    """The separators cannot stand in names."""
    same = (tenant, name) == (other_tenant, other_name)
    assert (model_id(tenant, name) == model_id(other_tenant, other_name)) is same
    assert (variant_id(model_id(tenant, name), "v") == variant_id(model_id(other_tenant, other_name), "v")) is same
    assert application_id(tenant, name) == model_id(tenant, name)


def test_build_id_depends_on_content_and_processor_kind_only() -> None:
    assert build_id("ab" * 32, "cpu") == "ab" * 12 + "@cpu"
    assert build_id("ab" * 32, "gpu") != build_id("ab" * 32, "cpu")
