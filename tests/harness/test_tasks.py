"""The check for tasks that a test leaves open on a real event loop."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.harness import tasks
from tests.harness.tasks import TaskGuard


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskGuard]:
    """A guard beside the one of the test run."""
    monkeypatch.setattr(tasks, "PATIENCE_S", 0.05)
    made = TaskGuard()
    made.install()
    yield made
    made.uninstall()


def test_task_left_open_fails_the_test(guard: TaskGuard) -> None:
    async def story() -> None:
        kept.append(asyncio.create_task(asyncio.Event().wait(), name="left open"))

    kept: list[asyncio.Task[bool]] = []
    asyncio.run(story())
    with pytest.raises(pytest.fail.Exception, match="left open"):
        guard.check()
    guard.begin()
    guard.check()


def test_task_cancelled_or_about_to_end_does_not_fail_the_test(
    guard: TaskGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "PATIENCE_S", 60.0)

    async def story() -> None:
        kept.append(asyncio.create_task(asyncio.Event().wait()))
        await asyncio.sleep(0)  # noqa: TID251 - lets the task begin
        kept[0].cancel()
        kept.append(asyncio.create_task(asyncio.to_thread(bool)))

    kept: list[asyncio.Task[bool]] = []
    asyncio.run(story())
    guard.check()
    assert kept[1].result() is False


def test_error_of_a_test_is_not_hidden_by_open_tasks(guard: TaskGuard) -> None:
    async def story() -> None:
        kept.append(asyncio.create_task(asyncio.Event().wait()))
        raise ValueError("the test's own")

    kept: list[asyncio.Task[bool]] = []
    with pytest.raises(ValueError, match="the test's own"):
        asyncio.run(story())
    guard.check()


@pytest.mark.anyio
async def test_anyio_runner_is_no_open_task_of_the_test(guard: TaskGuard) -> None:
    assert tasks.open_tasks(asyncio.get_running_loop()) == set()
