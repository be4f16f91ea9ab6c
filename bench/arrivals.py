"""Open arrivals: sessions come at a rate, whatever became of those before, and every one plays its episode.

Two times are kept of every operation. Service time runs from sending. Response time runs from when the schedule meant to
send: a session's arrival for its connect, and for its steps the episode model, with `think` between an answer and the
next step. A server that stalls makes few operations slow by the first clock and many late by the second.
"""

from __future__ import annotations

from bench.ceiling import evaluate
from bench.machine import preflight
from bench.recording import Recording
from bench.records import Note
from bench.server import start_server
from bench.trials import Played, play_trial


async def play_arrivals(recording: Recording) -> Played | None:
    """Let sessions arrive at a server as the plan says, and judge the response times by the limits of a ceiling.

    Does nothing for frameworks that run in process.

    Raises:
        WorkerError: The load generator broke down, or the server cannot be started.
        ValueError: The plan has no arrival.
    """
    request, plan = recording.request, recording.plan
    if request.stack.facts.kind != "server":
        return None
    if plan.arrival is None:
        raise ValueError("the plan lets no sessions arrive by themselves")
    wanted = max(1, round(plan.arrival.rate_per_s * plan.arrival_s))
    sessions = min(plan.cap, wanted)
    if sessions < wanted:
        recording.writer.write(
            Note(
                text=f"Sessions arrive for {plan.arrival_s:g} s in this plan, which makes {wanted:,}, and it lets no more than "
                f"{sessions:,} arrive: they came within {plan.arrival.times_s(sessions)[-1]:.1f} s. Raise --sessions for all of them."
            )
        )
    # The arrivals say when each begins; nothing is spread beside them.
    workload = plan.held.model_copy(update={"spread_ns": 0})
    for obstacle in preflight(sessions):
        recording.writer.write(Note(text=obstacle.sentence))
    async with start_server(
        request.stack, request.environment, client=recording.driver, workload=workload
    ) as server:
        played = await play_trial(
            recording,
            server,
            f"open-{sessions:05d}-00",
            sessions=sessions,
            workload=workload,
            part=f"{plan.arrival.rate_per_s:g} sessions arriving per second",
            arrival=plan.arrival,
        )
    recording.writer.write(evaluate(played.trial))
    return played
