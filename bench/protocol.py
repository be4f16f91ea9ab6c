"""The messages between the harness and a worker: one JSON object per line, requests answered by `seq`.

The harness lives in one virtual environment and every framework in another; this is where they meet. Requests may be
under way side by side, and replies come in any order. Unknown fields are an error on both sides, so that a harness and a
worker of different versions notice each other.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from bench.workloads import Workload
from canonical.server_settings import ServerSettings

PROTOCOL = 2
"""Raised when a message changes its meaning or its fields."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    seq: int
    """Pairs a reply with its request."""


class Start(_Message):
    """Ask who the worker is; always the first request."""

    type: Literal["start"] = "start"
    protocol: int


class Started(_Message):
    """Say which adapter, framework and interpreter the worker runs, and what they support."""

    type: Literal["started"] = "started"
    protocol: int
    adapter: str
    packages: dict[str, str]
    python: str
    features: dict[str, dict[str, str]]


class Connect(_Message):
    """Open a session: to the server at `url`, or in process when there is none."""

    type: Literal["connect"] = "connect"
    session: str
    environment: str
    url: str | None = None
    workload: Workload | None = None


class Connected(_Message):
    """Say that the session exists."""

    type: Literal["connected"] = "connected"


class Open(_Message):
    """Start an episode in a session."""

    type: Literal["open"] = "open"
    session: str
    task: str
    seed: int


class OpenAt(_Message):
    """Start an episode of the task at a place of a split; without an index, the seed decides the place."""

    type: Literal["open_at"] = "open_at"
    session: str
    split: str
    index: int | None
    seed: int


class Opened(_Message):
    """Say what the new episode shows."""

    type: Literal["opened"] = "opened"
    prompt: list[Any]
    tools: list[Any]


class Step(_Message):
    """Carry out an action, text or a call, in a session.

    Actions and answers are not checked here: text may hold lone surrogates, which pydantic refuses and frameworks meet.
    """

    type: Literal["step"] = "step"
    session: str
    action: Any


class Stepped(_Message):
    """Say what the action led to."""

    type: Literal["stepped"] = "stepped"
    result: dict[str, Any]


class Expose(_Message):
    """Ask for whatever else a client can read about the episode of a session."""

    type: Literal["expose"] = "expose"
    session: str


class Exposed(_Message):
    """Carry the framework's own state, metadata and info of an episode."""

    type: Literal["exposed"] = "exposed"
    value: Any


class Report(_Message):
    """Ask for the return of the finished episode of a session, under the framework's own reading of reward."""

    type: Literal["report"] = "report"
    session: str


class Reported(_Message):
    """Say what a trainer of the framework reads as the return."""

    type: Literal["reported"] = "reported"
    value: float


class Close(_Message):
    """Free a session."""

    type: Literal["close"] = "close"
    session: str


class Closed(_Message):
    """Say that the session is gone."""

    type: Literal["closed"] = "closed"


class Abandon(_Message):
    """Leave a session as a client does that is stopped: its call is cut off in the middle, and nothing is closed politely."""

    type: Literal["abandon"] = "abandon"
    session: str
    action: Any


class Abandoned(_Message):
    """Say that the client holds nothing of the session any more."""

    type: Literal["abandoned"] = "abandoned"


class Store(_Message):
    """Keep the episode of a session as it is now, under a name, in the framework's own form, until the session is closed."""

    type: Literal["store"] = "store"
    session: str
    snapshot: str


class Stored(_Message):
    """Say that the episode is kept."""

    type: Literal["stored"] = "stored"


class Restore(_Message):
    """Let a session go on from what it has stored under a name."""

    type: Literal["restore"] = "restore"
    session: str
    snapshot: str


class Restored(_Message):
    """Say that the session goes on from there."""

    type: Literal["restored"] = "restored"


class Fork(_Message):
    """Make a session, under a name of its own, that goes on from where another one is."""

    type: Literal["fork"] = "fork"
    session: str
    fork: str


class Forked(_Message):
    """Say that the fork exists."""

    type: Literal["forked"] = "forked"


class Reread(_Message):
    """Have everything read again that the framework shows of an episode in other places."""

    type: Literal["reread"] = "reread"
    session: str


class Alike(_Message):
    """Say that it is the same there."""

    type: Literal["alike"] = "alike"


