"""The matrix of versions as one file: every cell of a run, with where and when it was made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from packaging.version import Version
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from bench.versions.cells import Cell
from canonical.malformed import first_problem

MATRIX_FILE = "versions.json"


class MatrixError(ValueError):
    """Report a file that holds no matrix of versions: the file, the place in it, the reason."""


class Matrix(BaseModel):
    """Hold the cells of one run.

    Attributes:
        environment: What was played.
        episodes: At least how many episodes each release was to play in it.
        seed: Seed of the fuzzer.
        written: When the last cell was done.
        commit: The commit that wrote it; None outside of a checkout.
        dirty: Whether there were changes that are not committed.
        cells: One for each release, by framework and then by version.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    environment: str
    episodes: int = Field(ge=1)
    seed: int
    written: AwareDatetime
    commit: str | None = None
    dirty: bool | None = None
    cells: tuple[Cell, ...] = Field(min_length=1)

    def to_text(self) -> str:
        """Return the file."""
        return self.model_dump_json(indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> Matrix:
        """Read a file.

        Raises:
            MatrixError: It is missing or malformed.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise MatrixError(f"{path}: {error.strerror}") from error
        except ValidationError as error:
            raise MatrixError(f"{path}: {first_problem(error)}") from error

    def by_framework(self) -> Iterator[tuple[str, list[Cell]]]:
        """Yield each framework's title with its cells, in their order."""
        for title, cells in groupby(self.cells, key=lambda cell: cell.title):
            yield title, list(cells)


def join_matrices(matrices: Sequence[Matrix]) -> Matrix:
    """Return one matrix of the cells of several, such as those of a job for each; of one release, the cell that was played last.

    Raises:
        MatrixError: There is none, or they were not made with the same environment, episodes and seed.
    """
    if not matrices:
        raise MatrixError("there is no matrix to join")
    plans = {(one.environment, one.episodes, one.seed) for one in matrices}
    if len(plans) > 1:
        told = "; ".join(
            f"{name}, {episodes} episodes, seed {seed}" for name, episodes, seed in sorted(plans)
        )
        raise MatrixError(f"matrices of different plans cannot be joined: {told}")
    cells = {cell.stack: cell for one in sorted(matrices, key=lambda one: one.written) for cell in one.cells}
    commits = {one.commit for one in matrices}
    return matrices[0].model_copy(
        update={
            "written": max(one.written for one in matrices),
            "commit": commits.pop() if len(commits) == 1 else None,
            "dirty": any(one.dirty for one in matrices),
            "cells": in_order(list(cells.values())),
        }
    )


def in_order(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return cells by framework, then by package, then from the oldest release to the newest."""
    return tuple(sorted(cells, key=lambda one: (one.framework, one.package, Version(one.version), one.stack)))
