"""The load engine as locust runs it: one user per session, one plan for all of them.

    locust -f bench/load/locustfile.py --rosetta-plan plan.json --headless

The README beside this file tells about plans and about several workers. What a run does comes from its plan; of
locust's own options the number of users, the spawn rate and the host have no say. Locust's statistics are the live
display, and every operation is also kept as a raw sample.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gevent
import gevent.socket
from locust import User, events, task
from locust.dispatch import UsersDispatcher
from locust.exception import StopUser
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner, WorkerRunner

from bench.load.channel import Refused
from bench.load.fleet import Fleet
from bench.load.plan import BadPlan, LoadPlan
from bench.load.share import Assignment, Place, Share, ShareProgress
from bench.load.summary import Difference, EndedBy, LoadSummary, ShareSummary, WrongReply
from bench.load.tcp import Timeout, TransportError, Unreachable
from bench.load.wire import WireNotFound, load_wire
from bench.samples import Phase, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from locust.env import Environment
    from locust.runners import WorkerNode

    from bench.load.channel import Act, Channel
    from bench.load.wire import Reply

INTERRUPTED_EXIT_CODE = 130
EXAMPLE_CHARACTERS = 2000

SHARE, GO, STOP, TIME = "rosetta-share", "rosetta-go", "rosetta-stop", "rosetta-time"
"""What workers are told."""
PROGRESS, HELD, DONE, CLOCK = "rosetta-progress", "rosetta-held", "rosetta-done", "rosetta-clock"
"""What workers tell, or ask."""
CLOCK_QUESTIONS, CLOCK_INTERVAL_S = 8, 0.02

_logger = logging.getLogger(__name__)
_hooks: Any = events


class OperationFailed(Exception):  # noqa: N818 - what happened, read as a sentence
    """End a session after a failed operation, which has been recorded."""


class Wrong(Exception):  # noqa: N818
    """Say which pieces of a reply differ from the reference."""


class EnvUser(User):
    """Play one session: connect, wait at the barrier, reset, step, score where there is such a thing, close."""

    share: ClassVar[Share | None] = None
    """The share of this process, set before the first user starts."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.seq = 0
        self.right = True
        self.mine: Share
        self.assignment: Assignment
        self.channel: Channel

    def op(
        self,
        phase: Phase,
        act: Act,
        check: Callable[[Reply], None] | None = None,
        *,
        warmup: bool = False,
        intended_ns: int | None = None,
    ) -> None:
        """Do one operation and keep its sample; the time is what the channel's clock says.

        Args:
            phase: What it is.
            act: Does it.
            check: Raises `Wrong` for a reply that differs from the reference.
            warmup: Whether it is kept apart.
            intended_ns: When the schedule of an open loop wanted it to start.

        Raises:
            OperationFailed: The operation failed. A wrong answer is recorded, and the session goes on.
        """
        failure: BaseException | None = None
        clock = self.channel.clock
        clock.start()
        try:
            reply = act()
            if reply is not None:
                self.check(reply)
                if check is not None:
                    check(reply)
        except BaseException as e:  # noqa: BLE001 - recorded here, and raised again below
            failure = e
        start, end = clock.span()
        status, error = judge(failure, self.mine.stopped_by)
        self.mine.record(
            self.assignment.session,
            self.seq,
            phase,
            warmup=warmup,
            span_ns=(start, end),
            intended_ns=intended_ns,
            status=status,
            error=error,
        )
        self.seq += 1
        self.environment.events.request.fire(
            request_type=self.channel.transport,
            name=phase.value,
            response_time=(end - start) / 1e6,
            response_length=0,
            exception=error,
            context={},
        )
        if failure is None:
            return
        self.right = False
        if isinstance(failure, Wrong):
            return
        if isinstance(failure, Exception):
            raise OperationFailed from failure
        raise failure

    def connect(self) -> None:
        """Open the session's way to the server, with no more than the plan's number of them in flight in this process."""
        arrived_ns = self.intended_ns(0.0)
        with self.mine.gate:
            try:
                self.op(Phase.CONNECT, self.channel.connect(), intended_ns=arrived_ns)
            except OperationFailed as e:
                self.mine.failed(reached=not isinstance(e.__cause__, Unreachable | Timeout))
                raise
        self.mine.opened(self.channel.held)

    def reset(self) -> None:
        """Open the episode of this session's task."""
        expected = {"text": self.assignment.script.prompt}
        self.op(Phase.RESET, self.channel.reset(), lambda reply: self.compare(reply, expected))
        self.mine.entered(gevent.getcurrent())

    def step(self, turn: int) -> None:
        """Make the call of a turn."""
        call = self.assignment.script.calls[turn]
        expected = {"text": call.text, "reward": call.reward, "ended": call.ended}
        self.op(
            Phase.STEP,
            self.channel.step(turn),
            lambda reply: self.compare(reply, expected, turn),
            warmup=turn < self.mine.plan.warmup_turns,
            intended_ns=None if (due_s := self.mine.plan.step_s(turn)) is None else self.intended_ns(due_s),
        )
        self.mine.stepped()

    def intended_ns(self, due_s: float) -> int | None:
        """Return when something is meant that is due so long after the arrival; None in a closed loop."""
        if self.mine.plan.arrival == "closed":
            return None
        return self.mine.barrier.opened_ns + round((self.assignment.start_s + due_s) * 1e9)

    def think(self, turn: int) -> None:
        """Wait until it is time for a step."""
        plan = self.mine.plan
        due_s = plan.step_s(turn)
        intended_ns = None if due_s is None else self.intended_ns(due_s)
        self.channel.rest(
            plan.think_s if intended_ns is None else max(0.0, (intended_ns - time.perf_counter_ns()) / 1e9)
        )

    def score(self) -> None:
        """Have the episode scored, where the framework has such a thing."""
        act = self.channel.score()
        if act is None:
            return
        expected = self.assignment.script.expected_total(self.mine.plan.turns)
        self.op(Phase.SCORE, act, lambda reply: self.compare_total(reply, expected))

    def close(self) -> None:
        """End the session."""
        act = self.channel.close()
        if act is not None:
            self.op(Phase.CLOSE, act)

    def check(self, reply: Reply) -> None:
        """Raise Refused if the protocol reports a failure."""
        if reply.error is not None:
            raise Refused(reply.error)

    def compare(self, reply: Reply, expected: Mapping[str, object], turn: int | None = None) -> None:
        """Compare a reply with the reference; what one of the two does not say is not compared.

        Raises:
            Wrong: A piece differs.
        """
        said = {name: getattr(reply, name) for name in expected}
        self.complain(
            {
                name: (value, said[name])
                for name, value in expected.items()
                if value is not None and said[name] is not None and value != said[name]
            },
            turn,
        )

    def compare_total(self, reply: Reply, expected: float | None) -> None:
        """Compare the reward of the whole with the reference; up to rounding, as it may be added up in any order.

        Raises:
            Wrong: It differs.
        """
        total = reply.reward
        if expected is None or total is None or math.isclose(total, expected, rel_tol=1e-9, abs_tol=1e-9):
            return
        self.complain({"total": (expected, total)}, None)

    def complain(self, pieces: Mapping[str, tuple[object, object]], turn: int | None) -> None:
        """Keep pieces, given as expected and got, as an example of a wrong reply.

        Raises:
            Wrong: There are any.
        """
        if not pieces:
            return
        differences = [
            Difference.model_validate({"piece": name, "expected": _example(value), "got": _example(got)})
            for name, (value, got) in pieces.items()
        ]
        self.mine.differed(
            WrongReply(
                session=self.assignment.session,
                task=self.assignment.script.task,
                turn=turn,
                differences=tuple(differences),
            )
        )
        raise Wrong(f"not what the reference says: {', '.join(pieces)}")

    def live(self) -> None:
        """Play the session from beginning to end."""
        plan = self.mine.plan
        if plan.arrival == "closed":
            self.connect()
            try:
                self.mine.barrier.hold(self.channel.held, self.assignment.start_s)
            except TransportError:
                _logger.debug("session %d was lost while it was held", self.assignment.session)
        else:
            self.mine.barrier.hold(None, self.assignment.start_s)
            self.connect()
        # A connection lost while nothing is asked of it fails the next operation, and is recorded there.
        try:
            self.reset()
            for turn in range(plan.turns):
                self.think(turn)
                self.step(turn)
            self.score()
        except OperationFailed as e:
            if isinstance(e.__cause__, Refused):
                self.close()
            raise
        self.close()

    @task
    def play(self) -> None:
        """Take a session and play it; then this user is done, and locust does not start another."""
        player = gevent.getcurrent()
        share = EnvUser.share
        assignment = share.take(player) if share else None
        if share is None or assignment is None:
            raise StopUser
        self.mine, self.assignment, self.channel = share, assignment, share.channel(assignment)
        finished = False
        try:
            self.live()
            finished = True
        except OperationFailed:
            pass
        except Exception as e:
            _logger.exception("session %d", assignment.session)
            share.faulted(e)
        finally:
            held = self.channel.held
            self.channel.drop()
            share.over(player, held, succeeded=finished and self.right)
        raise StopUser


