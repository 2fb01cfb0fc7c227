"""`appliance decisions`: what the box decided, why, and whether it would decide so again."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.connection import Connection, connected
from appliance.domain.decisions import DecisionKind
from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed

if TYPE_CHECKING:
    from appliance.wire.decisions import DecisionShape

app = typer.Typer(no_args_is_help=True, help="Decisions: what the box decided, why, and whether it would do so again.")

LIST_MAX = 20
REASON_WIDTH = 120
"""Columns of a screen from which on the list shows reasons too."""
ASIDE = ("elapsed_ms", "times", "folded", "reason")
"""Keys of an answer that are not compared: how long it took, of how many decisions and with which problems; and the
reason, whose words are those of the version that decided.
"""
BOXS_OWN: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("adaptation", "offload"), ("outcome", "session", "actions")),
    "pipeline": ("outcome", "pipeline", "because", "actions"),
    "neighbours": ("outcome", "actions"),
}
"""By kind: what the box has made of the policy's answer, and whom it asked for."""

DecisionId = Annotated[int, typer.Argument(metavar="ID", help="Number of the decision, as in the list.", min=1)]


@app.command("list")
@connected
def list_decisions(
    box: Connection,
    kind: Annotated[DecisionKind | None, typer.Option(help="Only decisions of this kind.")] = None,
    application: Annotated[
        str | None, typer.Option(help="Only decisions about this application (name, or tenant/name).")
    ] = None,
    outcome: Annotated[
        str | None, typer.Option(help="Only those with this outcome, for example cold or failed.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Most decisions, the newest first.", min=1)] = LIST_MAX,
) -> None:
    """List decisions, newest first.

    An admin key sees all of them, a tenant's key those that concerned its own applications. Reasons are shown where the
    screen is wide enough, and by `decisions show`.

    [dim]$[/dim] appliance decisions list
    [dim]$[/dim] appliance decisions list --application harbour/door --outcome failed --limit 100
    """
    from itertools import islice

    with box.client() as client:
        found = client.decisions(kind=kind, application=application)
        decisions = list(islice(_of_outcome(found, outcome), limit))
    if box.as_json:
        screen.show_json(decisions)
        return
    from appliance.cli.decision_text import row

    columns = ["id>", "at (UTC)", "kind", "about", "outcome", "changes", "reason"]
    rows = [row(decision) for decision in decisions]
    if screen.console().width < REASON_WIDTH:
        columns, rows = columns[:-1], [cells[:-1] for cells in rows]
    screen.show_table(columns, rows, "There is no such decision.")


@app.command("show")
@connected
def show_decision(box: Connection, decision_id: DecisionId) -> None:
    """Show a decision: what was asked, what was answered and why, and everything that was known.

    Times in a problem count from the decision.

    [dim]$[/dim] appliance decisions show 4711
    """
    with box.client() as client:
        decision = client.decision(decision_id)
    from appliance.cli.decision_text import lines

    box.tell(decision, lines(decision, screen.console().width))


@app.command("replay")
@connected
def replay_decision(box: Connection, decision_id: DecisionId) -> None:
    """Decide again, here, with this version's policies, and compare: exit status 1 where the answer is another.

    The same as feeding its problem to `appliance plan`. What cannot be fed to it says so.

    [dim]$[/dim] appliance decisions replay 4711
    """
    with box.client() as client:
        decision = client.decision(decision_id)
    answer = _decided_again(decision)
    own = BOXS_OWN.get(decision.kind, ())
    differing = differences({key: value for key, value in decision.answer.items() if key not in own}, answer)
    folded = decision.answer.get("folded", [])
    differing += [
        f"folded.{place}" for place, one in enumerate(folded) if not has_outcome(one["problem"], decision.answer)
    ]
    if box.as_json:
        screen.show_json({"id": decision.id, "recorded": decision.answer, "recomputed": answer, "differs": differing})
    else:
        from appliance.cli.decision_text import told

        width = screen.console().width
        for title, one in (("recorded", decision.answer), ("recomputed", answer)):
            print(title, *told(one, width), sep="\n")
        print("equal" if not differing else f"differs in {', '.join(differing)}")
        if differing and not decision.is_whole:
            screen.say(
                "other tenants' part was left out for this key, so the answer may be another; ask with an admin key"
            )
    if differing:
        raise typer.Exit(1)


def differences(recorded: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    """Keys of the recorded answer whose value is another now, but for `ASIDE`."""
    shown = {key: value for key, value in recorded.items() if key not in ASIDE}
    return [key for key, value in shown.items() if key not in answer or answer[key] != value]


def has_outcome(problem: dict[str, Any], recorded: dict[str, Any]) -> bool:
    """Return whether a problem that a decision stands for has its outcome again; True where no policy was asked."""
    from appliance.lab.plan import plan_one

    return problem.get("plan", problem) is None or plan_one(problem)["outcome"] == recorded["outcome"]


def _of_outcome(decisions: "Iterator[DecisionShape]", outcome: str | None) -> "Iterator[DecisionShape]":
    """Looked at here and not by the box: what a tenant may not know of a decision is no part of its answer."""
    return (one for one in decisions if outcome is None or one.answer.get("outcome") == outcome)


def _decided_again(decision: "DecisionShape") -> dict[str, object]:
    """Raises: CommandFailed where there is no problem, or `plan` does not read it."""
    from appliance.lab.plan import plan_one
    from appliance.lab.problems.base import Malformed

    if decision.problem is None:
        why = (
            "another tenant's application asked; ask with an admin key"
            if not decision.is_whole
            else "it has no problem"
        )
        raise CommandFailed(f"decision {decision.id} ({decision.kind}) cannot be fed to plan: {why}")
    try:
        answer = plan_one(decision.problem)
    except Malformed as error:
        raise CommandFailed(f"decision {decision.id} ({decision.kind}) cannot be fed to plan: {error}") from None
    if "plan" in answer:  # null: no policy made it
        raise CommandFailed(f"decision {decision.id} ({decision.kind}) cannot be fed to plan: {answer['reason']}")
    return answer
