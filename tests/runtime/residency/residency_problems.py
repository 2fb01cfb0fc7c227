"""Problems of the residency loop with every field in use."""

from appliance.policies.residency.base import (
    ApplicationState,
    Change,
    Option,
    Rate,
    ResidencyPlan,
    ResidencyProblem,
    TenantShare,
    Wish,
)

SECOND = 1_000_000_000
NOW_NS = 123 * 86_400 * SECOND + 987_654_321
"""A box that has been up for months: more nanoseconds than a float tells apart."""


def options(scale: int) -> tuple[Option, ...]:
    return (
        Option("fp32", 500_000_001 * scale, 612_345_678 * scale, 90.2, 900_000_123),
        Option("int8", 140_000_003 * scale, 140_000_003 * scale, 71.8, 240_000_000),
    )


def problem(request: str | None = "harbour/face", tenants: bool = True) -> ResidencyProblem:
    """Three applications of two tenants; `face` is not in memory and fits only when others shrink."""
    return ResidencyProblem(
        now_ns=NOW_NS,
        memory_bytes=1_200_000_007,
        history_window_ns=3 * SECOND + 1,
        delta_ns=800_000_001,
        applications=(
            ApplicationState(
                "harbour/face",
                options(1),
                None,
                next_request_ns=NOW_NS + 200_000_003,
                rate=Rate(3, NOW_NS - 10 * SECOND),
            ),
            ApplicationState(
                "harbour/text",
                options(1),
                "fp32",
                last_request_ns=NOW_NS - 10 * SECOND - 1,
                next_request_ns=NOW_NS + 60 * SECOND + 7,
                prediction_hit_rate=0.25,
                weight=2.0,
                tenant="harbour",
                accuracy_min=95.0,
                wishes=(Wish("int8", NOW_NS + 5 * SECOND + 3, 2),),
            ),
            ApplicationState(
                "museum/sound",
                options(1),
                "fp32",
                last_request_ns=NOW_NS - 8 * SECOND,
                next_request_ns=NOW_NS + 90 * SECOND,
                tenant="museum",
            ),
        ),
        request=request,
        intent="serve" if request else "rebalance",
        tenants=(TenantShare("harbour", 100_000_001, 1_100_000_000),) if tenants else (),
        spread_ns=700_000_003,
        unexpected={"harbour/text": 0.05, "museum/sound": 0.2} if request else {},
    )


def plan() -> ResidencyPlan:
    """Text becomes smaller for face; whether a policy would say so does not matter here."""
    changes = (Change("harbour/text", "fp32", "int8"), Change("harbour/face", None, "fp32"))
    return ResidencyPlan("cold", "fp32", changes, "harbour/text is not expected for 60 s")
