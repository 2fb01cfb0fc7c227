"""Who made what the zoo uses, as the table in docs/zoo.md; a test compares the two."""

from appliance.demo.zoo.carriers import CARRIERS, Carrier
from appliance.demo.zoo.zoos import ZOOS, carriers_of

HEAD = ("package", "client", "MB", "zoos", "licence", "files taken")


def carriers_table() -> str:
    """A Markdown table with one row for each carrier."""
    rows = [HEAD, tuple("---" for _ in HEAD), *map(_row, CARRIERS)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(carrier: Carrier) -> tuple[str, ...]:
    zoos = [name for name in ZOOS if carrier.key in carriers_of(name)]
    files = ", ".join(f"`{taken.name}`" for taken in carrier.files)
    megabytes = f"{carrier.size_bytes / 1e6:.1f}"
    return (f"{carrier.package} {carrier.version}", carrier.client, megabytes, ", ".join(zoos), carrier.licence, files)


def recipes_table() -> str:
    """A Markdown table with one row for each model of each zoo."""
    head = ("zoo", "tenant", "model", "task", "look at")
    rows = [head, tuple("---" for _ in head)]
    for name, recipes in ZOOS.items():
        rows += [(name, recipe.tenant, f"`{recipe.name}`", recipe.task, recipe.show) for recipe in recipes]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
