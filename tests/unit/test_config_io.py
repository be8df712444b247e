"""Files, flags and their order; every message is one line that names the key and the fix."""

from pathlib import Path

import pytest

from gspo_ray.config import RunConfig
from gspo_ray.config_io import dump_config, flatten, load_config, parse_overrides
from gspo_ray.errors import ConfigError


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "run.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(path: Path | None, *words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, words)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_flags_win_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, "steps: 7\nrollout: {max_tokens: 32, temperature: 0.5}\n")
    config = load_config(path, ["--rollout.max_tokens", "64", "--rollout.engine.max_num_seqs=4"])
    assert (config.steps, config.rollout.temperature) == (7, 0.5)  # file
    assert (config.rollout.max_tokens, config.rollout.engine.max_num_seqs) == (64, 4)  # flags
    assert (config.seed, config.rollout.group_size) == (0, 8)  # defaults


def test_without_file_and_flags_the_defaults_stand() -> None:
    assert load_config(None) == RunConfig()


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "# nothing\n")) == RunConfig()


def test_the_last_of_two_equal_flags_counts() -> None:
    assert load_config(None, ["--seed=1", "--seed", "2"]).seed == 2


def test_flag_values_mean_what_they_look_like() -> None:
    words = ["--learner.learning_rate", "4e-5", "--learner.max_grad_norm=null", "--data.shuffle", "false"]
    words += ["--model.lora.target_modules", "[q_proj, v_proj]", "--rollout.top_k", "-1", "--model.path=a=b"]
    assert parse_overrides(words) == [
        ("learner.learning_rate", 4e-5),
        ("learner.max_grad_norm", None),
        ("data.shuffle", False),
        ("model.lora.target_modules", ["q_proj", "v_proj"]),
        ("rollout.top_k", -1),
        ("model.path", "a=b"),
    ]


@pytest.mark.parametrize("text", ["4e-5", "4.0e-5", "0.00004", "'4e-5'"])
def test_a_learning_rate_in_a_file_is_a_number_however_it_is_written(tmp_path: Path, text: str) -> None:
    assert load_config(write(tmp_path, f"learner: {{learning_rate: {text}}}")).learner.learning_rate == 4e-5


@pytest.mark.parametrize("text", ["001", "2026-01-01", "nan", "yes", "1e5"])
def test_a_name_flag_is_taken_as_typed(text: str) -> None:
    assert load_config(None, ["--name", text]).name == text


@pytest.mark.parametrize("text", ["Note: box it", "Solve #1 # now", "[a] \\boxed{}", "- one", "null and void", "it's"])
def test_a_prompt_flag_is_taken_as_typed(text: str) -> None:
    assert load_config(None, ["--data.prompt.system", text]).data.prompt.system == text


def test_quotes_around_a_text_flag_are_yaml_and_null_is_null() -> None:
    assert load_config(None, ["--data.prompt.system", '"a\\nb"']).data.prompt.system == "a\nb"
    assert load_config(None, ["--data.prompt.system", "null"]).data.prompt.system is None


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("rollout.max_token", "rollout.max_tokens"),
        ("model.group_siz", "rollout.group_size"),
        ("rollout.learning_rate", "learner.learning_rate"),
        ("learning_rate", "learner.learning_rate"),
        ("lora.rank", "model.lora.rank"),
        ("model.rank", "model.lora.rank"),
        ("step", "steps"),
        ("rolout.group_size", "rollout.group_size"),
        ("engine.max_num_seqs", "rollout.engine.max_num_seqs"),
    ],
)
def test_an_unknown_flag_names_the_nearest_key(wrong: str, right: str) -> None:
    assert refusal(None, f"--{wrong}", "5") == f"unknown flag --{wrong}, did you mean --{right}?"


def test_a_mistyped_dry_run_is_offered_the_right_flag() -> None:
    assert refusal(None, "--dryrun").endswith("did you mean --dry-run?")


@pytest.mark.parametrize(
    ("content", "wrong", "right"),
    [
        ("rollout: {max_token: 5}", "rollout.max_token", "rollout.max_tokens"),
        ("rolout: {max_tokens: 5}", "rolout", "rollout"),
        ("group_size: 4", "group_size", "rollout.group_size"),
        ("model: {rank: 4}", "model.rank", "model.lora.rank"),
    ],
)
def test_an_unknown_key_in_a_file_names_the_nearest_key(tmp_path: Path, content: str, wrong: str, right: str) -> None:
    path = write(tmp_path, content)
    assert refusal(path) == f"{path}: unknown key {wrong!r}, did you mean {right!r}?"


