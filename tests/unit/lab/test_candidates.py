"""The candidate policy: exact published numbers on the real GSM8K files, and its gradient written out by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from gspo_ray.errors import ConfigError, DataError
from gspo_ray.lab import candidates
from gspo_ray.lab.candidate_data import Question, load
from gspo_ray.lab.candidates import CandidateSettings

GSM8K = Path(__file__).parents[3].parent / "shared" / "data" / "gsm8k"
needs_gsm8k = pytest.mark.skipif(not GSM8K.is_dir(), reason="the GSM8K files are not beside the repository")
QUICK = CandidateSettings(steps=20, examples=8)


@pytest.fixture
def folder(tmp_path):
    """Twelve rows: one without a gold answer, one with a thousands comma, one negative."""
    golds = ["7", "1,080", "-3", "0.5", *map(str, range(8))]
    lines = [json.dumps({"question": f"q{i}", "answer": f"so\n#### {gold}"}) for i, gold in enumerate(golds)]
    lines[4] = json.dumps({"question": "q4", "answer": "no mark"})
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


@needs_gsm8k
def test_300_steps_give_the_published_numbers_and_the_required_mean():
    experiment = candidates.run(GSM8K)
    first = experiment.report["runs"][0]
    assert first["baseline"]["accuracy"] == 0.1640625
    assert first["final"]["accuracy"] == 0.828125
    assert first["baseline"]["mean_reward"] == pytest.approx(0.3126107, abs=1e-5)
    assert first["final"]["mean_reward"] == pytest.approx(0.8508579, abs=1e-5)
    assert first["final"]["kl_from_reference"] == pytest.approx(0.7016685, abs=1e-5)
    last = first["training"]["last_diagnostics"]
    assert last["sequence_ratio_mean"] == pytest.approx(1.0130756, abs=1e-5)
    assert last["sequence_ratio_std"] == pytest.approx(0.0116878, abs=1e-5)
    assert last["clip_fraction"] == 0
    assert first["training"]["rollout_policy_refreshes"] == 18
    assert [one["seed"] for one in experiment.report["runs"]] == [42, 43, 44]
    assert experiment.report["mean"]["final"]["accuracy"] >= 0.80
    assert experiment.missed == []


@needs_gsm8k
def test_120_steps_on_256_questions_give_the_published_numbers():
    experiment = candidates.run(GSM8K, seeds=[42], settings=CandidateSettings(steps=120, examples=256))
    (one,) = experiment.report["runs"]
    assert one["baseline"]["accuracy"] == 0.171875
    assert one["final"]["accuracy"] == 0.78125
    assert one["final"]["kl_from_reference"] == pytest.approx(0.1384707, abs=1e-5)
    assert len(experiment.checks) == 3
    assert experiment.missed == []


def softmax(values):
    powers = np.exp(values - values.max())
    return powers / powers.sum()


@pytest.mark.parametrize("seed", range(5))
def test_an_update_is_the_gradient_written_out_by_hand(seed):
    # sum over kept candidates of A s / length (x - E x) / G, less 0.02 x^T (p - p_reference), clipped to +-5
    rng = np.random.default_rng(seed)
    question = Question(
        features_CF=rng.normal(size=(6, 8)), rewards_C=rng.random(6), lens_C=np.array([1, 2, 3, 4, 1, 2]), gold=0
    )
    weights, sampling = rng.normal(size=8), rng.normal(size=8)
    settings = CandidateSettings(learning_rate=0.1)
    trained = torch.tensor(weights, requires_grad=True)
    candidates.update(trained, torch.tensor(sampling), question, np.random.default_rng(9), settings)

    p, old = softmax(question.features_CF @ weights), softmax(question.features_CF @ sampling)
    picked = np.random.default_rng(9).choice(6, size=4, replace=False, p=old)
    rewards = question.rewards_C[picked]
    gradient, kept = np.zeros(8), 0
    for i, advantage in zip(picked, (rewards - rewards.mean()) / rewards.std(), strict=True):
        length = question.lens_C[i]
        s = (p[i] / old[i]) ** (1 / length)
        if min(s * advantage, np.clip(s, 0.8, 1.2) * advantage) == s * advantage:
            kept += 1
            gradient += advantage * s / length * (question.features_CF[i] - p @ question.features_CF) / 4
    gradient -= 0.02 * question.features_CF.T @ (p - 1 / 6)
    np.testing.assert_allclose(trained.detach().numpy(), weights + 0.1 * np.clip(gradient, -5, 5), atol=1e-6)
    assert kept < 4  # so that the clip is tested too


def test_the_sampling_policy_is_renewed_every_16_updates(folder):
    (one,) = candidates.run(folder, seeds=[1], settings=QUICK).report["runs"]
    assert one["training"]["rollout_policy_refreshes"] == 1
    assert [row["step"] for row in one["history"]] == [1, *range(2, 21, 2)]


def test_questions_are_made_from_the_gold_answer(folder):
    train, validation = load(folder, examples=8, seed=0)
    assert len(train) == 7  # 8 rows, one without a mark
    assert len(validation) == 11  # at least 32 rows are asked for, 12 are there
    question = train[1]  # gold 1080: candidates 6 % of it apart
    assert question.features_CF.shape == (6, 8)
    assert question.features_CF[question.gold, 1] == pytest.approx(np.tanh(10.80))
    assert question.rewards_C.argmax() == question.gold
    assert question.lens_C.tolist() == [1, 2, 3, 4, 1, 2]


def test_equally_good_candidates_count_as_the_first(folder):
    train, _ = load(folder, examples=8, seed=0)
    numbers = candidates.evaluate(torch.zeros(8, dtype=torch.float64), train)
    assert numbers["accuracy"] == sum(question.gold == 0 for question in train) / len(train)
    assert numbers["entropy"] == pytest.approx(np.log(6))
    assert numbers["kl_from_reference"] == pytest.approx(0, abs=1e-12)


def test_no_folder_says_how_to_get_the_files(tmp_path):
    with pytest.raises(ConfigError, match=r"--data DIR.*github.com/openai/grade-school-math"):
        candidates.run(None)
    with pytest.raises(DataError, match=r"train.jsonl: no such file.*--data DIR"):
        candidates.run(tmp_path)


def test_files_without_gold_answers_are_refused(tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text('{"answer": "no mark"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="no answer among the first 8 rows"):
        candidates.run(tmp_path, settings=QUICK)
    (tmp_path / "train.jsonl").write_text('{"answer": null}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"train\.jsonl:1: no text under `answer`"):
        candidates.run(tmp_path, settings=QUICK)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"steps": 0}, "--steps takes whole numbers from 1"),
        ({"examples": 7}, "--examples takes whole numbers from 8"),
        ({"group_size": 1}, "--group-size takes whole numbers from 2"),
        ({"learning_rate": -1.0}, "--learning-rate"),
    ],
)
def test_bad_settings_are_refused(folder, settings, says):
    with pytest.raises(ConfigError, match=says):
        candidates.run(folder, settings=CandidateSettings(**settings))
