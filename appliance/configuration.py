"""What settings say, in the words of the runtime: policies by their names, bounds in its units. Pure."""

from collections.abc import Collection, Sequence

from appliance.domain.isolation import Isolation
from appliance.policies.adaptation import ADAPTATION_POLICIES
from appliance.policies.allocation import ALLOCATION_POLICIES
from appliance.policies.batching import BATCHING_POLICIES
from appliance.policies.dispatch import DISPATCH_POLICIES
from appliance.policies.offload import OFFLOAD_POLICIES
from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.selection import SELECTION_POLICIES
from appliance.runtime.assembly import Policies, RuntimeConfig
from appliance.runtime.ports import RunGroup
from appliance.runtime.serving.trial_samples import SampleBounds
from appliance.settings import MIB, Settings

RESERVE_BYTES_MAX = 256 * MIB
"""Largest default of the memory that stays free."""


def chosen_policies(settings: Settings, groups: Sequence[RunGroup]) -> Policies:
    """Raises: RuntimeError naming the key that is wrong."""
    chosen = settings.policies
    registries: dict[str, Collection[str]] = {
        "selection": SELECTION_POLICIES,
        "batching": BATCHING_POLICIES,
        "dispatch": DISPATCH_POLICIES,
        "eviction": EVICTION_POLICIES,
        "adaptation": ADAPTATION_POLICIES,
        "offload": OFFLOAD_POLICIES,
        "allocation": ALLOCATION_POLICIES,
    }
    for family, known in registries.items():
        if (name := getattr(chosen, family)) not in known:
            raise RuntimeError(f"policies.{family}: {name!r} is not one of: {', '.join(sorted(known))}")
    names = {group.name for group in groups}
    for model, processor in settings.dispatch.fixed.items():
        if processor not in names:
            raise RuntimeError(f"dispatch.fixed: {model}: {processor!r} is not one of: {', '.join(sorted(names))}")
    return Policies(
        selection=SELECTION_POLICIES[chosen.selection](),
        selection_name=chosen.selection,
        batching=BATCHING_POLICIES[chosen.batching](),
        dispatch=DISPATCH_POLICIES[chosen.dispatch](),
        dispatch_name=chosen.dispatch,
        fixed=settings.dispatch.fixed,
        eviction=EVICTION_POLICIES[chosen.eviction](),
        eviction_name=chosen.eviction,
    )


def runtime_config(settings: Settings, available_bytes: int) -> RuntimeConfig:
    """`available_bytes`: the memory that the box could take now."""
    queues = settings.queues
    return RuntimeConfig(
        budget_bytes=memory_budget(settings, available_bytes),
        reserve_bytes=memory_reserve(settings, available_bytes),
        wait_ms_max=settings.memory.wait_ms_max,
        asleep_share=settings.memory.asleep_share,
        loads_ahead_max=1,
        timeout_ms=queues.timeout_ms,
        queue_len_max=queues.len_max,
        queue_total_max=queues.total_max,
        queue_wait_ms_max=queues.wait_ms_max,
        sequences_max=queues.sequences_max,
        sequence_idle_s=queues.sequence_idle_s,
        quick_us_max=queues.quick_us_max,
        inline_ms_max=queues.inline_ms_max,
        isolation=Isolation(settings.guard.isolation),
        loss_max=settings.selection.loss_max,
        run_weight=settings.profiles.run_weight,
        leaves_out_parts=settings.dispatch.leave_out_parts,
        is_plain=settings.profiles.correction == "plain",
        samples=SampleBounds(settings.trials.samples_max, settings.trials.bytes_max, settings.trials.bytes_total_max),
        **settings.residency.model_dump(),
    )


def memory_budget(settings: Settings, available_bytes: int) -> int:
    """Bytes for loaded builds: as set, or a share of what the box could take now."""
    memory = settings.memory
    return memory.budget_bytes or int(available_bytes * memory.budget_share)


def memory_reserve(settings: Settings, available_bytes: int) -> int:
    """Return the bytes that stay free for other programs: as set, else 256 MiB, less where little is available."""
    reserve = settings.memory.reserve_bytes
    return min(RESERVE_BYTES_MAX, available_bytes // 4) if reserve is None else reserve


def media_threads(settings: Settings, groups: Sequence[RunGroup]) -> int:
    """Threads that decode, and run the CPU stages of pipelines."""
    return settings.queues.media_threads or sum(one.workers for one in groups)