def judge(failure: BaseException | None, stopped_by: EndedBy | None) -> tuple[Status, str | None]:
    """Return the status of an operation and the text of its failure; equal causes give equal texts."""
    match failure:
        case None:
            return Status.OK, None
        case Wrong():
            return Status.WRONG, str(failure)
        case Timeout():
            return Status.TIMEOUT, str(failure)
        case Exception():
            return Status.ERROR, _failure_text(failure)
    # Only the end of the run kills a greenlet in the middle of an operation.
    if stopped_by == "time_limit":
        return Status.TIMEOUT, "no answer before the time limit of the run"
    return Status.ERROR, "the run was interrupted"


def _failure_text(failure: Exception) -> str:
    if isinstance(failure, Refused | TransportError):
        return str(failure)
    if isinstance(failure, ValueError):
        return f"the answer was not understood: {failure}"
    return f"{type(failure).__name__}: {failure}"


def _example(value: object) -> str:
    return (value if isinstance(value, str) else repr(value))[:EXAMPLE_CHARACTERS]


class SessionDispatcher(UsersDispatcher):
    """Give every worker one user per session of its share, at once, whatever number of users was asked for.

    The connect gate paces the ramp. Users that are done are not replaced, and workers that come late get none.
    """

    def __init__(self, worker_nodes: list[WorkerNode], user_classes: list[type[User]]) -> None:
        super().__init__(worker_nodes, user_classes)
        self.nodes = list(worker_nodes)
        self.plan_of_users: Iterator[dict[str, dict[str, int]]] = iter(())

    def new_dispatch(
        self, target_user_count: int, spawn_rate: float, user_classes: list[type[User]] | None = None
    ) -> None:
        """Begin a run, unless one is under way."""
        del target_user_count, spawn_rate, user_classes
        users = COMMAND.begin([node.id for node in self.nodes])
        self.plan_of_users = iter([{n.id: {EnvUser.__name__: users.get(n.id, 0)} for n in self.nodes}])

    def __next__(self) -> dict[str, dict[str, int]]:
        return next(self.plan_of_users)

    def add_worker(self, worker_node: WorkerNode) -> None:
        """Know a worker that came after the sessions were divided."""
        self.nodes.append(worker_node)

    def remove_worker(self, worker_node: WorkerNode) -> None:
        """Forget a worker; its sessions are not given to others."""
        self.nodes = [node for node in self.nodes if node.id != worker_node.id]


