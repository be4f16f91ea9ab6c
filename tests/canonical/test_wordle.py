"""Wordle by its official rules: marks, guesses, turns, rewards, tasks, and what every observation says."""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.catalogue import load_environment
from canonical.content import ErrorCode
from canonical.environments.wordle.environment import Board, Wordle, mark, read_words
from canonical.episode import Episode
from canonical.step import Cause, Ending
from canonical.task import Task
from canonical.tool import ToolCall
from canonical.transcript import Action
from tests.canonical.playing import play

WORDLE = Wordle()
ANSWERS, ALLOWED = read_words("answers"), read_words("allowed")
words = st.sampled_from(ALLOWED)
answers = st.sampled_from(ANSWERS)


def guess(word: str) -> ToolCall:
    return ToolCall("guess", {"word": word})


def task_of(answer: str) -> Task:
    return next(task for task in WORDLE.tasks() if task.secret["answer"] == answer)


def opened(answer: str) -> Episode[Board]:
    return Episode.open(WORDLE, task_of(answer))


def marks_by_counting(word: str, answer: str) -> str:
    """Mark by the rule as newspapers state it: of a letter the answer has n of, the greens come first, then the yellows
    from the left until n are marked."""
    spare = Counter(answer) - Counter(a for a, b in zip(word, answer, strict=True) if a == b)
    marks = ""
    for place, letter in enumerate(word):
        if answer[place] == letter:
            marks += "G"
        else:
            earlier = sum(word[i] == letter != answer[i] for i in range(place))
            marks += "Y" if earlier < spare[letter] else "-"
    return marks


class TestMarks:
    @pytest.mark.parametrize(
        ("word", "answer", "marks"),
        [
            # The answer PESKY has one E, at place 2, and one S, at place 3. EASES: no letter stands in its place (E/P,
            # A/E) but the S at place 3: green. The first E then takes the E; the second E and S get nothing.
            ("eases", "pesky", "Y-G--"),
            # XEROX has one E, at place 2; FEMME has its first E there: green, and the last E gets nothing.
            ("femme", "xerox", "-G---"),
            # ESSAY against SEASE: S/E, E/S, A/S, S/A, E/Y: nothing green. SEASE has S E A S E; ESSAY has one E, two S
            # and one A: S, E, A and the second S are yellow, the second E gets nothing.
            ("sease", "essay", "YYYY-"),
            # AWARD against ADORE: A green; D is at the end: yellow; no O; R/R at place 4 is green; no E.
            ("adore", "award", "GY-G-"),
            ("pesky", "pesky", "GGGGG"),
            ("aaaaa", "abbba", "G---G"),
            ("abbba", "aaaaa", "G---G"),
            ("speed", "abide", "--Y-Y"),
            ("speed", "erase", "Y-YY-"),
            ("speed", "steal", "G-G--"),
            ("speed", "crepe", "-YGY-"),
            ("allee", "apple", "GY--G"),
            ("bobby", "abbey", "Y-G-G"),
            ("geese", "elegy", "YYG--"),
        ],
    )  # fmt: skip
    def test_known_marks(self, word: str, answer: str, marks: str) -> None:
        assert mark(word, answer) == marks

    @given(words, answers)
    def test_a_second_way_of_counting_gives_the_same_marks(self, word: str, answer: str) -> None:
        assert mark(word, answer) == marks_by_counting(word, answer)

    def test_the_two_ways_agree_on_many_real_pairs(self) -> None:
        """Repeated letters are rare, so the property test alone would seldom meet them."""
        doubled = [word for word in ALLOWED if len(set(word)) <= 3]
        rng = random.Random(1)
        for answer in rng.sample([word for word in ANSWERS if len(set(word)) <= 4], 150):
            for word in rng.sample(doubled, 100):
                assert mark(word, answer) == marks_by_counting(word, answer)

    @pytest.mark.parametrize("letters", ["ab", "abc"])
    def test_the_two_ways_agree_on_all_short_alphabets(self, letters: str) -> None:
        """Two letters make every pattern of repetition; the third lets one be absent."""
        every = ["".join(letters_) for letters_ in itertools.product(letters, repeat=5)]
        chosen = every if len(letters) == 2 else every[::3]
        for word in chosen:
            for answer in chosen:
                assert mark(word, answer) == marks_by_counting(word, answer)

    @given(words, answers)
    def test_marks_never_promise_more_letters_than_the_answer_has(self, word: str, answer: str) -> None:
        marked = Counter(letter for letter, m in zip(word, mark(word, answer), strict=True) if m != "-")
        assert all(count == min(word.count(letter), answer.count(letter)) for letter, count in marked.items())
        assert all(m == "G" for m in mark(answer, answer))


