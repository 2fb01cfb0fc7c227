"""Why a device is told another variant than before, for a person."""

from appliance.runtime.sessions.zoo import Rung, Zoo


def reason_for(old: str, new: Rung, zoo: Zoo, loading: str = "") -> str:
    """Empty where it is the same, or the first one. `loading`: what is to come in its place."""
    if not old or old == new.name:
        return ""
    if any(rung.name == old for rung in zoo.refused):
        return f"memory has no room for {old}"
    if loading:
        return f"{old} is to be replaced, and {loading} is not in memory yet"
    before = zoo.by_name.get(old)
    if before is None:
        return f"{old} is in service no more"
    if new.accuracy > before.accuracy:
        return f"{new.name} has a higher {zoo.meaning} than {old}, and there is room for it"
    if new.accuracy < before.accuracy:
        return f"promises are kept with {new.name}, which has a lower {zoo.meaning} than {old}"
    return f"{new.name} has the same {zoo.meaning} as {old}, and serves all promises with less"
