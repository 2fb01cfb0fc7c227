"""How a new selection reaches the workers with the least movement, and what to keep loaded around it (Jellyfish
§IV-D).
"""

from collections.abc import Sequence

from appliance.policies.adaptation.base import Network


def match(
    previous: Sequence[str | None], selected: Sequence[str], order: Sequence[str], workers: int
) -> tuple[int, ...]:
    """The worker of each selected network (JF-18): old and new, both by descending size (`order` ascends), are joined
    element by element.

    Workers that hold nothing, or a network that left the zoo, come last: something must be loaded there anyway. With
    fewer networks than workers, each selected one takes the first worker in that order from which no later one has less
    far to go. Ties: the lower index.
    """
    size = {name: rank for rank, name in enumerate(order)}
    held = [previous[k] if k < len(previous) else None for k in range(workers)]
    old = sorted(range(workers), key=lambda k: (-size.get(held[k] or "", -1), k))
    new = sorted(range(len(selected)), key=lambda i: (-size[selected[i]], i))
    steps = [[_distance(size, held[k], selected[i]) for k in old] for i in new]
    chosen = _least_in_order(steps, len(new), len(old))
    worker_of = dict(zip(new, (old[k] for k in chosen), strict=True))
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


def _distance(size: dict[str, int], held: str | None, wanted: str) -> int:
    """Steps between two networks; an empty worker is as far as the whole zoo."""
    return abs(size[held] - size[wanted]) if held in size else len(size)


def _least_in_order(steps: Sequence[Sequence[int]], rows: int, columns: int) -> list[int]:
    """The increasing choice of one column for each row with the least sum; the earliest of equals.

    With as many columns as rows: the diagonal.
    """
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