class ListTasks(_Message):
    """Ask for the tasks of a split, as the framework shows them to its users."""

    type: Literal["list_tasks"] = "list_tasks"
    environment: str
    url: str | None = None
    split: str


class Listed(_Message):
    """Carry the ids of the tasks of a split, in order."""

    type: Literal["listed"] = "listed"
    tasks: list[str]


class Serve(_Message):
    """Serve an environment with the framework's own server; port 0 picks a free one.

    `session_ttl_s` is after how many idle seconds the server shall free a session, where that can be set at all;
    `settings` is what else is to differ from the defaults.
    """

    type: Literal["serve"] = "serve"
    environment: str
    workload: Workload | None = None
    host: str = "127.0.0.1"
    port: int = 0
    session_ttl_s: float | None = None
    settings: ServerSettings | None = None


class Serving(_Message):
    """Say where the environment is served, and with which settings."""

    type: Literal["serving"] = "serving"
    url: str | None = None
    settings: dict[str, Any]


class Shut(_Message):
    """Ask that what is served lets no new session begin; those that are open go on."""

    type: Literal["shut"] = "shut"


class Closing(_Message):
    """Say that no new session begins any more."""

    type: Literal["closing"] = "closing"


class Observe(_Message):
    """Ask for the worker's own use of the machine; with `collect`, after everything unreachable has been freed."""

    type: Literal["observe"] = "observe"
    collect: bool = False


class Observed(_Message):
    """Say what the worker's process uses right now.

    `loop_lag_p99_ns` is how late the event loop was in the worst hundredth of its 10 ms ticks since the last question;
    it is absent when there was no tick. `most_sessions` is how many sessions were open at most, at those ticks and now;
    `most_rss_bytes` is the most memory, at some of them and now.
    `uss_bytes` is the memory that the process shares with nobody; it is only there
    after a collection, and where the system tells it.
    """

    type: Literal["observed"] = "observed"
    rss_bytes: int
    most_rss_bytes: int | None = None
    uss_bytes: int | None = None
    cpu_ns: int
    threads: int
    fds: int
    open_sessions: int
    most_sessions: int | None = None
    loop_lag_p99_ns: int | None = None


class Expected(BaseModel):
    """Hold what the reference answered to one action of a script.

    `total` is the return of an episode that is left after this action; it is only there where it is known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str
    reward: float
    ended: bool
    total: float | None = None


class Script(BaseModel):
    """Hold the actions that a load session plays on one task, and what each must lead to when that is to be checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    seed: int
    calls: list[Any]
    expected: list[Expected] | None = None


class Load(_Message):
    """Play scripts in many sessions with the framework's own client, and measure every operation where it happens.

    `sessions` episodes are played, at most `concurrency` at a time. They are numbered from `first` on; session i plays
    script i modulo their number. The first `warmup` of them are marked as such.
    """

    type: Literal["load"] = "load"
    environment: str
    url: str | None = None
    workload: Workload
    sessions: int = Field(ge=1)
    first: int = Field(ge=0, default=0)
    concurrency: int = Field(ge=1)
    warmup: int = Field(ge=0, default=0)
    scripts: list[Script] = Field(min_length=1)
    timeout_s: float = Field(gt=0)


class Samples(_Message):
    """Carry measured operations while a load runs: a dump of `bench.samples.SampleColumns` in base 64."""

    type: Literal["samples"] = "samples"
    dump: str


class Loaded(_Message):
    """Say that the load is over: how many sessions were opened, and how many did everything right."""

    type: Literal["loaded"] = "loaded"
    opened: int
    succeeded: int
    peak_open: int
    wall_ns: int


class Cost(_Message):
    """Measure what the episode itself costs, without any framework around it."""

    type: Literal["cost"] = "cost"
    environment: str
    episodes: int = Field(ge=1)


class Costed(_Message):
    """Carry the raw measurements: ns per step through the episode, ns per bare tool call, bytes per live episode."""

    type: Literal["costed"] = "costed"
    step_ns: list[float]
    bare_ns: list[float]
    live_bytes: list[float]


class ListWays(_Message):
    """Ask in which ways the adapter steps many episodes of this process, takes whole rollouts, and serves."""

    type: Literal["list_ways"] = "list_ways"


