"""All generator processes of a run together: divide the sessions, open the barrier, and put the results together."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event

from bench.load.progress import PROGRESS_FILE, LoadProgress, Stage, write_whole
from bench.load.share import PROGRESS_INTERVAL_S, STOP_PATIENCE_S, Place, ShareProgress
from bench.load.summary import SUMMARY_FILE, EndedBy, LoadSummary, ShareSummary, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.load.plan import LoadPlan

WRITE_PATIENCE_S = 30.0
"""How long workers that were told to stop may take to write their samples."""
LOST_AFTER_S = 15.0
"""How long a worker may be missing before its share is given up; a busy one misses heartbeats and comes back."""


@dataclass(slots=True)
class _Worker:
    name: str
    place: Place
    seen: float
    progress: ShareProgress | None = None
    held: bool = False
    summary: ShareSummary | None = None


class Fleet:
    """Carry one run of a plan through its workers.

    Args:
        plan: What is carried out.
        assign: Sends a worker its place.
        go: Opens the barrier in every worker.
        halt: Makes every worker stop.
        heard: Returns the names of the workers that have not quit, and whether each has been heard from lately.
        ended: Called when the summary is written.
    """

    def __init__(
        self,
        plan: LoadPlan,
        *,
        assign: Callable[[str, Place], None],
        go: Callable[[], None],
        halt: Callable[[EndedBy], None],
        heard: Callable[[], Mapping[str, bool]],
        ended: Callable[[LoadSummary], None],
    ) -> None:
        self.plan = plan
        self.summary: LoadSummary | None = None
        self._assign, self._go, self._halt, self._heard, self._ended = assign, go, halt, heard, ended
        self._workers: dict[int, _Worker] = {}
        self._went = False
        self._stopped_by: EndedBy | None = None
        self._began = time.monotonic()
        self._changed: Any = Event()
        self._written: Any = Event()

    def begin(self, names: Sequence[str], hosts: Sequence[str]) -> None:
        """Divide the sessions over the named workers, in that order, and start the run.

        Raises:
            OSError: The output folder cannot be written to.
        """
        self.plan.out.mkdir(parents=True, exist_ok=True)
        for old in (*self.plan.out.glob("samples*"), self.plan.out / SUMMARY_FILE):
            old.unlink(missing_ok=True)
        neighbours = Counter(hosts)
        for rank, (name, host) in enumerate(zip(names, hosts, strict=True)):
            place = Place(rank, len(names), neighbours[host])
            self._workers[rank] = _Worker(name, place, time.monotonic())
        self._write_progress("starting")
        for worker in list(self._workers.values()):
            self._assign(worker.name, worker.place)
        gevent.spawn(self._watch)

    def users(self) -> dict[str, int]:
        """Return how many users each worker needs: one per session."""
        return {w.name: len(self.plan.share(w.place.rank, w.place.of)) for w in self._workers.values()}

    def progressed(self, progress: ShareProgress) -> None:
        """Note how far a worker has come."""
        self._workers[progress.rank].progress = progress

    def held(self, rank: int) -> None:
        """Note that every session of a worker has opened or failed to."""
        self._workers[rank].held = True
        self._changed.set()

    def finished(self, summary: ShareSummary) -> None:
        """Note that a worker is done."""
        self._workers[summary.rank].summary = summary
        self._changed.set()

    def stop(self, why: EndedBy) -> None:
        """Make the run end now and keep what was measured."""
        if self.summary is None and self._stopped_by is None:
            self._stopped_by = why
            self._halt(why)
            self._changed.set()

    def join(self) -> None:
        """Return when the summary is written."""
        self._written.wait(WRITE_PATIENCE_S + STOP_PATIENCE_S)

    def _watch(self) -> None:
        told = 0.0
        give_up = None
        while not self._over(give_up):
            self._changed.clear()
            self._changed.wait(PROGRESS_INTERVAL_S / 2)
            now = time.monotonic()
            self._notice_losses(now)
            self._open_when_held()
            if now - told >= PROGRESS_INTERVAL_S:
                told = now
                self._write_progress("playing" if self._went else "opening")
            if self._stopped_by is None:
                self._stop_if_due(now)
            if self._stopped_by is not None and give_up is None:
                give_up = now + WRITE_PATIENCE_S
        self._finish()

    def _open_when_held(self) -> None:
        workers = self._workers.values()
        if self._went or not all(worker.held or worker.summary for worker in workers):
            return
        self._went = True
        # Nothing to wait for if no session is there to be held.
        if any(worker.held and not worker.summary for worker in workers):
            gevent.sleep(self.plan.hold_s)
        self._go()

    def _stop_if_due(self, now: float) -> None:
        if now - self._began > self.plan.time_limit_s:
            self._stopped_by = "time_limit"
        elif any(worker.summary and worker.summary.failure for worker in self._workers.values()) and not all(
            worker.summary for worker in self._workers.values()
        ):
            # Without one share the others are not the run that was planned.
            self._stopped_by = "interrupted"
        if self._stopped_by is not None:
            self._halt(self._stopped_by)

    def _over(self, give_up: float | None) -> bool:
        late = give_up is not None and time.monotonic() > give_up
        return late or all(worker.summary for worker in self._workers.values())

    def _notice_losses(self, now: float) -> None:
        heard = self._heard()
        for worker in self._workers.values():
            if heard.get(worker.name):
                worker.seen = now
            # A worker that is done says so before it quits, so one that has quit says no more.
            elif worker.summary is None and (worker.name not in heard or now - worker.seen > LOST_AFTER_S):
                worker.summary = self._lost(worker)

    def _lost(self, worker: _Worker) -> ShareSummary:
        opened = worker.progress.opened if worker.progress else 0
        return ShareSummary(
            rank=worker.place.rank,
            sessions=len(self.plan.share(worker.place.rank, worker.place.of)),
            opened=opened,
            reached=opened > 0,
            ended_by=self._stopped_by or "plan",
            failure="the worker was lost, and with it its samples",
        )

    def _finish(self) -> None:
        shares = [worker.summary or self._lost(worker) for worker in self._workers.values()]
        stopped: EndedBy = next((share.ended_by for share in shares if share.ended_by != "plan"), "plan")
        ended_by = self._stopped_by or stopped
        self.summary = merge(self.plan.sessions, shares, ended_by=ended_by, failure=self._failure(shares))
        self._write_progress("finished")
        try:
            write_whole(
                self.plan.out / SUMMARY_FILE, self.summary.model_dump_json(exclude_none=True, indent=1)
            )
        except OSError as e:
            why = f"the summary could not be written to {self.plan.out / SUMMARY_FILE}: {e.strerror or e}"
            self.summary = self.summary.model_copy(update={"failure": why})
        self._written.set()
        self._ended(self.summary)

    def _failure(self, shares: Sequence[ShareSummary]) -> str | None:
        failed = next((share for share in shares if share.failure), None)
        if failed is not None:
            which = f"worker {failed.rank + 1} of {len(shares)}: " if len(shares) > 1 else ""
            return f"{which}{failed.failure}"
        tried = self._stopped_by is None or any(share.samples for share in shares)
        if tried and not any(share.reached for share in shares):
            first = next((text for share in shares for text in share.errors), "no answer")
            where = ", ".join(f"{e.address}:{e.port}" for e in self.plan.endpoints[:3])
            return f"no session reached the server at {where}: {first}"
        return None

    def _write_progress(self, stage: Stage) -> None:
        parts = [worker.progress for worker in self._workers.values() if worker.progress]
        progress = LoadProgress(
            stage=stage,
            sessions=self.plan.sessions,
            opened=sum(part.opened for part in parts),
            failed=sum(part.failed for part in parts),
            steps=sum(part.steps for part in parts),
            steps_planned=self.plan.sessions * self.plan.turns,
            ended=sum(part.ended for part in parts),
            elapsed_s=time.monotonic() - self._began,
        )
        try:
            write_whole(self.plan.out / PROGRESS_FILE, progress.model_dump_json())
        except OSError as e:
            # Progress is a courtesy; a full disk is reported by the files that matter.
            sys.stderr.write(f"rosetta: progress is not shown, {e.strerror or e}\n")
