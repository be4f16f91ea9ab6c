"""The word lists of Wordle are well formed, clean, licensed, and what their source yields."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import canonical.environments

WORDS = Path(canonical.environments.__file__).parent / "wordle" / "words"
SCOWL = Path("/usr/share/dict/scowl")
SCOWL_README = Path("/usr/share/doc/scowl/README.gz")
BUILT_FROM = "2020.12.07-2"
LISTS = ("allowed.txt", "answers.txt")


def entries(name: str) -> list[str]:
    lines = (WORDS / name).read_text(encoding="ascii").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def rebuild(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "rebuild.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def installed_scowl() -> str | None:
    if shutil.which("dpkg-query") is None:
        return None
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", "scowl"]
    status, _, version = subprocess.run(query, capture_output=True, text=True, check=False).stdout.partition(
        " "
    )
    return version if status == "installed" else None


@pytest.fixture
def same_scowl() -> None:
    """Skip unless the package that the lists were built from is installed."""
    version = installed_scowl()
    if version is None or not SCOWL.is_dir():
        pytest.skip("the Debian package scowl is not installed (apt-get install scowl)")
    if version != BUILT_FROM:
        pytest.skip(f"scowl {version} is installed; the lists were built from {BUILT_FROM}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Copy the rebuild script and what it reads, so that a test may rewrite the lists."""
    copy = tmp_path / "words"
    copy.mkdir()
    for name in ("rebuild.py", "README.md", "blocklist.txt"):
        shutil.copy(WORDS / name, copy / name)
    return copy


def miniature_scowl(folder: Path, encoding: str = "utf-8", **contents: str) -> Path:
    """Write a SCOWL of empty files, but for the named ones: american_words_20 is american-words.20."""
    categories = ["english", "american", "british", "british_z", "canadian", "australian"]
    categories += ["variant_1", "variant_2", "variant_3"]
    categories += [f"{c}_variant_{n}" for c in ("british", "canadian", "australian") for n in (1, 2)]
    folder.mkdir()
    for category, size in itertools.product(categories, (10, 20, 35, 40, 50, 55, 60, 70, 80, 95)):
        (folder / f"{category}-words.{size}").write_bytes(b"")
    for name, words in contents.items():
        category, sub_category, size = name.rsplit("_", 2)
        text = "".join(f"{word}\n" for word in words.split())
        (folder / f"{category}-{sub_category.replace('X', '-')}.{size}").write_bytes(text.encode(encoding))
    return folder


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_one_five_letter_word_a_line_sorted_and_unique(name: str) -> None:
    content = (WORDS / name).read_bytes()
    assert re.fullmatch(rb"([a-z]{5}\n)+", content)
    words = content.decode("ascii").split()
    assert words == sorted(set(words))


def test_every_answer_is_an_allowed_guess() -> None:
    assert set(entries("answers.txt")) <= set(entries("allowed.txt"))


def test_there_are_enough_words_for_three_splits_and_for_free_guessing() -> None:
    assert len(entries("answers.txt")) >= 2_300
    assert 16_000 <= len(entries("allowed.txt")) <= 19_000


def test_no_blocked_word_is_an_answer() -> None:
    assert set(entries("blocklist.txt")).isdisjoint(entries("answers.txt"))


def test_every_blocked_word_stays_an_allowed_guess() -> None:
    """A misspelt entry would block nothing; it would show here."""
    assert set(entries("blocklist.txt")) - set(entries("allowed.txt")) == set()


def test_the_blocklist_states_its_policy_first_and_is_sorted_within_each_section() -> None:
    policy, *sections = (WORDS / "blocklist.txt").read_text(encoding="ascii").split("\n\n")
    assert re.fullmatch(r"# Policy: .+", policy)
    assert len(entries("blocklist.txt")) == len(set(entries("blocklist.txt")))
    for section in sections:
        title, *words = section.splitlines()
        assert title.startswith("# ")
        assert words == sorted(words), title


@pytest.mark.parametrize(
    ("word", "answer", "allowed"),
    [
        ("adore", True, True),
        ("award", True, True),
        ("crane", True, True),
        ("eases", True, True),
        ("essay", True, True),
        ("pesky", True, True),
        ("slate", True, True),
        ("femme", False, True),
        ("xerox", False, True),
        ("sease", False, True),
        ("melee", False, True),
        ("saute", True, True),
        ("kraai", False, False),
    ],
)
def test_known_words_are_answers_or_allowed_guesses_as_expected(
    word: str, answer: bool, allowed: bool
) -> None:
    assert (word in entries("answers.txt"), word in entries("allowed.txt")) == (answer, allowed)


@pytest.mark.parametrize("name", LISTS)
def test_the_readme_states_the_count_and_checksum_of_each_list(name: str) -> None:
    readme = (WORDS / "README.md").read_text(encoding="utf-8")
    digest = hashlib.sha256((WORDS / name).read_bytes()).hexdigest()
    assert f"| `{name}` | {len(entries(name)):,} | `{digest}` |" in readme.splitlines()


