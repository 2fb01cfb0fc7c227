"""What a stage's process may do, and how its end reaches the importer: real processes, real limits."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.confinement import landlock
from appliance.domain.errors import ApplianceError, BadArchive, BadModel, NotConfined, StorageFull
from appliance.modelstore.importing.child import ChildLimits, Stages
from appliance.modelstore.orders import InspectOrder, UnpackOrder
from tests.fakes.waiting import until
from tests.harness.lacking import skip_if
from tests.modelstore.importing.children import LIMITS, MISBEHAVING, misbehave

pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.anyio]


async def refusal_of(how: str, target: Path, limits: ChildLimits = LIMITS) -> str:
    with pytest.raises(BadArchive) as caught:
        await misbehave(how, target, limits)
    return str(caught.value)


async def test_import_child_returns_progress_and_result_beside_printed_text(tmp_path: Path) -> None:
    """Whatever is printed to standard output does not disturb the conversation."""
    seen: list[tuple[float, str]] = []
    with closing(Stages(MISBEHAVING)) as stages:
        order = UnpackOrder("print", str(tmp_path))
        result = await stages.run(
            order, limits=LIMITS, on_progress=lambda share, message: seen.append((share, message))
        )
    assert result.model == str(tmp_path / "model.onnx")
    assert seen == [(0.5, "half")]


@pytest.mark.parametrize("is_required", [True, False])
async def test_import_child_without_confinement_runs_only_if_allowed(tmp_path: Path, is_required: bool) -> None:
    """Whatever the service found when it started: the child sees what took effect."""
    limits = replace(LIMITS, must_be_confined=is_required)
    order = UnpackOrder("source", str(tmp_path))
    outcome = pytest.raises(NotConfined, match="lacks Landlock") if is_required else nullcontext()
    with closing(Stages("tests.modelstore.without_landlock")) as stages, outcome:
        await stages.run(order, limits=limits)


async def test_import_child_has_no_secrets_and_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment, working folder, politeness and limits are the child's own; the folder is gone afterwards."""
    monkeypatch.setenv("APPLIANCE_ADMIN_KEY", "xyzzy")
    await misbehave("environment", tmp_path)
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert "xyzzy" not in json.dumps(facts["environment"])
    assert os.path.dirname(facts["cwd"]) == str(tmp_path)
    assert not exists(facts["cwd"])
    assert facts["cwd"] not in facts["path"], "a module beside an uploaded file must not be imported"
    assert (facts["nice"], facts["core"], facts["files"]) == (min(os.nice(0) + 3, 19), 0, [256, 256])


async def test_import_child_error_keeps_class_over_pipe(tmp_path: Path) -> None:
    """The class that the stage raised is the class that the importer catches."""
    with pytest.raises(StorageFull):
        await misbehave("full disk", tmp_path)


async def test_import_child_crashes_and_limits_become_plain_reasons(tmp_path: Path) -> None:
    """Each way to die has words that say what happened."""
    assert "ended its process (signal 11): pack it again" in await refusal_of("segfault", tmp_path)
    assert "something was wrong" in await refusal_of("exit", tmp_path)
    assert "more than 1 s of processor time" in await refusal_of("spin", tmp_path, replace(LIMITS, cpu_s=1))
    assert "took longer than 1 s" in await refusal_of("sleep", tmp_path, replace(LIMITS, wall_s=1.0))


async def test_import_child_crash_on_graph_says_what_to_try(tmp_path: Path) -> None:
    """The number of a signal alone does not help."""
    order = InspectOrder(str(tmp_path / "segfault"), str(tmp_path))
    with closing(Stages(MISBEHAVING)) as stages, pytest.raises(BadModel) as caught:
        await stages.run(order, limits=LIMITS)
    assert "the runtime crashed on this graph (signal 11); simplify it" in str(caught.value)


