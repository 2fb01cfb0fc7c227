"""From instances with a number of places per rate to clients: a matching, exact for both objectives at once.

Where each instance has a fixed number of places for each rate, rates do not interact, and the sets of places that can
be filled together are a (transversal) matroid. So filling places by descending accuracy, with augmenting paths, fills
the most places and has the largest Σ accuracy·rate.
"""

from collections.abc import Mapping, Sequence

from appliance.policies.adaptation.options import Options


def fill(options: Options, instances: Sequence[tuple[int, Mapping[float, int]]]) -> list[list[int]]:
    """The clients (indices) of each instance (option, places by rate). O(places · clients · instances) per rate."""
    members: list[list[int]] = [[] for _ in instances]
    for rate in sorted({float(rate) for rate in options.rates}):
        clients = [i for i in range(len(options.clients)) if options.rates[i] == rate]
        places = [
            k
            for k in sorted(range(len(instances)), key=lambda k: instances[k][0])
            for _ in range(instances[k][1].get(rate, 0))
        ]
        for client, place in _matched(options, clients, [instances[k][0] for k in places]).items():
            members[places[place]].append(client)
    return [sorted(m) for m in members]


def _matched(options: Options, clients: Sequence[int], places: Sequence[int]) -> dict[int, int]:
    """Client → place, places (options, the most accurate first) served in order; Kuhn's augmenting paths."""
    # The least tolerant first: leaves the tolerant ones for later places, so that few paths are needed.
    order = sorted(clients, key=lambda i: (int(options.tolerated[i].sum()), i))
    taker = {o: [i for i in order if options.tolerated[i, o]] for o in set(places)}
    place_of: dict[int, int] = {}

    def seat(place: int, seen: set[int]) -> bool:
        free = next((i for i in taker[places[place]] if i not in place_of and i not in seen), None)
        if free is not None:
            place_of[free] = place
            return True
        for client in taker[places[place]]:
            if client not in seen:
                seen.add(client)
                if seat(place_of[client], seen):
                    place_of[client] = place
                    return True
        return False

    for place in range(len(places)):
        seat(place, set())
    return place_of