class TestRules:
    def test_finding_the_word_solves_the_task(self) -> None:
        result = opened("crane").step(guess("crane"))
        assert (result.cause, result.ending, result.reward) == (Cause.SOLVED, Ending.TERMINATED, 1.0)
        assert result.components == {"solved": 1.0, "partial": 0.0}
        assert result.observation.text.startswith("C R A N E\nG G G G G\n")

    def test_six_wrong_guesses_fail(self) -> None:
        episode = opened("crane")
        results = [episode.step(guess("fuzzy")) for _ in range(6)]
        assert [result.cause for result in results] == [None] * 5 + [Cause.FAILED]
        assert episode.step(guess("crane")).observation.error is ErrorCode.EPISODE_OVER

    def test_the_sixth_guess_may_solve(self) -> None:
        episode = opened("crane")
        for _ in range(5):
            episode.step(guess("fuzzy"))
        assert episode.step(guess("crane")).cause is Cause.SOLVED

    @pytest.mark.parametrize(
        ("word", "message"),
        [
            ("cranx", "This word is not in the word list; it costs no guess."),
            ("zzzzz", "This word is not in the word list; it costs no guess."),
            ("12345", "This word is not in the word list; it costs no guess."),
            ("\u00e9tudes"[:5], "This word is not in the word list; it costs no guess."),
            ("", "A guess has 5 letters, this one has 0; it costs no guess."),
            ("cran", "A guess has 5 letters, this one has 4; it costs no guess."),
            ("cranes", "A guess has 5 letters, this one has 6; it costs no guess."),
            ("x" * 100_000, "A guess has 5 letters, this one has 100000; it costs no guess."),
        ],
    )
    def test_what_is_no_word_costs_a_turn_and_no_guess(self, word: str, message: str) -> None:
        episode = opened("crane")
        result = episode.step(guess(word))
        assert result.observation.error is ErrorCode.TOOL_ERROR
        assert result.observation.text.startswith(f"{message}\n")
        assert result.observation.text.endswith("Guesses left: 6")
        assert (episode.turn, episode.state.guesses) == (1, [])

    def test_twelve_turns_end_the_game_whatever_they_were_used_for(self) -> None:
        episode = opened("crane")
        actions: list[Action] = ["?", guess("zzzzz"), ToolCall("look"), ToolCall("guess", {})] * 3
        results = [episode.step(action) for action in actions]
        assert [result.cause for result in results] == [None] * 11 + [Cause.BUDGET]
        assert episode.total == 0.0

    def test_the_twelfth_turn_may_solve(self) -> None:
        episode = opened("crane")
        for _ in range(11):
            episode.step("?")
        assert episode.step(guess("crane")).cause is Cause.SOLVED

    @pytest.mark.parametrize("word", ["CRANE", " crane ", "Crane\n", "cRaNe"])
    def test_case_and_white_space_around_do_not_matter(self, word: str) -> None:
        assert opened("crane").step(guess(word)).cause is Cause.SOLVED

    def test_a_word_may_be_guessed_twice(self) -> None:
        episode = opened("crane")
        first, second = episode.step(guess("slate")), episode.step(guess("slate"))
        assert first.observation.text.split("\n")[1] == second.observation.text.split("\n")[1]
        assert episode.state.guesses == ["slate", "slate"]

    @given(st.lists(words | st.text(max_size=7), max_size=14), answers)
    def test_no_play_exceeds_six_guesses_or_twelve_turns(self, tried: list[str], answer: str) -> None:
        episode = opened(answer)
        for word in tried:
            episode.step(guess(word))
        assert len(episode.state.guesses) <= 6
        assert episode.turn <= 12
        assert (episode.cause is not None) == (
            answer in episode.state.guesses or len(episode.state.guesses) == 6 or episode.turn == 12
        )


