"""Small schedules of requests with few choices."""

from random import Random

from appliance.lab.clairvoyant.chains import Ask, Choice, Schedule
from tests.lab.every_plan import S

SMALL, LARGE = Choice(100, 70.0, S), Choice(300, 90.0, 3 * S)


def schedule(memory: int, *arrivals: tuple[float, int], models: int = 1) -> Schedule:
    return Schedule(
        memory, [[LARGE, SMALL]] * models, [Ask(round(at_s * S), model, 30 * S) for at_s, model in arrivals]
    )


def small_schedule(rng: Random) -> Schedule:
    """Two models of two variants, whole seconds, as many plans as can be tried."""
    choices = []
    for _ in range(2):
        large, small = rng.randint(3, 6), rng.randint(1, 3)
        load_s = rng.randint(1, 3)
        choices.append(
            [
                Choice(large, rng.randint(80, 99), load_s * S),
                Choice(small, rng.randint(50, 80), rng.randint(1, load_s) * S),
            ]
        )
    asks = [Ask(rng.randint(1, 9) * S, rng.randrange(2), rng.randint(1, 5) * S) for _ in range(rng.randint(1, 6))]
    return Schedule(rng.randint(2, 11), choices, sorted(asks, key=lambda ask: ask.at_ns))