class Way(BaseModel):
    """Hold one way: what it is in the framework, and for how many episodes it is meant at the most."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    note: str
    most: int | None = None


class Ways(_Message):
    """Carry the ways by name, each kind in the adapter's order; of serving, those that differ from the default."""

    type: Literal["ways"] = "ways"
    executors: dict[str, Way]
    rollouts: dict[str, Way]
    settings: dict[str, ServerSettings]


class StepTogether(_Message):
    """Make `sessions` episodes, step all of them once for each call of a script, and close them; `batches` times.

    Session i plays script i modulo their number; all scripts have as many calls.
    """

    type: Literal["step_together"] = "step_together"
    environment: str
    executor: str
    sessions: int = Field(ge=1)
    batches: int = Field(ge=1)
    scripts: list[Script] = Field(min_length=1)


class SteppedTogether(_Message):
    """Carry what was measured: wall time per step of every round, and sums over all batches of the other times, in ns.

    `uss_open_bytes` is the memory that the process shares with nobody while the first batch is open.
    """

    type: Literal["stepped_together"] = "stepped_together"
    step_ns: list[float]
    step_cpu_ns: int
    open_ns: int
    close_ns: int
    wrong: int
    first_wrong: str | None = None
    uss_open_bytes: int | None = None
    threads: int


class RollOut(_Message):
    """Take whole rollouts along one of the framework's paths, all at the same time, with a scripted model."""

    type: Literal["roll_out"] = "roll_out"
    environment: str
    path: str
    rollouts: int = Field(ge=1)
    scripts: list[Script] = Field(min_length=1)


class RolledOut(_Message):
    """Carry what all rollouts took together: wall and CPU time of the process and its children, memory, processes."""

    type: Literal["rolled_out"] = "rolled_out"
    wall_ns: int
    cpu_ns: int
    succeeded: int
    first_wrong: str | None = None
    growth_bytes: int | None = None
    processes: int


class Inspect(_Message):
    """Ask for what dotted names are in this stack: `module:name`, or a module alone."""

    type: Literal["inspect"] = "inspect"
    names: list[str] = Field(min_length=1)


class Inspection(BaseModel):
    """Hold what a name is; with `missing`, why it does not resolve, and nothing else.

    `file` is relative to the folder that the distribution is installed in.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    missing: str | None = None
    what: Literal["class", "function", "property", "field", "module", "value"] | None = None
    signature: str | None = None
    distribution: str | None = None
    version: str | None = None
    file: str | None = None
    line: int | None = None


class Inspected(_Message):
    """Carry what was found, in the order of the question."""

    type: Literal["inspected"] = "inspected"
    symbols: list[Inspection]


class ShowTrouble(_Message):
    """Ask for what a trouble, which the adapter names, looks like in this stack."""

    type: Literal["show_trouble"] = "show_trouble"
    name: str


class TroubleShown(_Message):
    """Say what was tried, what came of it, and whether the release has the trouble."""

    type: Literal["trouble_shown"] = "trouble_shown"
    sent: str
    seen: str
    is_there: bool


class Failed(_Message):
    """Say that a request could not be carried out.

    `kind` is `session` when the framework refused or failed, `request` when the request was wrong, `unsupported` when the
    adapter does not offer what was asked, `os` when the machine refused (a port in use), `absent` when a package is
    missing, and `crash` for anything unexpected.
    """

    type: Literal["failed"] = "failed"
    kind: Literal["session", "request", "unsupported", "os", "absent", "crash"]
    reason: str


Request = Annotated[
    Start
    | Connect
    | Open
    | OpenAt
    | Step
    | Expose
    | Report
    | Close
    | Abandon
    | Store
    | Restore
    | Fork
    | Reread
    | ListTasks
    | Serve
    | Shut
    | Observe
    | Load
    | Cost
    | ListWays
    | StepTogether
    | RollOut
    | Inspect
    | ShowTrouble,
    Field(discriminator="type"),
]
Reply = Annotated[
    Started
    | Connected
    | Opened
    | Stepped
    | Exposed
    | Reported
    | Closed
    | Abandoned
    | Stored
    | Restored
    | Forked
    | Alike
    | Listed
    | Serving
    | Closing
    | Observed
    | Samples
    | Loaded
    | Costed
    | Ways
    | SteppedTogether
    | RolledOut
    | Inspected
    | TroubleShown
    | Failed,
    Field(discriminator="type"),
]

REQUESTS: TypeAdapter[Request] = TypeAdapter(Request)
REPLIES: TypeAdapter[Reply] = TypeAdapter(Reply)