class TestRewards:
    @pytest.mark.parametrize(
        ("answer", "tried", "total"),
        [
            ("crane", ["crane"], 1.0),
            ("crane", ["fuzzy"] * 5 + ["crane"], 1.0),
            ("crane", ["fuzzy"] * 6, 0.0),  # no letter in common
            ("crane", ["crate"] * 6, 0.4),  # four greens: 8 of 10 points, half
            ("crane", ["crate"] + ["fuzzy"] * 5, 0.4),  # the best guess counts, not the last
            ("crane", ["fuzzy"] * 5 + ["slate"], 0.2),  # A and E in place: 4 points
            ("crane", ["fuzzy"] * 5 + ["nears"], 0.25),  # A in place, N, E, R elsewhere: 5 points
            ("crane", ["fuzzy"] * 5 + ["caner"], 0.3),  # C in place, A N E R elsewhere: 6 points
        ],
    )
    def test_the_table_of_rewards(self, answer: str, tried: list[str], total: float) -> None:
        episode = opened(answer)
        results = [episode.step(guess(word)) for word in tried]
        assert episode.total == pytest.approx(total)
        assert [result.reward for result in results[:-1]] == [0.0] * (len(tried) - 1)
        assert results[-1].reward == episode.total
        assert results[-1].components == pytest.approx(
            {"solved": float(total == 1.0), "partial": 0.0 if total == 1.0 else total}
        )

    @given(st.lists(words, min_size=6, max_size=6), answers)
    def test_solved_pays_one_and_anything_else_less_than_half(self, tried: list[str], answer: str) -> None:
        transcript = play(WORDLE, task_of(answer).id, 0, [guess(word) for word in tried])
        if transcript.cause is Cause.SOLVED:
            assert transcript.total == 1.0
        else:
            best = max(
                2 * m.count("G") + m.count("Y") for m in (marks_by_counting(word, answer) for word in tried)
            )
            assert transcript.total == 0.5 * (best / 10)
            assert 0.0 <= transcript.total <= 0.4

    def test_no_marks_but_five_greens_exceed_eight_points(self) -> None:
        """Four greens fix four letters, so the fifth cannot be merely in another place."""
        patterns = {
            mark("".join(word), answer)
            for answer in ("abcde", "aabcd", "aabbc")
            for word in itertools.product("abcdex", repeat=5)
        }
        points = {2 * m.count("G") + m.count("Y") for m in patterns if m != "GGGGG"}
        assert max(points) == 8

    def test_nothing_is_paid_for_a_game_that_was_closed(self) -> None:
        episode = opened("crane")
        episode.step(guess("crate"))
        episode.close()
        assert (episode.cause, episode.total) == (Cause.CANCELLED, 0.0)


class TestTasks:
    def test_every_answer_is_one_task_in_one_of_three_splits(self) -> None:
        tasks = WORDLE.tasks()
        assert tasks.splits == ("train", "validation", "test")
        assert len(tasks) >= 2000
        assert sorted(str(task.secret["answer"]) for task in tasks) == list(ANSWERS)
        sizes = [len(tasks.split(split)) for split in tasks.splits]
        assert sum(sizes) == len(ANSWERS)
        assert min(sizes) >= 300

    def test_the_splits_are_disjoint(self) -> None:
        tasks = WORDLE.tasks()
        sets = [{task.secret["answer"] for task in tasks.split(split)} for split in tasks.splits]
        assert not any(a & b for a, b in itertools.combinations(sets, 2))

    def test_the_public_half_of_every_task_says_nothing(self) -> None:
        tasks = list(WORDLE.tasks())
        assert all(dict(task.inputs) == {} and list(task.secret) == ["answer"] for task in tasks)
        prompts = {Episode.open(WORDLE, task).prompt for task in tasks[:50]}
        assert len(prompts) == 1

    def test_the_place_in_the_list_says_nothing_about_the_word(self) -> None:
        """A correlation of rank near 0, both over the alphabet and over the frequency of letters."""
        listed = [str(task.secret["answer"]) for task in WORDLE.tasks()]
        commonness = Counter("".join(listed))
        by_name = {word: rank for rank, word in enumerate(sorted(listed))}
        by_letters = sorted(listed, key=lambda word: (sum(commonness[letter] for letter in word), word))
        for ranks in (by_name, {word: rank for rank, word in enumerate(by_letters)}):
            n = len(listed)
            spearman = 1 - 6 * sum((i - ranks[word]) ** 2 for i, word in enumerate(listed)) / (
                n * (n * n - 1)
            )
            assert abs(spearman) < 4 / n**0.5

    def test_the_splits_hold_the_same_kind_of_words(self) -> None:
        tasks = WORDLE.tasks()
        initials = [
            Counter(str(task.secret["answer"])[0] for task in tasks.split(split)) for split in tasks.splits
        ]
        for one, other in itertools.combinations(initials, 2):
            shares = [(one[c] / one.total(), other[c] / other.total()) for c in "abcdefghijklmnopqrstuvwxyz"]
            assert sum(abs(a - b) for a, b in shares) / 2 < 0.15

    def test_the_order_is_fixed_for_ever(self) -> None:
        listed = [str(task.secret["answer"]) for task in WORDLE.tasks()]
        assert listed == sorted(ANSWERS, key=lambda word: hashlib.sha256(word.encode()).hexdigest())
        assert next(task.id for task in WORDLE.tasks()) == "train/0000"

    def test_the_oracle_solves_every_task_with_one_guess(self) -> None:
        for task in WORDLE.tasks():
            (call,) = WORDLE.oracle(task)
            assert call == guess(str(task.secret["answer"]))
        for task in list(WORDLE.tasks())[::200]:
            assert play(WORDLE, task.id, 0, WORDLE.oracle(task)).total == 1.0

    def test_a_random_call_guesses_an_allowed_word_and_is_reproducible(self) -> None:
        task = next(iter(WORDLE.tasks()))
        calls = [WORDLE.random_call(task, random.Random(seed)) for seed in range(50)]
        assert calls == [WORDLE.random_call(task, random.Random(seed)) for seed in range(50)]
        assert {str(call.arguments["word"]) for call in calls} <= set(ALLOWED)
        assert len({str(call.arguments["word"]) for call in calls}) > 40

    def test_the_catalogue_has_this_environment(self) -> None:
        assert type(load_environment("wordle")) is Wordle


