"""The load engine as locust runs it: one user per session, one plan for all of them.

    locust -f bench/load/locustfile.py --rosetta-plan plan.json --headless

The README beside this file tells about plans and about several workers. What a run does comes from its plan; of
locust's own options the number of users, the spawn rate and the host have no say. Locust's statistics are the live
display, and every operation is also kept as a raw sample.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import gevent
import gevent.socket
from locust import User, events, task
from locust.dispatch import UsersDispatcher
from locust.exception import StopUser
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner, WorkerRunner

from bench.load.fleet import Fleet
from bench.load.plan import BadPlan, Call, LoadPlan
from bench.load.share import Assignment, Place, Share, ShareProgress
from bench.load.summary import Difference, EndedBy, LoadSummary, ShareSummary, WrongReply
from bench.load.websocket import Connection, ConnectionLost, Timeout, Unreachable, WebSocketError
from bench.load.wire import WireNotFound, load_wire
from bench.samples import Phase, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from locust.env import Environment
    from locust.runners import WorkerNode

    from bench.load.barrier import Held
    from bench.load.wire import Reply

T = TypeVar("T")

INTERRUPTED_EXIT_CODE = 130
EXAMPLE_CHARACTERS = 2000

SHARE, GO, STOP = "rosetta-share", "rosetta-go", "rosetta-stop"
"""What workers are told."""
PROGRESS, HELD, DONE = "rosetta-progress", "rosetta-held", "rosetta-done"
"""What workers tell."""

_logger = logging.getLogger(__name__)
_hooks: Any = events


class OperationFailed(Exception):  # noqa: N818 - what happened, read as a sentence
    """End a session after a failed operation, which has been recorded."""


class Refused(Exception):  # noqa: N818
    """Carry the error that the framework's protocol answered with."""


class Wrong(Exception):  # noqa: N818
    """Say which pieces of a reply differ from the reference."""


