"""How a new selection reaches the workers with the least movement, and what to keep loaded around it (Jellyfish
§IV-D).
"""

from collections.abc import Sequence

from appliance.policies.adaptation.base import Network


def match(
    previous: Sequence[str | None], selected: Sequence[str], order: Sequence[str], workers: int
) -> tuple[int, ...]:
    """The worker of each selected network (JF-18): old and new, both by descending size (`order` ascends), are joined
    element by element, so that all together move the least.

    With fewer networks than workers that hold one, each takes the first worker in that order from which no later one
    has less far to go. With more, those that have the farthest to go get the workers that hold nothing, or a network
    that left the zoo: something must be loaded there anyway. Ties: the lower index.
    """
    size = {name: rank for rank, name in enumerate(order)}
    held = {k: size[name] for k, name in enumerate(previous[:workers]) if name is not None and name in size}
    old = sorted(held, key=lambda k: (-held[k], k))
    new = sorted(range(len(selected)), key=lambda i: (-size[selected[i]], i))
    if len(new) <= len(old):
        steps = [[abs(held[k] - size[selected[i]]) for k in old] for i in new]
        pairs = list(zip(new, (old[at] for at in _least_in_order(steps)), strict=True))
    else:
        steps = [[abs(held[k] - size[selected[i]]) for i in new] for k in old]
        pairs = list(zip((new[at] for at in _least_in_order(steps)), old, strict=True))
    staying = {i for i, _ in pairs}
    empty = (k for k in range(workers) if k not in held)
    worker_of = dict(pairs) | dict(zip((i for i in new if i not in staying), empty, strict=False))
    return tuple(worker_of[i] for i in range(len(selected)))


def prefetch(active: Sequence[str], order: Sequence[str], per_worker: int) -> tuple[str, ...]:
    """The nearest neighbours by size of the active networks, `per_worker` around each with itself (JF-19: 5, or 3),
    nearest first.

    At an end of the zoo the window moves inwards. The active ones themselves are not in the answer.
    """
    size = {name: rank for rank, name in enumerate(order)}
    wanted: dict[str, int] = {}
    for name in set(active):
        first = max(0, min(size[name] - per_worker // 2, len(order) - per_worker))
        for rank in range(first, min(len(order), first + per_worker)):
            distance = abs(rank - size[name])
            wanted[order[rank]] = min(distance, wanted.get(order[rank], distance))
    return tuple(sorted((n for n in wanted if n not in active), key=lambda n: (wanted[n], size[n])))


def names(networks: Sequence[Network]) -> tuple[str, ...]:
    return tuple(network.name for network in networks)


def _least_in_order(steps: Sequence[Sequence[int]]) -> list[int]:
    """The increasing choice of one column for each row with the least sum; the earliest of equals.

    With as many columns as rows: the diagonal.
    """
    rows, columns = len(steps), len(steps[0]) if steps else 0
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for row in range(rows - 1, -1, -1):
        best[row][columns] = 1 << 40
        for column in range(columns - 1, -1, -1):
            best[row][column] = min(best[row][column + 1], steps[row][column] + best[row + 1][column + 1])
    chosen: list[int] = []
    column = 0
    for row in range(rows):
        while (
            best[row][column] == best[row][column + 1]
            and best[row][column] != steps[row][column] + best[row + 1][column + 1]
        ):
            column += 1
        chosen.append(column)
        column += 1
    return chosen