class Command:
    """The side that divides the sessions: the master, or the only process."""

    def __init__(self) -> None:
        self.environment: Environment
        self.runner: MasterRunner | LocalRunner
        self.plan: LoadPlan
        self.headless = False
        self.fleet: Fleet | None = None
        self.run = 0
        self.quitting = False

    def prepare(self, environment: Environment, runner: MasterRunner | LocalRunner) -> None:
        """Read the plan and listen to the workers.

        Raises:
            SystemExit: The plan cannot be carried out; one line says why.
        """
        options = environment.parsed_options
        if options is None or not options.rosetta_plan:
            raise SystemExit("rosetta: say which plan to carry out: --rosetta-plan FILE")
        try:
            self.plan = LoadPlan.read(Path(options.rosetta_plan))
            self.plan.out.mkdir(parents=True, exist_ok=True)
        except BadPlan as e:
            raise SystemExit(f"rosetta: {e}") from e
        except OSError as e:
            raise SystemExit(
                f"rosetta: the output folder {self.plan.out} cannot be made: {e.strerror}"
            ) from e
        self.environment, self.runner = environment, runner
        self.headless = bool(options.headless)
        options.num_users = options.spawn_rate = self.plan.sessions
        environment.dispatcher_class = SessionDispatcher
        if options.rosetta_lease is not None:
            gevent.spawn(_stop_in_order_on_eof, options.rosetta_lease)
        runner.register_message(PROGRESS, self._progressed)
        runner.register_message(HELD, self._held)
        runner.register_message(DONE, self._done)
        runner.register_message(CLOCK, self._say_time)

    def begin(self, names: list[str]) -> dict[str, int]:
        """Begin a run with the workers of these names, unless one is under way; return the users of each."""
        if self.fleet is None or (self.fleet.summary is not None and not self.headless):
            self.run += 1
            if isinstance(self.runner, MasterRunner):
                names = sorted(names, key=self.runner.get_worker_index)
            self.fleet = Fleet(
                self.plan,
                assign=self._assign,
                go=lambda: self._tell(GO),
                halt=lambda why: self._tell(STOP, why=why),
                heard=self._heard,
                ended=self._ended,
            )
            _stop_in_order_on_sigint()
            # A worker is called after its machine.
            self.fleet.begin(names, [name.rpartition("_")[0] for name in names])
        return self.fleet.users()

    def stop(self) -> None:
        """Make the run end now, and keep what was measured."""
        if self.fleet is not None:
            self.fleet.stop("interrupted")

    def quit(self) -> None:
        """End the run now, and return when it is written."""
        self.quitting = True
        if self.fleet is not None:
            self.fleet.stop("interrupted")
            self.fleet.join()

    def _tell(self, message: str, **data: object) -> None:
        self.runner.send_message(message, {"run": self.run, **data})

    def _assign(self, name: str, place: Place) -> None:
        data = {"run": self.run, "plan": self.plan.to_json(), "place": list(place)}
        self.runner.send_message(SHARE, data, client_id=name)

    def _heard(self) -> dict[str, bool]:
        if isinstance(self.runner, MasterRunner):
            return {node.id: node.state != STATE_MISSING for node in self.runner.clients.all}
        return {"local": True}

    def _current(self, msg: Any) -> Fleet | None:
        return self.fleet if msg.data["run"] == self.run else None

    def _progressed(self, msg: Any, **_: object) -> None:
        if fleet := self._current(msg):
            fleet.progressed(ShareProgress(*msg.data["progress"]))

    def _held(self, msg: Any, **_: object) -> None:
        if fleet := self._current(msg):
            fleet.held(msg.data["rank"])

    def _done(self, msg: Any, **_: object) -> None:
        if fleet := self._current(msg):
            fleet.finished(ShareSummary.model_validate_json(msg.data["summary"]))

    def _say_time(self, msg: Any, **_: object) -> None:
        # At once: what it takes to answer is the error of what the worker learns.
        answer = {"run": msg.data["run"], "asked_ns": msg.data["asked_ns"], "now_ns": time.perf_counter_ns()}
        self.runner.send_message(TIME, answer, client_id=msg.node_id)

    def _ended(self, summary: LoadSummary) -> None:
        if summary.failure is not None:
            sys.stderr.write(f"rosetta: {summary.failure}\n")
        interrupted = INTERRUPTED_EXIT_CODE if summary.ended_by == "interrupted" else 0
        self.environment.process_exit_code = 1 if summary.failure else interrupted
        if self.quitting:
            return
        if self.headless:
            self.runner.quit()
        else:
            self.runner.stop()


