"""Stages as they are posted, in the domain and on the disk: the same everywhere, whatever is in them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from appliance.api.auth.keyring import Principal
from appliance.api.v1.pipeline_stages import stage_order, stages_of
from appliance.domain.access import Role
from appliance.domain.catalogue import Application
from appliance.domain.pipeline import Ask, Crop, Join, OnError, Pick, PickBy, Stage, When, Where
from appliance.modelstore.store.documents import stage_document, stage_of
from appliance.runtime.catalogue import Catalogue
from appliance.wire.pipelines import AnyStage

TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=20)
NAMES = st.lists(TEXT, max_size=4).map(tuple)
SHARE = st.floats(0, 1)
COMMON: dict[str, Any] = {
    "name": TEXT,
    "after": NAMES,
    "when": st.none() | st.builds(When, TEXT, NAMES, NAMES, SHARE),
    "at_most": st.integers(1, 64),
    "on_error": st.sampled_from(OnError),
}
WHERE = st.builds(Where, SHARE, NAMES, NAMES, SHARE)
STAGES = st.one_of(
    st.builds(
        Ask,
        application_id=st.sampled_from(["t/door", "u/gate"]),
        variant=st.none() | TEXT,
        accuracy_min=st.none() | st.integers(0, 1000).map(lambda tenths: tenths / 10),
        is_stateful=st.booleans(),
        **COMMON,
    ),
    st.builds(Crop, of=st.sampled_from(["regions", "objects"]), where=WHERE, **COMMON),
    st.builds(Pick, best=st.integers(1, 64), by=st.sampled_from(PickBy), labels=NAMES, **COMMON),
    st.builds(Join, **COMMON),
)
ORDER: TypeAdapter[AnyStage] = TypeAdapter(AnyStage)
CALLER = Principal("t", Role.TENANT, (), "k")


class Applications(Catalogue):
    """What a tenant can call: one of its own, and one that another shares."""

    def __init__(self) -> None:
        pass

    def resolve(self, tenant: str, name: str) -> Application:
        owner = {"door": "t", "gate": "u"}[name]
        return Application(f"{owner}/{name}", owner, name, f"{owner}/m")


def near(stage: Stage) -> Stage:
    """Accuracies are shares outside, and points inside: a point may differ in its last digits."""
    if not isinstance(stage, Ask) or stage.accuracy_min is None:
        return stage
    return replace(stage, accuracy_min=round(stage.accuracy_min, 6))


@given(STAGES)
def test_pipeline_stage_as_shown_can_be_posted(stage: Stage) -> None:
    """And is the same stage then, over JSON, with the application that it named."""
    shown = stage_order(stage).model_dump_json()
    posted = ORDER.validate_json(shown)
    assert near(stages_of([posted], Applications(), CALLER)[0]) == near(stage)
    short = ORDER.validate_json(stage_order(stage).model_dump_json(exclude_defaults=True))
    assert near(stages_of([short], Applications(), CALLER)[0]) == near(stage)


@given(STAGES)
def test_pipeline_stage_comes_back_from_the_store(stage: Stage) -> None:
    """Also where a newer version has written more beside it."""
    document = json.loads(json.dumps(stage_document(stage)))
    assert near(stage_of(document)) == near(stage)
    assert near(stage_of({**document, "unheard_of": [1]})) == near(stage)


def refusal(sort: Any) -> list[str]:
    """What is said of a stage of this sort."""
    with pytest.raises(ValidationError) as wrong:
        ORDER.validate_python({"name": "a", "do": sort, "application": "door"})
    return [one["msg"] for one in wrong.value.errors()]


@pytest.mark.parametrize("sort", ["crop", "pick", "exec", "x" * 10_000, "", 5, [], {}])
def test_pipeline_stage_of_an_unknown_sort_is_refused_shortly(sort: Any) -> None:
    """As an error of the field, never of the box; the unknown sort and the known are named."""
    assert all(len(one) < 200 for one in refusal(sort))
    for name in ("exec", "ask"):
        told = f"do: '{name}' is not one of: crop, pick, join; a stage without it asks an application"
        assert refusal(name) == [told]
