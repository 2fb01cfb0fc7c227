"""Every request has a run of its own."""

from appliance.policies.batching.base import BatchingInput


class NoBatching:
    """What is compared to, and the way to turn batching off."""

    shares = False

    def together(self, problem: BatchingInput) -> int:
        return 1
