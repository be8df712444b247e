import json
import os
from pathlib import Path
from zipfile import ZipFile

import pytest

from gspo_ray.config import RunConfig
from gspo_ray.config_io import dump_config
from gspo_ray.doctor import bundle
from gspo_ray.doctor.bundle import write_bundle
from gspo_ray.doctor.redact import HIDDEN, redactor, shown_environment

# None of them is real. A word each, so that a search of the file finds it.
PLANTED = {
    "url": "url-pass-41d9",
    "hf": "hf_PlantedPlantedPlantedPlanted01",
    "aws_id": "AKIAPLANTEDPLANTED01",
    "aws_key": "planted/aws+secret/key/of/forty/characters",
    "ray": "ray-token-planted-7f31",
    "file": "hub-token-in-a-file-5512",
    "env": 'pa"ss wörd-9917',
    "bearer": "planted.bearer.token.8842",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJwbGFudGVkIjoxfQ.plantedsignature",
    "github": "ghp_PlantedPlantedPlantedPlanted02",
    "wandb": "planted0123456789abcdef0123456789abcdef",
    "yaml": "yaml-pass-planted-6620",
    "pem": "MIIPlantedPlantedPlanted",
    "signed": "plantedsignatureofaurl3321",
    "key": "planted-secret-key-4417",
    "short": "pw5",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home" / "planted-user"
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text(PLANTED["ray"] + "\n")
    (home / ".cache" / "huggingface").mkdir(parents=True)
    (home / ".cache" / "huggingface" / "token").write_text(PLANTED["file"])
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.setenv("HF_TOKEN", PLANTED["hf"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", PLANTED["aws_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PLANTED["aws_key"])
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PLANTED["env"])
    monkeypatch.setenv("WANDB_API_KEY", PLANTED["wandb"])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"https://me:{PLANTED['url']}@mlflow.example")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    return home


LOG = "\n".join(
    [
        "step 3 done, max_tokens: 4096, eos_token_id: 128001, 173 tokens a second",
        f"GET https://me:{PLANTED['url']}@mlflow.example/api failed",
        f"Authorization: Bearer {PLANTED['bearer']}",
        f'headers={{"authorization": "Bearer {PLANTED["jwt"]}"}}',
        f"token={PLANTED['hf']} for user",
        f"export AWS_SECRET_ACCESS_KEY={PLANTED['aws_key']} AWS_ACCESS_KEY_ID={PLANTED['aws_id']}",
        f"db_password: '{PLANTED['yaml']}'",
        f"cloning https://{PLANTED['github']}@github.com/x/y",
        f"-----BEGIN RSA PRIVATE KEY-----\n{PLANTED['pem']}\n-----END RSA PRIVATE KEY-----",
        f"https://bucket.s3/x?X-Amz-Signature={PLANTED['signed']}&X-Amz-Date=1",
        f"{{'env_vars': {{'SECRET_KEY': '{PLANTED['key']}', 'DB_PASS': '{PLANTED['short']}'}}}}",
        f"ray said {PLANTED['ray']} and {PLANTED['file']}",
        f"password is {PLANTED['env']}, as json {json.dumps(PLANTED['env'])}",
        "File /home/somebody-else/project/x.py, line 3",
    ]
)


@pytest.fixture
def texts(home: Path, tmp_path: Path) -> dict[str, str]:
    """Name -> content of a bundle of an environment full of secrets."""
    session = tmp_path / "ray" / "session_2026" / "logs"
    session.mkdir(parents=True)
    (session / "raylet.out").write_text(LOG)
    run = tmp_path / "runs" / "demo-1"
    run.mkdir(parents=True)
    uri = f"postgresql://me:{PLANTED['url']}@db/mlflow"
    config = RunConfig.model_validate(
        {"storage_path": str(tmp_path / "runs"), "tracking": {"mlflow_uri": uri}, "model": {"path": f"{home}/model"}}
    )
    (run / "config.yaml").write_text(dump_config(config))
    (run / "metrics.jsonl").write_text('{"step": 1, "perf/tokens_per_second": 173.5}\n')
    (run / "rollouts").mkdir()
    (run / "rollouts" / "step-1.jsonl").write_text("a completion")
    write_bundle(
        tmp_path / "report.zip",
        findings=json.dumps({"found": f"{home}/x and https://me:{PLANTED['url']}@there"}),
        config=config,
        nodes=[{"NodeID": "ab12", "Labels": {"note": f"token={PLANTED['bearer']}"}}],
        ray_temp=tmp_path / "ray",
    )
    with ZipFile(tmp_path / "report.zip") as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_no_secret_and_no_home_folder_is_in_any_file(texts: dict[str, str], home: Path) -> None:
    everything = "\n".join([*texts, *texts.values()])
    found = [name for name, secret in PLANTED.items() if secret in everything]
    assert found == []
    assert json.dumps(PLANTED["env"])[1:-1] not in everything
    assert "planted-user" not in everything
    assert "somebody-else" not in everything


def test_what_helps_stays(texts: dict[str, str]) -> None:
    assert set(texts) == {
        "findings.json",
        "config.yaml",
        "environment.json",
        "nodes.json",
        "run/demo-1/config.yaml",
        "run/demo-1/metrics.jsonl",
        "ray/session_2026/raylet.out",
    }
    log = texts["ray/session_2026/raylet.out"]
    assert "step 3 done, max_tokens: 4096, eos_token_id: 128001, 173 tokens a second" in log
    assert f"GET https://{HIDDEN}@mlflow.example/api failed" in log
    assert "File ~/project/x.py, line 3" in log
    assert texts["run/demo-1/metrics.jsonl"] == '{"step": 1, "perf/tokens_per_second": 173.5}\n'
    assert "max_tokens: 4096" in texts["config.yaml"]
    tree = json.loads(texts["environment.json"])
    assert "ray" in tree["packages"]
    assert tree["environment"]["NCCL_DEBUG"] == "INFO"
    assert tree["environment"]["MLFLOW_TRACKING_URI"] == f"https://{HIDDEN}@mlflow.example"
    assert "WANDB_API_KEY" not in tree["environment"]
    json.loads(texts["findings.json"])
    json.loads(texts["nodes.json"])


def test_a_long_log_is_cut_to_its_last_lines(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "TAIL_BYTES", 25)
    logs = tmp_path / "ray" / "session_1" / "logs"
    logs.mkdir(parents=True)
    (logs / "a.log").write_text("".join(f"line {number:04d}\n" for number in range(100)))  # 10 characters a line
    config = RunConfig(storage_path=str(tmp_path))
    write_bundle(tmp_path / "b.zip", findings="{}", config=config, nodes=[], ray_temp=tmp_path / "ray")
    with ZipFile(tmp_path / "b.zip") as archive:
        assert archive.read("ray/session_1/a.log").decode() == "line 0098\nline 0099\n"


def test_a_word_that_never_ends_costs_no_time() -> None:
    redact = redactor({}, Path("/nowhere"))
    text = "a" * 200_000 + " token" * 1000
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    ["tokens: 12345678", "eos_token_id=128001", "RAY_AUTH_MODE=token", "the token was refused", '"token": null', "1:2"],
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redactor({"TOKENIZERS_PARALLELISM": "false"}, Path("/nowhere"))(text) == text


def test_of_other_variables_only_the_names_of_our_libraries_are_shown() -> None:
    shown = shown_environment({"VLLM_API_KEY": "x", "CUDA_VISIBLE_DEVICES": "0,1", "DATABASE": "y", "PATH": os.sep})
    assert shown == {"CUDA_VISIBLE_DEVICES": "0,1", "VLLM_API_KEY": "(set)"}
