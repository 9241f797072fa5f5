"""`pgstrata simulate`: how the method fares on campaigns whose truth is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgstrata.cli.output import JsonFlag, argument, option, parse_margin, print_result

if TYPE_CHECKING:
    from pgstrata.analyze.campaign.simulate import Scenario, SimulatedCampaign


def simulate(
    effects: Annotated[
        list[str] | None, argument("EFFECT", "True effect of each stack, e.g. 0 -5% -5% -12%.", show_default=False)
    ] = None,
    noise: Annotated[str, option("--noise", "quiet, typical or noisy: 2, 3 or 4.8 % from run to run.")] = ("typical"),
    campaigns: Annotated[int, option("--campaigns", "Number of campaigns to simulate.", min=1)] = 100,
    seed: Annotated[int, option("--seed", "The same seed gives the same figures.")] = 1,
    margin: Annotated[str, option("--margin", "Differences below it do not matter.")] = "2%",
    json: JsonFlag = False,
) -> None:
    """Simulate campaigns with the production statistics: runs needed, and how often the best stack is found."""
    from pgstrata.analyze.campaign.simulate import LEVELS, Scenario, run_campaign
    from pgstrata.errors import UsageError
    from pgstrata.spec.campaign import Goal

    if noise not in LEVELS:
        raise UsageError(f"unknown noise {noise!r}", hint=f"one of {', '.join(LEVELS)}")
    truth = tuple(_effect(text) for text in effects or ("0", "-5%", "-5%", "-12%"))
    if len(truth) < 2:
        raise UsageError("one stack alone: there is nothing to compare", hint="name at least two effects")
    scenario = Scenario(truth, LEVELS[noise], Goal(margin=parse_margin(margin)))
    runs = [run_campaign(scenario, (seed, number)) for number in range(campaigns)]
    value = _summary(scenario, runs, noise)
    print_result(value, lambda: _render(value), json=json)


def _effect(text: str) -> float:
    """A relative effect such as `-5%` on the scale of logarithms."""
    import math

    from pgstrata.errors import UsageError
    from pgstrata.spec.units import parse_fraction

    try:
        share = parse_fraction(text)
    except ValueError as error:
        raise UsageError(f"effect: {error}", hint="for example: pgstrata simulate 0 -3% -10%") from None
    if share <= -1:
        raise UsageError(f"an effect of {text} leaves nothing", hint="for example -5%")
    return math.log1p(share)


def _summary(scenario: Scenario, runs: list[SimulatedCampaign], noise: str) -> dict[str, Any]:
    best = max(scenario.effects)
    names = {n for n, e in zip(scenario.names, scenario.effects, strict=True) if e == best}
    leaders = [_leader(run) for run in runs]
    known = [leader for leader in leaders if leader is not None]
    return {
        "stacks": len(scenario.effects),
        "noise": noise,
        "campaigns": len(runs),
        "best_found_share": sum(leader in names for leader in known) / len(known) if known else None,
        "machine_time_mean_s": sum(run.elapsed_s for run in runs) / len(runs),
        "screening_mean_s": sum(run.screen_s for run in runs) / len(runs),
        "blocks_mean": sum(run.blocks for run in runs) / len(runs),
        "fixed_10_s": 10 * len(scenario.effects) * scenario.noise.trial_s,
    }


def _leader(run: SimulatedCampaign) -> str | None:
    from pgstrata.analyze.campaign.simulate import CELL

    figures = run.last.figures.get(CELL) if run.last is not None else None
    return str(figures["leader"]) if figures else None


def _render(value: dict[str, Any]) -> str:
    from pgstrata.spec.units import render_duration

    found = value["best_found_share"]
    fixed = render_duration(value["fixed_10_s"])
    screening = f", of it {render_duration(value['screening_mean_s'])} for screening" if found is not None else ""
    mean = f"{render_duration(value['machine_time_mean_s'])} on average"
    lines = [
        f"{value['campaigns']} campaigns of {value['stacks']} stacks, {value['noise']} noise",
        f"best found after screening: {100 * found:.0f} %" if found is not None else "no screening: pairs alone",
        f"machine time: {mean}{screening} (10 fixed blocks: {fixed})",
        f"blocks: {value['blocks_mean']:.1f} on average",
    ]
    return "\n".join(lines)


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example: pgstrata simulate 0 -3% -10% --noise quiet --campaigns 200",
        context_settings={"ignore_unknown_options": True},
    )(simulate)