class Post:
    """The side that plays sessions: a worker, or the only process."""

    def __init__(self) -> None:
        self.environment: Environment
        self.runner: WorkerRunner | LocalRunner

    def prepare(self, environment: Environment, runner: WorkerRunner | LocalRunner) -> None:
        """Listen to the side that divides the sessions."""
        self.environment, self.runner = environment, runner
        runner.register_message(SHARE, self._take_share)
        runner.register_message(GO, self._go)
        runner.register_message(STOP, self._stop, concurrent=True)
        runner.register_message(TIME, self._hear_time)

    def stop(self) -> None:
        """End the sessions of this process now, and keep what was measured."""
        if EnvUser.share is not None:
            EnvUser.share.stop("interrupted")

    def _take_share(self, msg: Any, **_: object) -> None:
        run, place = msg.data["run"], Place(*msg.data["place"])

        def tell(message: str, **data: object) -> None:
            self.runner.send_message(message, {"run": run, **data})

        def end(summary: ShareSummary) -> None:
            self.environment.process_exit_code = 1 if summary.failure else 0
            tell(DONE, summary=summary.model_dump_json())

        self.stop()
        EnvUser.share = None
        sessions = 0
        try:
            plan = LoadPlan.parse(msg.data["plan"])
            sessions = len(plan.share(place.rank, place.of))
            wire = load_wire(plan.wire)
            share = Share(
                plan,
                place,
                wire,
                on_progress=lambda progress: tell(PROGRESS, progress=list(progress)),
                on_held=lambda: tell(HELD, rank=place.rank),
                on_end=end,
            )
            obstacle = share.obstacle()
        except (BadPlan, WireNotFound) as e:
            obstacle = str(e)
        except Exception as e:  # noqa: BLE001 - the wire is foreign code, and this is where it is first run
            obstacle = f"the wire protocol cannot write the calls of the plan: {type(e).__name__}: {e}"
        if obstacle is not None:
            end(ShareSummary(rank=place.rank, sessions=sessions, failure=obstacle))
            return
        EnvUser.share = share
        _stop_in_order_on_sigint()
        gevent.spawn(_ask_time, tell)
        share.begin()

    def _hear_time(self, msg: Any, **_: object) -> None:
        if EnvUser.share is not None:
            EnvUser.share.clock.hear(msg.data["asked_ns"], msg.data["now_ns"], time.perf_counter_ns())

    def _go(self, **_: object) -> None:
        if EnvUser.share is not None:
            EnvUser.share.go()

    def _stop(self, msg: Any, **_: object) -> None:
        if EnvUser.share is not None:
            EnvUser.share.stop(msg.data["why"])