def test_the_readme_and_the_script_name_the_version_that_the_lists_come_from() -> None:
    assert f"`scowl` {BUILT_FROM}" in (WORDS / "README.md").read_text(encoding="utf-8")
    assert f'BUILT_FROM = "{BUILT_FROM}"' in (WORDS / "rebuild.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "holder",
    [
        "Copyright 2000-2018 by Kevin Atkinson",
        "Copyright 2016 by Benjamin Titze",
        "Copyright (c) J Ross Beresford 1993-1999. All Rights Reserved.",
        "Copyright 1993, Geoff Kuenning, Granada Hills, CA",
        "WordNet 1.6 Copyright 1997 by Princeton University.",
    ],
)
def test_the_licence_carries_the_notice_of_every_copyright_holder(holder: str) -> None:
    assert holder in (WORDS / "LICENSE").read_text(encoding="ascii")


def test_the_licence_is_word_for_word_in_the_readme_of_scowl(same_scowl: None) -> None:
    if not SCOWL_README.exists():
        pytest.skip("this system was installed without the documentation of its packages")
    original = gzip.decompress(SCOWL_README.read_bytes()).decode("utf-8")
    assert (WORDS / "LICENSE").read_text(encoding="ascii") in original


def test_the_lists_are_what_the_scowl_package_yields(same_scowl: None) -> None:
    done = rebuild(WORDS, "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_rebuilding_from_the_package_gives_every_file_byte_for_byte(same_scowl: None, folder: Path) -> None:
    assert rebuild(folder).returncode == 0
    for name in (*LISTS, "README.md"):
        assert (folder / name).read_bytes() == (WORDS / name).read_bytes(), name


def test_without_the_package_the_script_says_how_to_install_it(tmp_path: Path) -> None:
    done = rebuild(WORDS, "--check", "--scowl", tmp_path / "absent")
    assert done.returncode == 2
    assert "apt-get install scowl" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_incomplete_package_is_refused_by_the_name_of_the_missing_file(
    folder: Path, tmp_path: Path
) -> None:
    scowl = miniature_scowl(tmp_path / "scowl", english_words_10="crane")
    (scowl / "variant_2-words.60").unlink()
    done = rebuild(folder, "--scowl", scowl)
    assert done.returncode == 2
    assert "variant_2-words.60" in done.stderr
    assert not (folder / "allowed.txt").exists()


def test_answers_come_from_common_words_in_their_usual_spelling(folder: Path, tmp_path: Path) -> None:
    scowl = miniature_scowl(
        tmp_path / "scowl",
        english_words_10="crane bitch",
        american_words_35="fiber",
        british_words_20="fibre",
        english_words_40="abuts",
        variant_1_words_10="fibar",
        australian_words_35="chook",
        english_abbreviations_10="abbrs",
        english_properXnames_35="names",
        english_contractions_10="contr",
        special_hacker_50="xterm",
    )
    assert rebuild(folder, "--scowl", scowl).returncode == 0
    assert (folder / "answers.txt").read_text().split() == ["crane", "fiber", "fibre"]
    assert (folder / "allowed.txt").read_text().split() == [
        *("abuts", "bitch", "chook", "crane", "fibar", "fiber", "fibre")
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "iso8859-1"])
def test_only_five_plain_letters_count_once_accents_are_off(
    folder: Path, tmp_path: Path, encoding: str
) -> None:
    scowl = miniature_scowl(
        tmp_path / "scowl",
        encoding,
        english_words_10="mêlée café cafés Paris it's crane cranes ægis straß co-op",
    )
    assert rebuild(folder, "--scowl", scowl).returncode == 0
    assert (folder / "allowed.txt").read_text().split() == ["cafes", "crane", "melee"]


@pytest.mark.parametrize(
    ("name", "edit", "complaint"),
    [
        ("answers.txt", lambda text: text.replace("crane\n", ""), "answers.txt: lacks 1 (crane)"),
        ("allowed.txt", lambda text: text + "zzzzz\n", "allowed.txt: should not hold 1 (zzzzz)"),
        (
            "allowed.txt",
            lambda text: text + "slate\n",
            "allowed.txt: same words, but other order, repeats or line ends",
        ),
        ("answers.txt", lambda text: text.replace("\n", "\r\n"), "answers.txt: same words, but other order"),
        ("README.md", lambda text: text.replace("| 2 |", "| 3 |"), "README.md: its table"),
    ],
)
def test_check_names_the_file_and_the_words_that_differ(
    folder: Path, tmp_path: Path, name: str, edit, complaint: str
) -> None:
    scowl = miniature_scowl(tmp_path / "scowl", english_words_10="crane slate")
    assert rebuild(folder, "--scowl", scowl).returncode == 0
    assert rebuild(folder, "--check", "--scowl", scowl).returncode == 0
    edited = edit((folder / name).read_text(encoding="utf-8"))
    (folder / name).write_bytes(edited.encode("utf-8"))

    done = rebuild(folder, "--check", "--scowl", scowl)

    assert done.returncode == 1
    assert done.stderr.startswith(complaint)
    assert (folder / name).read_bytes() == edited.encode("utf-8"), "--check writes nothing"
