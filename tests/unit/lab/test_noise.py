"""Shares outside the band by noise alone: closed form, simulation, published values, and what a run has measured."""

import json
import math

import pytest

from gspo_ray.errors import ConfigError, DataError
from gspo_ray.lab import noise
from gspo_ray.lab.noise import NoiseSettings, closed_form, noise_limit
from gspo_ray.tracking.local import LocalTracker
from tests.unit.factories import make_group, make_record, make_sequence, make_update

BAND = (3e-4, 4e-4)
SMALL = NoiseSettings(lengths=(16, 256), noises=(1e-3, 1e-2), samples=1000)


@pytest.mark.parametrize(("sigma", "shares"), [(0.01, (0.69, 0.43, 0.27, 0.03)), (0.02, (0.84, 0.69, 0.58, 0.27))])
def test_the_published_shares_at_128_512_1k_and_4k_tokens(sigma, shares):
    ours = [closed_form(length, sigma, *BAND) for length in (128, 512, 1024, 4096)]
    assert ours == pytest.approx(shares, abs=0.005)


def test_the_closed_form_at_one_standard_deviation():
    # log-ratio of std 1 and a band of +-1 in it: P(|z| > 1) = 0.3173
    assert closed_form(4, 2.0, 1 - math.exp(-1), math.expm1(1)) == pytest.approx(0.31731, abs=1e-5)


def test_the_simulation_agrees_with_the_closed_form():
    experiment = noise.run(settings=NoiseSettings(samples=1000, lengths=(16, 128, 1024), noises=(1e-3, 1e-2, 3e-2)))
    assert len(experiment.report["cells"]) == 9
    for cell in experiment.report["cells"]:
        p = cell["closed_form"]
        assert cell["simulated"] == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / 1000) + 1e-3)
    assert experiment.missed == []


def test_the_noise_limit_leaves_95_percent_inside():
    for length in (16, 8192):
        assert closed_form(length, noise_limit(length, *BAND), *BAND) == pytest.approx(0.05, abs=1e-9)
    # four times as many tokens bear twice the noise
    assert noise_limit(400, *BAND) == pytest.approx(2 * noise_limit(100, *BAND), rel=1e-9)


def test_another_band_has_no_published_values():
    assert noise.run(settings=NoiseSettings(**_of(SMALL), eps_low=0.1)).report["published"] == []


def _of(settings):
    return {"lengths": settings.lengths, "noises": settings.noises, "samples": settings.samples}


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / "config.yaml").write_text("algo:\n  eps_low: 0.0003\n  eps_high: 0.0004\n", encoding="utf-8")
    records = [
        {
            "step": 1,
            "completion/len_mean": 100.0,
            "mismatch/seq_log_ratio_mean": 0.0,
            "mismatch/seq_log_ratio_std": 1e-3,
            "mismatch/token_abs_diff_mean": 0.01,
            "mismatch/outside_frac": 0.7,
            "mismatch/clip_frac": 0.3,
        },
        {"step": 2, "notes": ["every group degenerate"]},
    ]
    write_metrics(tmp_path, records)
    return tmp_path


def write_metrics(folder, records):
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")


def test_a_run_shows_what_it_measured(run_dir):
    (step,) = noise.run(source=run_dir, settings=SMALL).report["measured"]["steps"]
    assert step["outside"] == 0.7
    # a Gaussian of std 1e-3 is that of noise 0.01 over 100 tokens
    assert step["outside_gaussian"] == pytest.approx(closed_form(100, 0.01, *BAND))
    assert step["token_noise"] == pytest.approx(0.01 * math.sqrt(math.pi / 2))
    assert step["std_of_independent_noise"] == pytest.approx(1e-3 * math.sqrt(math.pi / 2))


def test_an_older_run_names_the_share_outside_otherwise(run_dir):
    write_metrics(run_dir, [{"step": 1, "mismatch/seq_log_ratio_std": 0.0, "mismatch/clip_frac": 0.25}])
    (step,) = noise.run(source=run_dir, settings=SMALL).report["measured"]["steps"]
    assert step["outside"] == 0.25
    assert step["outside_gaussian"] == 0.0


def test_gaps_of_single_sequences_are_shown_by_length(run_dir):
    groups = [make_group([1.0, 0.0], [range(10), range(20)]), make_group([1.0, 0.0], [range(200), range(30)])]
    gaps = [1e-3, 1e-5, -1e-3]  # of rows 0, 1, 2; row 3 was not computed
    updates = [make_update([make_sequence(row, gap=gap) for row, gap in enumerate(gaps)])] * 2
    LocalTracker(run_dir, resume_step=1).log_rollouts(make_record(groups, updates, step=1))
    lengths = noise.run(source=run_dir, settings=SMALL).report["measured"]["lengths"]
    assert [(row["first"], row["sequences"], row["outside"]) for row in lengths] == [(0, 2, 0.5), (128, 1, 1.0)]


def test_the_band_is_that_of_the_run_unless_given(run_dir):
    (run_dir / "config.yaml").write_text("algo: {eps_low: 0.1, eps_high: 0.2}\n", encoding="utf-8")
    assert noise.run(source=run_dir, settings=SMALL).report["eps_high"] == 0.2
    given = NoiseSettings(**_of(SMALL), eps_low=0.01, eps_high=0.02)
    (run_dir / "config.yaml").unlink()
    report = noise.run(source=run_dir, settings=given).report
    assert (report["eps_low"], report["measured"]["eps_low"]) == (0.01, 0.01)


def test_a_run_that_cannot_be_read_is_named(run_dir, tmp_path):
    with pytest.raises(DataError, match=r"no metrics\.jsonl there"):
        noise.run(source=tmp_path / "nowhere", settings=SMALL)
    (run_dir / "config.yaml").write_text("algo: 5\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"config.yaml: no algo.eps_low"):
        noise.run(source=run_dir, settings=SMALL)
    write_metrics(run_dir, [{"step": 1}])
    with pytest.raises(DataError, match=r"no step has mismatch/seq_log_ratio_std|no algo.eps_low"):
        noise.run(source=run_dir, settings=SMALL)
    (run_dir / "metrics.jsonl").write_text("{\n", encoding="utf-8")
    with pytest.raises(DataError, match="not valid JSON"):
        noise.run(source=run_dir, settings=SMALL)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"lengths": [0]}, "--lengths takes whole numbers from 1"),
        ({"noises": [0.0]}, "--noise takes finite numbers above 0"),
        ({"samples": 10}, "--samples takes whole numbers from 100"),
        ({"eps_low": 1.0}, "--eps-low takes finite numbers above 0 and below 1"),
        ({"eps_high": 0.0}, "--eps-high"),
    ],
)
def test_bad_settings_are_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        noise.run(settings=NoiseSettings(**settings))