def _ask_time(tell: Callable[..., None]) -> None:
    for _ in range(CLOCK_QUESTIONS):
        tell(CLOCK, asked_ns=time.perf_counter_ns())
        gevent.sleep(CLOCK_INTERVAL_S)


COMMAND = Command()
POST = Post()


def _stop_in_order_on_sigint() -> None:
    # Python would raise KeyboardInterrupt inside whatever session is running; locust ends in order on SIGTERM.
    gevent.signal_handler(signal.SIGINT, os.kill, os.getpid(), signal.SIGTERM)


def _stop_in_order_on_eof(descriptor: int) -> None:
    gevent.socket.wait_read(descriptor)
    os.kill(os.getpid(), signal.SIGTERM)


def _plan_file(text: str) -> str:
    try:
        LoadPlan.read(Path(text))
    except BadPlan as e:
        raise argparse.ArgumentTypeError(str(e)) from e
    return text


def _add_arguments(parser: Any, **_: object) -> None:
    parser.add_argument(
        "--rosetta-plan",
        metavar="FILE",
        type=_plan_file,
        env_var="ROSETTA_PLAN",
        include_in_web_ui=False,
        help="What to do: a plan in JSON, see bench/load/README.md. Workers get it from the master.",
    )
    parser.add_argument(
        "--rosetta-lease",
        metavar="FD",
        type=int,
        include_in_web_ui=False,
        help="Inherited pipe; the run is stopped when its other end closes, as it does when the caller dies.",
    )


def _prepare(environment: Environment, runner: Any, **_: object) -> None:
    if isinstance(runner, MasterRunner | LocalRunner):
        COMMAND.prepare(environment, runner)
    if isinstance(runner, WorkerRunner | LocalRunner):
        POST.prepare(environment, runner)
    # Listeners of this event are called last come, first served: ours comes before those that end the runner.
    _hooks.quitting.add_listener(_quit)


def _stop(**_: object) -> None:
    # Not waited for: locust may call this from the greenlet that receives what the workers send.
    COMMAND.stop()
    POST.stop()


def _quit(**_: object) -> None:
    COMMAND.quit()
    POST.stop()


_hooks.init_command_line_parser.add_listener(_add_arguments)
_hooks.init.add_listener(_prepare)
_hooks.test_stopping.add_listener(_stop)
