"""`appliance zoo`: the real networks that the demo shows, fetched by name from package registries."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed

if TYPE_CHECKING:
    from appliance.demo.zoo import ZooName

app = typer.Typer(no_args_is_help=True, help="The zoo: real networks and real inputs from package registries.")

Name = Annotated[
    str, typer.Argument(metavar="ZOO", help="demo: eleven networks; small: five, under 30 MB; ci: the tests'.")
]
CacheFolder = Annotated[
    Path | None, typer.Option(help="Cache folder \\[default: ~/.cache/edge-appliance]", file_okay=False)
]
Json = Annotated[bool, typer.Option("--json", help="Answer with JSON.")]


@app.command("list")
def list_zoo(name: Name = "demo", as_json: Json = False) -> None:
    """List a zoo's models: what they show, which packages carry them, under which licence.

    [dim]$[/dim] appliance zoo list small
    """
    from appliance.demo.zoo.catalogue import BY_KEY, ZOOS, carriers_of

    recipes = ZOOS[checked(name)]
    if as_json:
        screen.show_json(
            [
                {
                    "name": recipe.name,
                    "tenant": recipe.tenant,
                    "task": recipe.task,
                    "show": recipe.show,
                    "carriers": [
                        {"package": BY_KEY[key].title, "client": BY_KEY[key].client, "licence": BY_KEY[key].licence}
                        for key in recipe.carriers
                    ],
                }
                for recipe in recipes
            ]
        )
        return
    rows = [
        (r.name, r.tenant, r.task, ", ".join(BY_KEY[key].title for key in r.carriers) or "made here", r.show)
        for r in recipes
    ]
    screen.show_table(("model", "tenant", "task", "carried by", "what to look at"), rows, "This zoo is empty.")
    keys = sorted(carriers_of(checked(name)))
    print(f"\nTo download: {screen.size(sum(BY_KEY[key].size_bytes for key in keys))}. Licences:")
    for key in keys:
        print(f"  {BY_KEY[key].title}: {BY_KEY[key].licence}")


@app.command("fetch")
def fetch_zoo(name: Name = "demo", cache: CacheFolder = None, as_json: Json = False) -> None:
    """Fetch a zoo into the cache: download its packages, check every file, make the models.

    Exit status 1 when something is missing.

    [dim]$[/dim] appliance zoo fetch small
    """
    from appliance.demo.downloads import fetched
    from appliance.demo.zoo import default_folder

    zoo = fetched(checked(name), cache or default_folder())
    if as_json:
        models = [
            {"name": m.name, "tenant": m.tenant, "task": m.task, "model": str(m.model), "inputs": len(m.inputs)}
            for m in zoo.models
        ]
        screen.show_json({"models": models, "missing": list(zoo.missing)})
    else:
        rows = [
            (m.name, m.tenant, m.task, screen.size(m.model.stat().st_size), len(m.inputs), m.model) for m in zoo.models
        ]
        screen.show_table(("model", "tenant", "task", "size>", "inputs>", "file"), rows, "Nothing could be fetched.")
        for sentence in zoo.missing:
            screen.say(f"missing: {sentence}")
    if zoo.missing:
        raise typer.Exit(1)


NAMES: "Mapping[str, ZooName]" = {"demo": "demo", "small": "small", "ci": "ci"}


def checked(name: str) -> "ZooName":
    """A zoo's name. Raises: CommandFailed."""
    if name not in NAMES:
        raise CommandFailed(f"there is no zoo {name!r}; use one of {', '.join(NAMES)}")
    return NAMES[name]
