"""`appliance models`: networks and the variants that the box made of them."""

from typing import TYPE_CHECKING

import typer

from appliance.cli.connection import Connection, connected
from appliance.domain.accuracy import ACCURACY, SAMPLES_MIN
from appliance.domain.catalogue import Evidence
from appliance.domain.states import VariantState
from appliance.terminal import screen

if TYPE_CHECKING:
    from appliance.wire.catalogue import CutShape, ModelShape, TrialShape, VariantShape

app = typer.Typer(no_args_is_help=True, help="Models: networks with their variants, measured on this box.")


@app.command("list")
@connected
def list_models(box: Connection) -> None:
    """List the models that the key sees: the tenant's own and shared ones.

    [dim]$[/dim] appliance models list --tenant harbour
    """
    with box.client() as client:
        box.table(
            client.models(),
            ("model", "tenant", "task", "state", "variants>", "on disk>"),
            lambda m: (
                m.name,
                m.tenant + (" (shared)" if m.shared else ""),
                m.task,
                m.state,
                len(m.variants),
                screen.size(m.size_bytes),
            ),
            ("model", "bring one with: appliance import FILE --name NAME --task TASK"),
        )


@app.command("show")
@connected
def show_model(box: Connection, name: str) -> None:
    """Show a model's variants: size, accuracy (or agreement with the original), latency and memory as measured on this
    box, and where they are now.

    [dim]$[/dim] appliance models show centerface --tenant harbour
    """
    with box.client() as client:
        model = client.model(name)
    if box.as_json:
        screen.show_json(model)
        return
    print(f"{model.tenant}/{model.name}   {model.task.kind}   {model.state}")
    called = " or ".join(dict.fromkeys(v.accuracy.meaning for v in model.variants if v.accuracy)) or ACCURACY
    columns = ("variant", "state", "file>", f"{called}>", "metric", "P50 ms>", "P99 ms>", "load ms>", "memory>", "now")
    screen.show_table(columns, [_row(variant) for variant in model.variants], "It has no variant yet.")
    _explain(model)


@app.command("delete")
@connected
def delete_model(box: Connection, name: str) -> None:
    """Delete a model with its variants and applications, once its running requests are answered.

    [dim]$[/dim] appliance models delete centerface --tenant harbour
    """
    with box.client() as client:
        client.delete_model(name)
    print(f"model {name} is deleted")


@app.command("release")
@connected
def release_variant(box: Connection, name: str, variant: str) -> None:
    """Let a variant serve again that was quarantined because it crashed again and again.

    [dim]$[/dim] appliance models release centerface int8 --tenant harbour
    """
    with box.client() as client:
        client.release_variant(name, variant)
    print(f"variant {variant} of {name} is released")


def _row(variant: "VariantShape") -> tuple[object, ...]:
    accuracy, profile = variant.accuracy, variant.serving_profile
    single = profile.latencies[0] if profile and profile.latencies else None
    return (
        variant.name,
        variant.state,
        screen.size(variant.size_bytes),
        screen.share(accuracy.value if accuracy else None),
        f"{accuracy.metric} against {accuracy.against}{_in_doubt(variant)}" if accuracy else "",
        screen.milliseconds(single.p50_ms if single else None),
        screen.milliseconds(single.p99_ms if single else None),
        screen.milliseconds(profile.load_ms if profile else None),
        screen.size(profile.resident_bytes if profile else None),
        variant.residency,
    )


def _in_doubt(variant: "VariantShape") -> str:
    if variant.evidence is Evidence.DISAGREED:
        return " (disagrees)"
    return "" if variant.evidence.is_proof else " (unverified)"


def _trial(trial: "TrialShape") -> str:
    """How a variant does on requests, in a line."""
    low, high = trial.interval
    figures = f"{screen.share(trial.agreement)} ({screen.share(low)} to {screen.share(high)} at 95 %)"
    told = f"{trial.verdict.value} on requests: {screen.count(trial.samples, 'request')} compared, agreement {figures}"
    return f"{told}; watched on {trial.watched} since" if trial.watched else told


def _parts(cut: "CutShape") -> str:
    """How a variant is cut, in a line."""
    if not cut.parts:
        return f"stays whole on {cut.kinds[0]}: {cut.reason}"
    serves = any(part.serves_on for part in cut.parts)
    on = [" and ".join(part.serves_on) if serves else " or ".join(part.kinds) for part in cut.parts]
    told = [f"{screen.count(part.operators, 'operator')} on {kinds}" for part, kinds in zip(cut.parts, on, strict=True)]
    how = "serves in" if serves else "serves whole, and could run in"
    return f"{how} {screen.count(len(told), 'part')}: {', then '.join(told)}"


def _avoids(model: str, variant: "VariantShape") -> str:
    """Why it does not serve on some kinds of processors, and until when, in a line."""
    kinds, instead = ", ".join(variant.avoids), variant.serves_on or "no kind"
    until = f"the next start of the box or: appliance models release {model} {variant.name}"
    return f"{variant.name}: its process has crashed on {kinds}; it serves on {instead} until {until}"


def _explain_kinds(model: str, variant: "VariantShape") -> None:
    """Which kinds of processors it serves on, was measured on, does not run on, waits for and avoids, and why; and how
    it is cut.
    """
    for other in variant.profiles[1:]:
        first, single = variant.profiles[0].latencies[0].p50_ms, other.latencies[0].p50_ms
        times = f"{screen.milliseconds(single)} on {other.kind}, {screen.milliseconds(first)} on the first kind"
        print(f"  {variant.name}: {times}; serves on {variant.serves_on}")
    if variant.kind_reason:
        print(f"  {variant.name}: {variant.kind_reason}")
    for given_up in variant.given_up:
        print(f"  {variant.name}: does not run on {given_up.kind}: {given_up.reason}")
    if variant.avoids:
        print(f"  {_avoids(model, variant)}")
    for one in variant.awaited:
        told = "waits to be measured" if one.state == "waiting" else f"{one.state} now"
        print(f"  {variant.name}: {told} for {one.kind}; until then it serves on {variant.serves_on}")
    if variant.cut is not None:
        print(f"  {variant.name}: {_parts(variant.cut)}")


def _explain(model: "ModelShape") -> None:
    """Why a variant is excluded, failed or not excluded, and whether its accuracy or agreement was measured on enough
    samples.
    """
    for variant in model.variants:
        if variant.reason:
            print(f"  {variant.name}: {variant.reason}")
        if variant.state is VariantState.QUARANTINED:
            print(f"  {variant.name}: is not run until: appliance models release {model.name} {variant.name}")
    for variant in model.variants:
        if variant.shape_max:
            shapes = ", ".join(f"{name} {list(shape)}" for name, shape in variant.shape_max.items())
            print(f"  {variant.name}: takes at most {shapes}")
        if variant.profile and variant.profile.hazards:
            print(f"  {variant.name}: runs in a guard: {'; '.join(variant.profile.hazards)}")
        if variant.trial is not None:
            print(f"  {variant.name}: {_trial(variant.trial)}")
        _explain_kinds(model.name, variant)
    measured = {f"{a.meaning}: {a.data or f'{a.samples} samples'}" for v in model.variants if (a := v.accuracy)}
    for told in sorted(measured):
        print(f"  {told}")
    fewest = min((a.samples for v in model.variants if (a := v.accuracy) and a.samples), default=SAMPLES_MIN)
    if fewest < SAMPLES_MIN:
        few = screen.count(fewest, "sample")
        print(f"  {few} cannot tell variants apart: with fewer than {SAMPLES_MIN} none is excluded for a smaller one")
