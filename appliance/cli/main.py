"""The command line: `appliance NOUN VERB`.

One module per noun; each asks a running box over REST, except those that need none (`serve`, `plan` ...).

Only typer is imported before a command runs: heavier modules are imported where they are needed, so that `--help` is
quick.
"""

import inspect
import sys
from collections.abc import Sequence

import typer

from appliance import __version__
from appliance.cli import (
    applications,
    audit,
    backup,
    backups,
    cut,
    decisions,
    events,
    find,
    health,
    history,
    imports,
    jobs,
    keys,
    memory,
    models,
    notifications,
    pipelines,
    plan,
    predict,
    replay,
    requests,
    scenario,
    serve,
    sessions,
    sign_in_link,
    simulate,
    stream,
    system,
    tenants,
    zoo,
)
from appliance.cli.demo import demo
from appliance.cli.faults import sentence_of, status_of

app = typer.Typer(
    name="appliance",
    help="One box at the edge that serves the neural networks of many tenants to many small devices.",
    epilog="New here?  appliance demo --zoo small",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

BOX = "The box"
TENANTS = "Tenants and keys"
USE = "Models and their use"
EXAMPLE = "[dim]$[/dim]"
"""What a paragraph of examples in a docstring begins with, each line of it."""

app.command("demo", rich_help_panel=BOX)(demo)
app.command("serve", rich_help_panel=BOX)(serve.serve)
app.command("plan", rich_help_panel=BOX)(plan.plan)
app.command("cut", rich_help_panel=BOX)(cut.cut)
app.command("simulate", rich_help_panel=BOX)(simulate.simulate)
app.command("scenario", rich_help_panel=BOX)(scenario.scenario)
app.command("replay", rich_help_panel=BOX)(replay.replay)
app.command("events", rich_help_panel=BOX)(events.events)
app.command("find", rich_help_panel=BOX)(find.find)
app.command("audit", rich_help_panel=BOX)(audit.audit)
app.command("health", rich_help_panel=BOX)(health.health)
app.command("history", rich_help_panel=BOX)(history.history)
app.command("memory", rich_help_panel=BOX)(memory.memory)
app.command("system", rich_help_panel=BOX)(system.system)
app.add_typer(decisions.app, name="decisions", rich_help_panel=BOX)
app.add_typer(backups.app, name="backups", rich_help_panel=BOX)
app.command("backup", rich_help_panel=BOX)(backup.backup)
app.command("restore", rich_help_panel=BOX)(backup.restore)
app.add_typer(zoo.app, name="zoo", rich_help_panel=BOX)
app.command("import", rich_help_panel=USE)(imports.import_model)
app.add_typer(models.app, name="models", rich_help_panel=USE)
app.add_typer(applications.app, name="applications", rich_help_panel=USE)
app.add_typer(pipelines.app, name="pipelines", rich_help_panel=USE)
app.command("predict", rich_help_panel=USE)(predict.predict)
app.command("stream", rich_help_panel=USE)(stream.stream)
app.add_typer(sessions.app, name="sessions", rich_help_panel=USE)
app.add_typer(requests.app, name="requests", rich_help_panel=USE)
app.add_typer(jobs.app, name="jobs", rich_help_panel=USE)
app.add_typer(tenants.app, name="tenants", rich_help_panel=TENANTS)
app.command("sign-in-link", rich_help_panel=TENANTS)(sign_in_link.sign_in_link)
app.add_typer(keys.app, name="keys", rich_help_panel=TENANTS)
app.add_typer(notifications.app, name="notifications", rich_help_panel=TENANTS)


def _teach(group: typer.Typer) -> None:
    """Give every command its docstring as help, paragraphs joined so that the terminal breaks the lines; examples
    keep theirs.
    """
    for command in group.registered_commands:
        paragraphs = inspect.cleandoc(command.callback.__doc__ or "" if command.callback else "").split("\n\n")
        joined = (text if text.startswith(EXAMPLE) else text.replace("\n", " ") for text in paragraphs)
        command.help = "\n\n".join(joined)
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _teach(inner.typer_instance)


_teach(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"appliance {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    """Options that come before the command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process: 0 done, 1 it did not work (one sentence on standard error), 2 wrong
    usage, 75 the box did not answer in time, 78 settings that do not fit.
    """
    try:
        app(args=arguments, prog_name="appliance")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone: `appliance events | head`
        sys.stderr.close()
        sys.exit(141)
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        print(f"appliance: {sentence}", file=sys.stderr)
        sys.exit(status_of(error))