class TestObservations:
    ROWS = re.compile(
        r"In place: (none|[A-Z]( [A-Z])*)\n"
        r"In the word: (none|[A-Z]( [A-Z])*)\n"
        r"Not in the word: (none|[A-Z]( [A-Z])*)\n"
        r"Untried: (none|[A-Z]( [A-Z])*)\n"
        r"Guesses left: ([0-6])\Z"
    )

    @given(
        st.lists(words | st.text(max_size=6) | st.sampled_from(["?!", "look"]), min_size=1, max_size=14),
        answers,
    )
    def test_every_observation_ends_with_the_keyboard_and_the_guesses_left(
        self, tried: list[str], answer: str
    ) -> None:
        episode = opened(answer)
        for index, word in enumerate(tried):
            kinds: list[Action] = [guess(word), word, ToolCall(word, {"word": word})]
            action = kinds[index % 3]
            text = episode.step(action).observation.text
            rows = self.ROWS.search(text)
            assert rows is not None, text
            shown = "".join(rows[group] for group in (1, 3, 5, 7)).replace("none", "").replace(" ", "")
            assert sorted(shown) == list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
            assert int(rows[9]) == 6 - len(episode.state.guesses)

    def test_the_keyboard_shows_the_best_that_is_known_of_each_letter(self) -> None:
        episode = opened("crane")
        assert episode.step(guess("nears")).observation.text == (
            "N E A R S\nY Y G Y -\n"
            "In place: A\n"
            "In the word: E N R\n"
            "Not in the word: S\n"
            "Untried: B C D F G H I J K L M O P Q T U V W X Y Z\n"
            "Guesses left: 5"
        )
        assert episode.step(guess("crate")).observation.text == (
            "C R A T E\nG G G - G\n"
            "In place: A C E R\n"
            "In the word: N\n"
            "Not in the word: S T\n"
            "Untried: B D F G H I J K L M O P Q U V W X Y Z\n"
            "Guesses left: 4"
        )
        # N was known to be in the word, A to be in place: a later and weaker mark takes nothing away.
        assert "In place: A C E R\nIn the word: N\n" in episode.step(guess("nears")).observation.text

    def test_a_letter_that_is_there_once_is_not_listed_as_absent_for_its_second_use(self) -> None:
        episode = opened("crane")
        text = episode.step(guess("eerie")).observation.text
        assert "E E R I E\n- - Y - G\n" in text
        assert "In place: E\nIn the word: R\nNot in the word: I\n" in text

    def test_the_prompt_states_the_rules(self) -> None:
        (message,) = opened("crane").prompt
        assert message.role == "user"
        for words_ in (
            "five-letter",
            "six guesses",
            "twelve turns",
            "guess",
            "G means",
            "Y that",
            "word list",
        ):
            assert words_ in message.text

    def test_the_tool_is_guess_with_one_word(self) -> None:
        (tool,) = WORDLE.tools
        assert tool.spec.to_json() == {
            "name": "guess",
            "description": "Guess the hidden word and read the marks of its letters.",
            "parameters": {
                "type": "object",
                "properties": {"word": {"type": "string", "description": "An English word of five letters."}},
                "required": ["word"],
                "additionalProperties": False,
            },
        }
