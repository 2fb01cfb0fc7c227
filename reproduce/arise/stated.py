"""What ARISE states in numbers, and what is asked of us, each beside what our runs give (AR-26 to AR-30)."""

from collections.abc import Callable, Sequence

from reproduce.arise.experiments import EXPERIMENTS, OURS, SETTINGS, fitting
from reproduce.claims import UNSAID, Claim, Claims, Numbers, Paper, over

OVER = {"depth, LTE, 0.02": "2.5-5.6", "detection, 5G, 0.2": "1.9-2.1"}
"""The paper's ARISE over its baselines; 1.7-6.9 where it names no setting."""
ASKED = ("depth, 5G, 0.02", "depth, 5G, mixed", "detection, 5G, 0.2")
CARRIED = {"detection, 5G, 0.2": ("9.6", "13.0", "1.2"), "depth, 5G, 0.02": ("7.6", "4.6", "3.1")}
"""Clients, interval and batch in the paper; of depth on its slower testbed."""


def statements(repetitions: Sequence[Numbers]) -> list[Claim]:
    """All of them."""
    claims = Claims(repetitions)
    for name, setting in SETTINGS.items():
        clients, interval, batch = CARRIED.get(name, (UNSAID, UNSAID, UNSAID))
        claims.say("6.4", f"{name}: clients served", clients, f"{name}/{OURS}/served")
        for policy in setting.policies[1:]:
            claims.say("6.4", f"{name}: clients served, {policy}", UNSAID, f"{name}/{policy}/served")
        least = 1.5 if name in ASKED else 1.0
        served, best = f"{name}/{OURS}/served", _best(name, setting.baselines)
        ratio = over(served, best)
        claims.say("6.4", f"{name}: served / best of the baselines", OVER.get(name, "1.7-6.9"), ratio, least=least)
        claims.say("6.4", f"{name}: served by the sum of loads / best", UNSAID, over(_always(fitting(setting)), best))
        alpha = over(served, _best(name, ("arise-alpha",)))
        claims.say("6.4", f"{name}: served / ARISE-alpha", "1.7-3.9", alpha)
        claims.say("6.4", f"{name}: windows kept", "all", f"{name}/{OURS}/windows")
        like = f"{name}/{OURS}/like_windows"
        claims.say("6.4", f"{name}: windows kept while the link is as at admission", "all", like, least=0.99)
        for policy in setting.policies[1:]:
            claims.say("6.4", f"{name}: windows kept, {policy}", "all", f"{name}/{policy}/windows")
        claims.say("6.6", f"{name}: mean offload interval", interval, f"{name}/{OURS}/interval")
        claims.say("6.6", f"{name}: mean batch", batch, f"{name}/{OURS}/batch")
        claims.say("6.6", f"{name}: processor idle", "0.088", f"{name}/{OURS}/idle", most=0.12)
    return claims.found


def _best(name: str, policies: Sequence[str]) -> Callable[[Numbers], float]:
    """The most clients that one of these policies serves."""
    return lambda numbers: max(0.01, *(numbers[f"{name}/{policy}/served"] for policy in policies))


def _always(value: float) -> Callable[[Numbers], float]:
    return lambda numbers: value


PAPER = Paper(EXPERIMENTS, statements, "The box, its processor, the links and the devices are emulated.")
