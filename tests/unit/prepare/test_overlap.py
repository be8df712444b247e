"""Which training problems count as problems of an evaluation set. Expected shares are counted by hand."""

from pathlib import Path

import pytest

from gspo_ray.prepare.overlap import EvalSet, Hit, OverlapIndex, text_key, words

TWENTY = " ".join(f"w{chr(97 + number)}" for number in range(20))  # wa wb ... wt: 8 runs of 13 words


def evals(*questions: str, name: str = "eval") -> EvalSet:
    return EvalSet(name, Path("x"), "0", tuple((str(number), question) for number, question in enumerate(questions)))


def hits(eval_sets: list[EvalSet], *train: str) -> list[Hit]:
    index = OverlapIndex(eval_sets)
    for number, question in enumerate(train):
        index.add(f"t{number}", question)
    return index.hits()


def test_words() -> None:
    assert words(r"Find $\dfrac{m}{n}$ in \textbf{Base} 10, x_1!") == [
        "find",
        "frac",
        "m",
        "n",
        "in",
        "base",
        "10",
        "x",
        "1",
    ]
    assert words("已知x, 求y") == ["已", "知", "x", "求", "y"]
    assert words("before [asy] draw(a--b); [/asy] after") == ["before", "after"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("What is $x^{10}$?", "what  is x^10 ?", True),
        (r"\( \dfrac{1}{2} \)", r"$\frac12$", False),  # digits without braces are another number to a text
        (r"\( \dfrac{a}{b} \)", r"$\frac{a}{b}$", True),
        (r"\left(2, \pi\right)", r"(2,\pi)", True),
        ("2 + 3", "2 - 3", False),
        ("2 \u2212 3", "2 - 3", True),
        ("\uff11\uff12 cats", "12 cats", True),
        ("x < 3", "x > 3", False),
        ("2(3 + 4)", "2 3 + 4", False),
    ],
)
def test_same_text(one: str, other: str, same: bool) -> None:
    assert (text_key(one) == text_key(other)) is same


def test_the_same_text_is_contaminated_however_short() -> None:
    assert hits([evals("What is $2+2$?")], "what is 2 + 2 ?", "what is 2 + 3?") == [Hit("t0", "eval", "0", True, 0.0)]


def test_the_share_of_runs() -> None:
    split = TWENTY.split()
    # 15 words in a row hold 3 of the 8 runs of 13 words; 14 hold 2, 12 none.
    found = hits([evals(TWENTY)], *(" ".join(["other", *split[:length], "text"]) for length in (15, 14, 12)))
    assert found == [Hit("t0", "eval", "0", False, 0.375), Hit("t1", "eval", "0", False, 0.25)]
    assert [hit.contaminated for hit in found] == [True, False]  # from 30 % on


def test_set_phrases_say_nothing() -> None:
    phrase = " ".join(TWENTY.split()[:13])
    rest = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    question = f"{phrase} {rest}"  # 27 words: 15 runs, one of them the phrase
    ten = [f"{number} {phrase} here" for number in range(10)]
    assert len(hits([evals(question)], *ten)) == 10
    assert hits([evals(question)], *ten, f"10 {phrase} here") == []
    # Without the phrase 14 runs are left; "one ... thirteen" holds 1 of them.
    [hit] = hits([evals(question)], *ten, f"10 {phrase} here", rest.removesuffix(" fourteen"))
    assert hit.share == pytest.approx(1 / 14, abs=1e-4)


def test_short_problems_are_one_run() -> None:
    nine, seven = " ".join(TWENTY.split()[:9]), " ".join(TWENTY.split()[:7])
    [hit] = hits([evals(nine, seven)], f"so: {nine} and more")
    assert (hit.eval_id, hit.share, hit.same_text) == ("0", 1.0, False)


def test_chinese_text_is_compared_by_characters() -> None:
    question = "在三角形中角甲等于六十度边长为五求面积的最大值"  # 23 characters: 11 runs
    [hit] = hits([evals(question)], "已知" + question[:17] + "。")  # 17 characters: 5 runs
    assert hit.share == pytest.approx(5 / 11, abs=1e-4)


def test_several_sets_are_told_apart() -> None:
    found = hits([evals("q one", "q two", name="a"), evals("q two", name="b")], "q two")
    assert [(hit.eval_set, hit.eval_id) for hit in found] == [("a", "1"), ("b", "0")]