class EnvUser(User):
    """Play one session: connect, wait at the barrier, reset, step, close. Transports subclass it."""

    abstract = True
    transport: ClassVar[str]
    share: ClassVar[Share | None] = None
    """The share of this process, set before the first user starts."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.seq = 0
        self.right = True
        self.mine: Share
        self.assignment: Assignment

    @property
    def connection(self) -> Held | None:
        """Return what is held open, if it is."""
        raise NotImplementedError

    def open(self) -> None:
        """Establish the session's connection."""
        raise NotImplementedError

    def exchange(self, frame: str) -> str:
        """Send a frame and return the answer."""
        raise NotImplementedError

    def end(self, frame: str | None) -> None:
        """End the session, with the frame that asks for it if the protocol has one, and wait until it has ended."""
        raise NotImplementedError

    def rest(self, seconds: float) -> None:
        """Do nothing for a while, but keep the connection alive."""
        raise NotImplementedError

    def drop(self) -> None:
        """Let go of the connection without a word; harmless when there is none."""
        raise NotImplementedError

    def op(
        self,
        phase: Phase,
        act: Callable[[], T],
        check: Callable[[T], None] | None = None,
        *,
        warmup: bool = False,
    ) -> None:
        """Do one operation and keep its sample; the time is that of `act`, not of the check.

        Raises:
            OperationFailed: The operation failed. A wrong answer is recorded, and the session goes on.
        """
        failure: BaseException | None = None
        end = 0
        start = time.perf_counter_ns()
        try:
            answer = act()
            end = time.perf_counter_ns()
            if check is not None:
                check(answer)
        except BaseException as e:  # noqa: BLE001 - recorded here, and raised again below
            failure = e
        end = end or time.perf_counter_ns()
        status, error = judge(failure, self.mine.stopped_by)
        self.mine.record(
            self.assignment.session,
            self.seq,
            phase,
            warmup=warmup,
            span_ns=(start, end),
            status=status,
            error=error,
        )
        self.seq += 1
        self.environment.events.request.fire(
            request_type=self.transport,
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
        """Open the connection, with no more than the plan's number of handshakes in flight in this process."""
        with self.mine.gate:
            try:
                self.op(Phase.CONNECT, self.open)
            except OperationFailed as e:
                self.mine.failed(reached=not isinstance(e.__cause__, Unreachable | Timeout))
                raise
        if self.connection is not None:
            self.mine.opened(self.connection)

    def reset(self) -> None:
        """Open the episode of this session's task."""
        wire, session, script = self.mine.wire, self.assignment.session, self.assignment.script
        frame = wire.reset(script.task, session if script.seed is None else script.seed)
        expected = Call(name="", text=script.prompt)
        self.op(
            Phase.RESET,
            lambda: self.exchange(frame),
            lambda answer: self.check(wire.read_reset(answer), expected),
        )

    def step(self, turn: int) -> None:
        """Make the call of a turn."""
        wire, plan = self.mine.wire, self.mine.plan
        frame, expected = self.assignment.frames[turn], self.assignment.script.calls[turn]
        self.op(
            Phase.STEP,
            lambda: self.exchange(frame),
            lambda answer: self.check(wire.read_step(answer), expected, turn),
            warmup=turn < plan.warmup_turns,
        )
        self.mine.stepped()

    def close(self) -> None:
        """End the session."""
        frame = self.mine.wire.close()
        self.op(Phase.CLOSE, lambda: self.end(frame))

    def check(self, reply: Reply, expected: Call, turn: int | None = None) -> None:
        """Compare a reply with the reference.

        Raises:
            Refused: The protocol reports a failure.
            Wrong: A piece differs.
        """
        if reply.error is not None:
            raise Refused(reply.error)
        wanted = (("text", expected.text), ("reward", expected.reward), ("ended", expected.ended))
        pieces = [name for name, value in wanted if value is not None and value != getattr(reply, name)]
        if not pieces:
            return
        differences = [
            Difference(
                piece=name, expected=_example(getattr(expected, name)), got=_example(getattr(reply, name))
            )
            for name in pieces
        ]
        example = {"task": self.assignment.script.task, "turn": turn, "differences": differences}
        self.mine.differed(WrongReply.model_validate({"session": self.assignment.session, **example}))
        raise Wrong(f"not what the reference says: {', '.join(pieces)}")

    def live(self) -> None:
        """Play the session from beginning to end."""
        plan = self.mine.plan
        self.connect()
        try:
            if self.connection is not None:
                self.mine.barrier.hold(self.connection, plan.start_s(self.assignment.session))
        except WebSocketError:
            _logger.debug("session %d was lost while it was held", self.assignment.session)
        # A connection lost while nothing is asked of it fails the next operation, and is recorded there.
        try:
            self.reset()
            for turn in range(plan.turns):
                self.rest(plan.think_s)
                self.step(turn)
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
        self.mine, self.assignment = share, assignment
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
            connection = self.connection
            self.drop()
            share.over(player, connection, succeeded=finished and self.right)
        raise StopUser


class WebSocketUser(EnvUser):
    """Play a session over a WebSocket of its own."""

    transport = "websocket"

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._socket: Connection | None = None

    @property
    def connection(self) -> Connection | None:
        """Return the WebSocket."""
        return self._socket

    def open(self) -> None:
        """Connect and shake hands."""
        plan, endpoint = self.mine.plan, self.assignment.endpoint
        self._socket = Connection.open(
            endpoint.address,
            endpoint.port,
            self.mine.wire.path,
            host=plan.host,
            query=plan.query,
            timeout=plan.connect_timeout_s,
        )

    def exchange(self, frame: str) -> str:
        """Send a text message and wait for the next one."""
        socket, patience = self._opened(), self.mine.plan.reply_timeout_s
        try:
            socket.send(frame, timeout=patience)
        except ConnectionLost:
            # A server that hangs up may have said why; that is the answer then.
            if not socket.pending:
                raise
        return socket.receive(timeout=patience)

    def end(self, frame: str | None) -> None:
        """Ask the server to close, or close from this side; either way by a closing handshake."""
        socket, patience = self._opened(), self.mine.plan.close_timeout_s
        if frame is None:
            socket.close(timeout=patience)
            return
        try:
            socket.send(frame, timeout=patience)
            socket.wait_closed(timeout=patience)
        except ConnectionLost as e:
            # A server that closed properly before it was asked to has ended the session all the same.
            if not e.clean:
                raise

    def rest(self, seconds: float) -> None:
        """Wait, answering pings."""
        socket = self._opened()
        if seconds > 0 and not socket.lost:
            try:
                socket.idle(seconds)
            except WebSocketError:
                _logger.debug("session %d was lost while it rested", self.assignment.session)

    def drop(self) -> None:
        """Close the TCP connection."""
        if self._socket is not None:
            self._socket.abort()

    def _opened(self) -> Connection:
        if self._socket is None:
            raise AssertionError("an operation before the connection")
        return self._socket


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
    if isinstance(failure, Refused | WebSocketError):
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
        self.plan_of_users = iter([{n.id: {WebSocketUser.__name__: users.get(n.id, 0)} for n in self.nodes}])

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
            if wire.transport != "websocket":
                raise WireNotFound(f"no user speaks the transport {wire.transport!r} of {plan.wire}")  # noqa: TRY301
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
        share.begin()

    def _go(self, **_: object) -> None:
        if EnvUser.share is not None:
            EnvUser.share.go()

    def _stop(self, msg: Any, **_: object) -> None:
        if EnvUser.share is not None:
            EnvUser.share.stop(msg.data["why"])


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
