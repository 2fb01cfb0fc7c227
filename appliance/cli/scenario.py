"""`appliance scenario`: the running box as a scenario of `appliance simulate`, so that "what if ten more cameras
come" is one edit away.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.connection import Connection, connected
from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed

if TYPE_CHECKING:
    from appliance.client import Client
    from appliance.wire.catalogue import ApplicationShape, ModelShape
    from appliance.wire.pipelines import PipelineStatusShape
    from appliance.wire.scenario import Use

DURATION_S, RATE_RPS = 300.0, 0.5


@connected
def scenario(
    box: Connection,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")] = None,
    rate_rps: Annotated[float, typer.Option(min=0, help="Rate of applications without any request yet.")] = RATE_RPS,
    duration_s: Annotated[float, typer.Option(min=1, help="Length of the scenario.")] = DURATION_S,
) -> None:
    """Write the running box as a scenario: processors, budget, models with measured profiles, tenants, applications and
    their traffic.

    The traffic of an application is its mean rate since the box started. Run times are those of its latest requests,
    once there are ten. What is in memory now is in memory at the start. Accuracies are percent; models without labels
    have their agreement with the original. What guards, other processes and runs take is in it, too. With an admin key
    all tenants are in it, with a tenant's key what that tenant sees. `--json` writes JSON in place of TOML.

    [dim]$[/dim] appliance scenario -o box.toml
    [dim]$[/dim] appliance simulate box.toml
    [dim]$[/dim] appliance replay box.toml
    """
    document = exported(box, rate_rps=rate_rps, duration_s=duration_s)
    if box.as_json and output is None:
        screen.show_json(document)
        return
    import json

    text = json.dumps(document, indent=2) + "\n" if box.as_json else toml_of(document)
    if output is None:
        print(text, end="")
    else:
        output.write_text(text)
        screen.say(f"{screen.count(len(document['applications']), 'application')} in {output}")


def exported(box: Connection, *, rate_rps: float = RATE_RPS, duration_s: float = DURATION_S) -> dict[str, Any]:
    """The document of the box. Raises: CommandFailed when nothing of it could be simulated; what `Client` raises."""
    from appliance.lab.left_out import without_malformed
    from appliance.wire.scenario import Snapshot, scenario_of
    from appliance.wire.scenario_pipelines import left_out

    with box.client() as client:
        system, memory, processors = client.system(), client.memory(), client.processors()
        tenants = list(client.tenants())
    uses = [use for tenant in tenants for use in _uses(box, tenant.name)]
    pipelines = [one for tenant in tenants for one in _pipelines(box, tenant.name)]
    if not uses:
        raise CommandFailed("the box has no application with a measured variant; import a model first")
    snapshot = Snapshot(system, memory, processors, tenants, uses, pipelines)
    for name in left_out(pipelines, snapshot.applications()):
        screen.say(f"left out: pipeline {name} asks an application that is not in the scenario")
    document, malformed = without_malformed(scenario_of(snapshot, rate_rps=rate_rps, duration_s=duration_s))
    for name in malformed:
        screen.say(f"left out: pipeline {name} cannot be simulated")
    return dict(document)


def _uses(box: Connection, tenant: str) -> "Iterator[Use]":
    """A tenant's own applications whose models can be simulated; the others are named to the person."""
    from appliance.wire.scenario import Use, measured

    acting = Connection(box.url, box.key, tenant, box.ca, box.state, fingerprint=box.fingerprint)
    with acting.client() as client:
        answered = client.answered()
        for application in client.applications():
            if application.tenant != tenant:
                continue
            model = _model(client, application)
            if model is None or not measured(model):
                screen.say(f"left out: {tenant}/{application.name} has no variant with a profile")
                continue
            yield Use(application, model, answered.get(application.name, 0), client.run_times(application.name))


def _pipelines(box: Connection, tenant: str) -> "list[PipelineStatusShape]":
    """A tenant's own."""
    acting = Connection(box.url, box.key, tenant, box.ca, box.state, fingerprint=box.fingerprint)
    with acting.client() as client:
        return [client.pipeline(one.name) for one in client.pipelines() if one.tenant == tenant]


def _model(client: "Client", application: "ApplicationShape") -> "ModelShape | None":
    from appliance.domain.errors import ApplianceError

    try:
        return client.model(application.model)
    except ApplianceError:
        return None


# -- TOML --------------------------------------------------------------------------------------------------------------


def toml_of(document: dict[str, Any]) -> str:
    """A scenario as TOML: tables and lists of tables down to the innermost tables, which stand on one line."""
    return "\n".join(_lines(document, "")) + "\n"


def _lines(table: dict[str, Any], path: str) -> Iterator[str]:
    inner = {key: value for key, value in table.items() if _is_tables(value) or (not path and isinstance(value, dict))}
    for key, value in table.items():
        if key not in inner:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in inner.items():
        below = f"{path}.{_key(key)}" if path else _key(key)
        for one in value if isinstance(value, list) else [value]:
            yield ""
            yield f"[[{below}]]" if isinstance(value, list) else f"[{below}]"
            yield from _lines(one, below)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _key(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else _text(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case str():
            return _text(value)
        case _:
            return repr(value)


def _text(text: str) -> str:
    """JSON's escapes are TOML's too."""
    import json

    return json.dumps(text)