async def test_import_child_memory_and_file_limits_hold(tmp_path: Path) -> None:
    """A child cannot take more memory or write a larger file than it was given."""
    with pytest.raises(BadModel, match=r"needs more than 2\.0 GiB of memory"):
        await misbehave("memory", tmp_path)
    with pytest.raises(BadModel, match="writes a file of more than"):
        await misbehave("file", tmp_path)
    assert (tmp_path / "large").stat().st_size <= 1 << 20


async def test_import_child_that_was_taken_over_is_not_believed(tmp_path: Path) -> None:
    """Gibberish and errors that are none of ours are answered like a crash."""
    assert "broke the process" in await refusal_of("gibberish", tmp_path)
    assert "broke the process" in await refusal_of("foreign error", tmp_path)


async def test_import_child_that_was_taken_over_is_confined(tmp_path: Path) -> None:
    """The child reaches no files but its own, starts no program, connects nowhere, signals no process: as far as the
    kernel supports it.
    """
    version = landlock.version()
    skip_if(None if version else "the kernel has no Landlock")
    (tmp_path / "admin.key").write_text("secret")
    (tmp_path / "own").mkdir()
    await misbehave("break out", tmp_path / "own")
    allowed = [name for name, since in (("connect", 4), ("signal", 6)) if version < since]
    assert json.loads((tmp_path / "own" / "worked.json").read_text()) == allowed


async def test_cancelled_import_child_is_killed_with_child_processes(tmp_path: Path) -> None:
    """Neither the child nor what it started lives on."""
    task = asyncio.ensure_future(misbehave("sleep", tmp_path))
    await until(lambda: has_text(tmp_path / "grandchild"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for name in ("pid", "grandchild"):
        pid = int((tmp_path / name).read_text())
        await until(lambda pid=pid: not runs(pid))  # type: ignore[misc]
    assert sorted(os.listdir(tmp_path)) == ["grandchild", "pid"], "the working folder is gone"


async def test_import_child_dies_with_parent(tmp_path: Path) -> None:
    """A service that is killed leaves no importer behind."""
    script = (
        "import asyncio, sys; from pathlib import Path; from tests.modelstore.importing.children import misbehave;"
        "asyncio.run(misbehave('sleep', Path(sys.argv[1])))"
    )
    root = str(Path(__file__).parents[3])
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(tmp_path), cwd=root)
    await until(lambda: has_text(tmp_path / "grandchild"))
    parent.kill()
    await parent.wait()
    pid = int((tmp_path / "pid").read_text())
    await until(lambda: not runs(pid))
    # Ours to clean up: only the child itself is tied to the parent.
    os.kill(int((tmp_path / "grandchild").read_text()), signal.SIGKILL)


def exists(path: str) -> bool:
    return os.path.exists(path)


def has_text(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def runs(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except FileNotFoundError:
        return False


def test_service_imports_neither_onnx_nor_onnx_runtime() -> None:
    """What the importer needs of this package stays light."""
    script = (
        "import sys; import appliance.modelstore.importing.child, appliance.modelstore.importing.dominance, "
        "appliance.modelstore.stages.ladder;"
        "print([name for name in ('onnx', 'onnxruntime', 'cv2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_import_child_result_that_names_foreign_file_is_refused(tmp_path: Path) -> None:
    """A child may only name files of its order: otherwise it could have the importer publish any file of the box."""
    (tmp_path / "outside").write_bytes(b"secret")
    target = tmp_path / "unpacked"
    target.mkdir()
    (target / "model.onnx").symlink_to(tmp_path / "outside")
    with pytest.raises(BadArchive, match="broke the process"):
        await misbehave("print", target)


async def test_import_stage_of_missing_file_fails_with_reason(tmp_path: Path) -> None:
    """Whatever a stage raises arrives as one of the box's own errors."""
    with closing(Stages()) as stages, pytest.raises(ApplianceError, match="No such file"):
        await stages.run(InspectOrder(str(tmp_path / "none"), str(tmp_path)), limits=LIMITS)
