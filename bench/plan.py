"""Plans: how much a benchmark measures, from a smoke test to a full run."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from bench.arrival import Arrival
from bench.workloads import Workload

HELD = "held"
"""Our own method: sessions that are open at the same time."""
BURST_METHOD = "openenv-scaling"
"""The name under which the method of bursts was published."""
BURST_SIZES = (32, 128, 512, 2_048, 4_096, 8_192, 16_384)
"""The sizes of its grid."""


class Plan(BaseModel):
    """Say how much each part of a benchmark measures.

    Attributes:
        name: smoke, quick or full; `custom` when a value was changed.
        episodes: Episodes of the conformance run that comes first.
        latency_sessions: Sessions played one after the other for the latencies at one session.
        warmup_sessions: Sessions before them that are kept apart.
        latency_turns: Calls of each of those sessions.
        pairs: Interleaved pairs of the compiled and the hand-written environment; 0 leaves the comparison out.
        pair_sessions: Sessions of each side of a pair.
        cost_episodes: Episodes timed for the cost of the episode itself.
        held: What a session does while sessions are held open at the same time.
        start: Smallest number of sessions held.
        cap: Largest number of sessions held.
        tolerance: Relative width of the bracket in which the ceiling search stops.
        trials: Trials that each point of the bisection must pass.
        confirmations: Trials in fresh servers that the result must pass.
        scripts: How many different tasks are played.
        live: Numbers of episodes that are alive in one process, for frameworks that run there; none leaves them out.
        live_turns: How often each of them is stepped.
        live_steps: Steps that a number of episodes gets at least, in as many batches as it takes, where time allows.
        live_budget_s: Seconds that the batches of one number may take.
        rollouts: Whole rollouts that are taken at the same time along each path of a framework that has such paths.
        patience_s: How long a session under load waits for an answer before it gives up, in seconds.
        settle_s: How long a server has to free what a trial held, in seconds.
        arrival: Lets sessions arrive by themselves instead of searching how many can be held; none by default.
        arrival_s: For how many seconds they arrive; no more than `cap` of them.
        probe: Largest number of steps at the same time with which the width of the executor is looked for.
        cross_check: Sessions with which both load engines are compared; 0 leaves it out.
        burst: Sizes of the bursts of the published method, ascending; none by default.
        burst_trials: How often each is repeated.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    episodes: int = Field(ge=1)
    latency_sessions: int = Field(ge=1)
    warmup_sessions: int = Field(ge=0)
    latency_turns: int = Field(ge=1)
    pairs: int = Field(ge=0)
    pair_sessions: int = Field(ge=1)
    cost_episodes: int = Field(ge=200)
    held: Workload
    start: int = Field(ge=1)
    cap: int = Field(ge=1)
    tolerance: float = Field(gt=0)
    trials: int = Field(ge=1)
    confirmations: int = Field(ge=0)
    scripts: int = Field(ge=1)
    live: tuple[int, ...]
    live_turns: int = Field(ge=1)
    live_steps: int = Field(ge=1)
    live_budget_s: float = Field(gt=0)
    rollouts: int = Field(ge=0)
    patience_s: float = Field(gt=0, default=120.0)
    settle_s: float = Field(ge=0, default=15.0)
    arrival: Arrival | None = None
    arrival_s: float = Field(gt=0)
    probe: int = Field(ge=1)
    cross_check: int = Field(ge=0)
    burst: tuple[int, ...] = ()
    burst_trials: int = Field(ge=1, default=3)


_SECOND = 1_000_000_000

SMOKE = Plan(
    name="smoke",
    episodes=40,
    latency_sessions=30,
    warmup_sessions=3,
    latency_turns=5,
    # The fewest that give a ratio an interval.
    pairs=6,
    pair_sessions=4,
    cost_episodes=2_000,
    held=Workload(turns=2, tool_ns=_SECOND // 5, tool_kind="async", spread_ns=_SECOND // 5),
    start=8,
    cap=64,
    tolerance=1.0,
    trials=1,
    confirmations=0,
    scripts=8,
    live=(1, 10, 100),
    live_turns=2,
    live_steps=100,
    live_budget_s=4.0,
    rollouts=0,
    arrival_s=4.0,
    probe=4,
    cross_check=8,
)
QUICK = Plan(
    name="quick",
    episodes=200,
    latency_sessions=320,
    warmup_sessions=10,
    latency_turns=5,
    pairs=30,
    pair_sessions=6,
    cost_episodes=10_000,
    held=Workload(turns=3, tool_ns=_SECOND // 2, tool_kind="async", spread_ns=_SECOND // 2),
    start=8,
    cap=4_096,
    tolerance=0.25,
    trials=1,
    confirmations=1,
    scripts=32,
    live=(1, 10, 100, 1_000, 10_000, 100_000),
    live_turns=2,
    live_steps=2_000,
    live_budget_s=20.0,
    rollouts=3,
    arrival_s=30.0,
    probe=64,
    cross_check=32,
)
FULL = Plan(
    name="full",
    episodes=1_000,
    latency_sessions=3_000,
    warmup_sessions=50,
    latency_turns=5,
    pairs=100,
    pair_sessions=10,
    cost_episodes=40_000,
    held=Workload(turns=5, tool_ns=_SECOND, tool_kind="async", spread_ns=_SECOND),
    start=8,
    cap=16_384,
    tolerance=0.10,
    trials=3,
    confirmations=5,
    scripts=64,
    live=(1, 10, 100, 1_000, 10_000, 100_000),
    live_turns=4,
    live_steps=20_000,
    live_budget_s=600.0,
    rollouts=8,
    arrival_s=120.0,
    probe=256,
    cross_check=64,
)
PLANS = {plan.name: plan for plan in (SMOKE, QUICK, FULL)}
