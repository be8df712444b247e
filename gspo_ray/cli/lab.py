"""`gspo-ray lab`: the objective's code as experiments of seconds, golden values beside ours."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gspo_ray.cli.arguments import refuse_rest

if TYPE_CHECKING:  # torch and matplotlib, which --help does not need
    from gspo_ray.lab.experiment import Experiment

HELP = "run the objective's code on small experiments, known numbers beside ours"
EPILOG = (
    "Each takes seconds on a CPU, writes NAME.json and NAME.png and prints golden values beside ours. "
    "Exit code 1: a golden value is missed."
)


class Lab(NamedTuple):
    text: str
    add: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Experiment]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = parser.add_subparsers(dest="experiment", required=True, metavar="NAME")
    for name, lab in LABS.items():
        experiment = names.add_parser(name, help=lab.text, description=lab.text, allow_abbrev=False)
        experiment.add_argument("--output", default="lab-results", metavar="DIR", help="where to write (lab-results)")
        lab.add(experiment)


def run(args: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse_rest(rest)
    from gspo_ray.lab.experiment import one_thread, output_folder, publish

    one_thread()
    experiment = LABS[args.experiment].run(args)
    publish(experiment, output_folder(args.output))
    if experiment.missed:
        print(f"{len(experiment.missed)} of {len(experiment.checks)} golden values are missed", file=sys.stderr)
        return 1
    return 0


def _number(text: str) -> int | float | str:
    """Whatever it is: the experiment says in one place what it takes."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _add_number(parser: argparse.ArgumentParser, option: str, default: Any, text: str, *, many: bool = False) -> None:
    shown = " ".join(f"{value:g}" for value in default) if many else default
    parser.add_argument(
        option,
        type=_number,
        nargs="+" if many else None,
        default=default,
        metavar="N",
        help=text if default is None else f"{text} ({shown})",
    )


def _add_objective(parser: argparse.ArgumentParser) -> None:
    _add_number(parser, "--epsilon", 0.2, "clip band on both sides")


def _objective(args: argparse.Namespace) -> Experiment:
    from gspo_ray.lab import objective

    return objective.run(epsilon=args.epsilon)


def _add_update(parser: argparse.ArgumentParser) -> None:
    _add_number(parser, "--steps", 5, "SGD steps")
    _add_number(parser, "--learning-rate", 0.5, "of SGD")
    _add_number(parser, "--epsilon", 0.2, "clip band on both sides")


def _update(args: argparse.Namespace) -> Experiment:
    from gspo_ray.lab import update

    return update.run(steps=args.steps, learning_rate=args.learning_rate, epsilon=args.epsilon)


def _add_online(parser: argparse.ArgumentParser) -> None:
    _add_number(parser, "--seeds", [0, 1, 2], "one run each", many=True)
    _add_number(parser, "--betas", [0.0, 1.0], "weights of the KL to the initial policy", many=True)
    _add_number(parser, "--rounds", 20, "of sampling")
    _add_number(parser, "--groups", 8, "a round")
    _add_number(parser, "--group-size", 8, "answers a group")
    _add_number(parser, "--updates", 3, "SGD steps on a round's answers")
    _add_number(parser, "--learning-rate", 0.5, "of SGD")
    _add_number(parser, "--epsilon", 0.2, "clip band on both sides")


def _online(args: argparse.Namespace) -> Experiment:
    from gspo_ray.lab import online

    settings = online.OnlineSettings(
        rounds=args.rounds,
        groups=args.groups,
        group_size=args.group_size,
        updates=args.updates,
        learning_rate=args.learning_rate,
        epsilon=args.epsilon,
    )
    return online.run(seeds=args.seeds, betas=args.betas, settings=settings)


def _add_candidates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with GSM8K's train.jsonl and test.jsonl")
    _add_number(parser, "--seeds", [42, 43, 44], "one run each", many=True)
    _add_number(parser, "--steps", 300, "one question each")
    _add_number(parser, "--examples", 512, "training questions; a quarter as many for validation")
    _add_number(parser, "--group-size", 4, "candidates drawn for a question")
    _add_number(parser, "--learning-rate", 0.08, "of gradient descent")


def _candidates(args: argparse.Namespace) -> Experiment:
    from gspo_ray.lab import candidates

    settings = candidates.CandidateSettings(
        steps=args.steps, examples=args.examples, group_size=args.group_size, learning_rate=args.learning_rate
    )
    return candidates.run(args.data, seeds=args.seeds, settings=settings)


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, metavar="PATH", help="a run's folder or a rollouts file (a built-in batch)")
    _add_number(parser, "--step", None, "step of the run (the newest)")
    parser.add_argument(
        "--current",
        type=Path,
        metavar="FILE",
        help="log-probs of other weights: JSONL, `logprobs` of one rollout a line",
    )
    _add_number(parser, "--noise", None, "std of each token's log-prob (0.01)")
    _add_number(parser, "--update", 0.0, "nats a token along the advantage: a simulated policy step")
    _add_number(parser, "--seed", 0, "of the built-in batch and the noise")
    _add_number(parser, "--groups", 2, "of the built-in batch")
    _add_number(parser, "--group-size", 8, "of the built-in batch")
    _add_number(parser, "--batches", 100, "built-in batches for the spread of token mean")


def _compare(args: argparse.Namespace) -> Experiment:
    from gspo_ray.lab import compare

    settings = compare.CompareSettings(
        groups=args.groups,
        group_size=args.group_size,
        noise=args.noise,
        update=args.update,
        seed=args.seed,
        batches=args.batches,
    )
    return compare.run(source=args.run, step=args.step, current=args.current, settings=settings)


def _add_noise(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, metavar="RUN_DIR", help="show what this run has measured beside")
    _add_number(parser, "--lengths", [2**k for k in range(4, 14)], "tokens of a sequence", many=True)
    _add_number(parser, "--noise", [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 2e-2, 3e-2], "std of a token's log-prob", many=True)
    _add_number(parser, "--samples", 4000, "simulated sequences a length")
    _add_number(parser, "--seed", 0, "of the noise")
    _add_number(parser, "--eps-low", None, "lower half of the clip band (the run's, else 0.0003)")
    _add_number(parser, "--eps-high", None, "upper half of the clip band (the run's, else 0.0004)")


def _noise(args: argparse.Namespace) -> Experiment:
    from gspo_ray.lab import noise

    settings = noise.NoiseSettings(
        lengths=args.lengths,
        noises=args.noise,
        samples=args.samples,
        seed=args.seed,
        eps_low=args.eps_low,
        eps_high=args.eps_high,
    )
    return noise.run(source=args.run, settings=settings)


LABS = {
    "objective": Lab("value and gradient of the loss on cases worked out by hand", _add_objective, _objective),
    "update": Lab("a few steps on one frozen batch, up to the plateau of the clip", _add_update, _update),
    "online": Lab("the whole loop on a policy of two binary decisions", _add_online, _online),
    "candidates": Lab("choose among six answers to a GSM8K question (needs --data)", _add_candidates, _candidates),
    "compare": Lab("GSPO, GRPO, DAPO and others on the same rollouts: gradients, clip shares", _add_compare, _compare),
    "noise": Lab("share of sequences that numeric noise puts outside the clip band", _add_noise, _noise),
}