def test_a_dotted_key_in_a_file_is_to_be_nested(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "rollout.max_tokens: 5"))
    assert "unknown key 'rollout.max_tokens'" in message
    assert "`rollout: {max_tokens: ...}`" in message


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["5"], "unexpected argument '5'"),
        (["--seed", "1", "2"], "unexpected argument '2'"),
        (["-s", "1"], "unexpected argument '-s'"),
        (["--"], "unexpected argument '--'"),
        (["--=5"], "unexpected argument '--=5'"),
        (["--seed"], "--seed needs a value"),
        (["--seed", "--steps", "5"], "--seed needs a value"),
        (["--seed="], "seed: Input should be a valid integer"),
        (["--rollout.max_tokens.x", "5"], "did you mean --rollout.max_tokens?"),
        (["--rollout", "5"], "rollout is a section"),
    ],
)
def test_words_that_are_no_override_are_refused(words: list[str], says: str) -> None:
    assert says in refusal(None, *words)


def test_a_value_where_the_file_should_have_a_section_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "rollout: 5")
    assert "rollout is a section" in refusal(path)
    message = refusal(path, "--rollout.max_tokens", "5")
    assert "--rollout.max_tokens" in message
    assert "rollout is a section, but is set to 5" in message


def test_a_flag_fills_a_section_whose_keys_are_commented_out(tmp_path: Path) -> None:
    assert (
        load_config(write(tmp_path, "rollout:\n  # max_tokens: 1\n"), ["--rollout.max_tokens=5"]).rollout.max_tokens
        == 5
    )


def test_a_bad_value_from_a_flag_is_not_blamed_on_the_file_alone(tmp_path: Path) -> None:
    path = write(tmp_path, "steps: 7")
    assert refusal(path, "--rollout.group_size", "1").startswith(f"{path} with the command line: rollout.group_size")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("- steps", "must hold `section:` keys, got a list"),
        ("steps", "must hold `section:` keys, got a str"),
        ("a: [b", "not valid YAML: line 1: "),
        ("steps: 1\n\tseed: 2", "not valid YAML: line 2: "),
        ("name: !!python/object:os.system x", "not valid YAML: line 1: "),
        ("name: 2026-13-01", "not valid YAML"),
        (b"\x00\x01", "not valid YAML"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        ("steps: 1\nseed: 2\nsteps: 3", "'steps' is there twice, in lines 1 and 3"),
        ("rollout: {top_k: 1}\nrollout: {top_p: 1}", "'rollout' is there twice"),
        ("1: 2", "1: Keys should be strings"),
    ],
)
def test_a_file_that_is_no_mapping_of_sections_is_refused(tmp_path: Path, content: str | bytes, says: str) -> None:
    path = write(tmp_path, content)
    message = refusal(path)
    assert str(path) in message
    assert says in message


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    assert f"{tmp_path}/no.yaml does not exist" in refusal(tmp_path / "no.yaml")
    assert f"{tmp_path} cannot be read: Is a directory" in refusal(tmp_path)


def test_yaml_anchors_and_merge_keys_still_work(tmp_path: Path) -> None:
    path = write(tmp_path, "steps: &n 3\nseed: *n\nmodel:\n  lora:\n    <<: {rank: 8, alpha: 1}\n    alpha: 4\n")
    config = load_config(path)
    assert (config.steps, config.seed, config.model.lora.rank, config.model.lora.alpha) == (3, 3, 8, 4)


def test_a_dumped_config_loads_as_the_same_config(tmp_path: Path) -> None:
    words = ["--name", "1e5", "--learner.learning_rate", "4e-5", "--learner.max_grad_norm", "null"]
    words += ["--data.prompt.examples", '[["What is 2 + 2?", "2 + 2 = \\\\boxed{4} né 数学"]]']
    words += ["--data.prompt.system", "a: b # c\n\ttab 'quoted' \\boxed{}", "--model.lora.target_modules", "[q_proj]"]
    config = load_config(None, words)
    assert load_config(write(tmp_path, dump_config(config))) == config
    assert load_config(write(tmp_path, dump_config(RunConfig()))) == RunConfig()


def test_flatten_gives_one_entry_a_key() -> None:
    flat = flatten(load_config(None, ["--rollout.engine.block_size", "32"]))
    assert flat["rollout.engine.block_size"] == 32
    assert (flat["name"], flat["data.prompt.examples"], flat["data.path"]) == ("gspo", [], None)
    assert not any(isinstance(value, dict) for value in flat.values())
