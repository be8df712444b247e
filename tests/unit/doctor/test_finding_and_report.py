import json

from rich.console import Console

from gspo_ray.doctor.finding import Finding, Level, Problem, judged
from gspo_ray.doctor.report import CLUSTER, as_json, has_failed, render, summary

REPORT = {
    CLUSTER: [Finding("clocks", Level.WARN, "the clock of b is off by +2.00 s", "Run chrony.")],
    "a": [Finding("disk", Level.PASS, "100 GiB free"), Finding("GPUs", Level.SKIP, "none [here]")],
    "b": [Finding("disk", Level.FAIL, "0.1 GiB are left", "Free some room.")],
}


def test_a_finding_is_as_bad_as_its_worst_problem_and_keeps_all_of_them() -> None:
    problems = [Problem(Level.WARN, "slow", "Wait."), Problem(Level.FAIL, "broken", "Mend it.")]
    finding = judged("x", "3 things", problems)
    assert (finding.level, finding.found, finding.fix) == (Level.FAIL, "slow; broken; 3 things", "Wait. Mend it.")
    assert judged("x", "3 things", []) == Finding("x", Level.PASS, "3 things")


def test_a_finding_survives_json() -> None:
    finding = REPORT["b"][0]
    assert Finding.from_dict(json.loads(json.dumps(finding.as_dict()))) == finding


def test_the_summary_counts_nodes_and_levels_and_names_what_to_mend_first() -> None:
    assert summary(REPORT) == "2 nodes: 1 fail, 1 warn, 1 pass, 1 skip. Mend first: disk (b)"
    assert summary({"a": REPORT["a"]}) == "1 node: 1 pass, 1 skip"
    assert has_failed(REPORT)
    assert not has_failed({CLUSTER: REPORT[CLUSTER], "a": REPORT["a"]})  # a warning is no failure


def test_the_table_has_every_finding_and_fix_on_a_narrow_terminal(tmp_path) -> None:
    with (tmp_path / "out").open("w+") as out:
        render(REPORT, Console(file=out, width=60))
        out.seek(0)
        text = out.read()
    for words in ("cluster", "-> Run chrony.", "none [here]", "0.1 GiB are left", "-> Free some room.", "2 nodes: "):
        assert words in text
    assert all(len(line) <= 60 for line in text.splitlines()[:-1])  # the summary is for whoever reads the last line


def test_json_says_the_same() -> None:
    tree = json.loads(as_json(REPORT))
    assert tree["failed"] is True
    assert tree["nodes"]["b"] == [
        {"check": "disk", "level": "fail", "found": "0.1 GiB are left", "fix": "Free some room."}
    ]
