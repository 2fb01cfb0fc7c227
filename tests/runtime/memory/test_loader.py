"""The loader: from a build's name to a handle and back."""

import pytest

from appliance.clock import LoopClock
from appliance.domain.errors import LoadFailed
from appliance.runtime.memory.loader import Loader
from tests.fakes.clock import run_virtual
from tests.fakes.processor import Cost, FakeProcessor
from tests.fakes.source import FakeSource


def test_load_and_unload() -> None:
    """The processor gets the form that the source has, and drops it again."""

    async def story() -> None:
        processor = FakeProcessor(LoopClock())
        loader = Loader(FakeSource(), processor)
        handle = await loader.load("b")
        assert handle.build_id == "b"
        assert set(processor.memory) == {"b"}
        await loader.unload(handle)
        assert processor.memory == {}

    run_virtual(story)


@pytest.mark.parametrize(
    ("failure", "reason"), [(OSError("disk gone"), "OSError: disk gone"), (ValueError("x" * 1000), "ValueError: xxx")]
)
def test_whatever_fails_is_a_failed_load(failure: Exception, reason: str) -> None:
    """With the type and text of what happened below, cut to a readable length."""

    async def story() -> None:
        loader = Loader(FakeSource(), FakeProcessor(LoopClock(), {"b": Cost(failures=[failure])}))
        with pytest.raises(LoadFailed) as caught:
            await loader.load("b")
        assert caught.value.reason.startswith(reason)
        assert len(caught.value.reason) <= 300

    run_virtual(story)


def test_own_errors_pass() -> None:
    """A missing content keeps its own words."""

    async def story() -> None:
        source = FakeSource()
        source.missing.add("b")
        with pytest.raises(LoadFailed, match="the content is missing"):
            await Loader(source, FakeProcessor(LoopClock())).load("b")

    run_virtual(story)
