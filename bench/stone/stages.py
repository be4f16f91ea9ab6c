"""The five stages: what each package has for them, and what it has nothing for.

Symbols are resolved. What is said not to be there is searched for among the names of all classes and functions that the
distribution defines.
"""

from __future__ import annotations

from bench.facts import Evidence, Fact, Probe
from bench.stacks import ROOT, Stack
from bench.stone.asking import Release, ask
from bench.stone.places import NoSuchPlace, code_of
from bench.stone.subject import UnresolvedSymbols, fact_of, symbol_of
from canonical.landscape import Stage, StageName, read_landscape

TABLE = "stages"


def gather_stages(stack: Stack) -> list[Fact]:
    """Return one fact per stage; the stack must be ready.

    Raises:
        UnresolvedSymbols: A symbol is not in the release.
        NoSuchPlace: Something is there that is said not to be.
        StackError: The stack is not ready, or does not answer.
    """
    stages = read_landscape(stack.features_file.parent).stages
    if not stages:
        return []
    said = [stages[name] for name in StageName if name in stages]
    names = dict.fromkeys(symbol for stage in said for symbol in stage.symbols)
    searched = dict.fromkeys(stage.without for stage in said if stage.without)
    release = ask(stack, names=list(names), definitions=list(searched))
    missing = [name for name, one in release.names.items() if one.missing is not None]
    if missing:
        raise UnresolvedSymbols(f"{stack.label} does not have: {', '.join(missing)}")
    return [_fact(stack, name, stages[name], release) for name in StageName if name in stages]


def _fact(stack: Stack, name: StageName, stage: Stage, release: Release) -> Fact:
    evidence: list[Evidence] = [symbol_of(release.names[symbol]) for symbol in stage.symbols]
    if stage.without:
        found = release.definitions[stage.without]
        if found:
            raise NoSuchPlace(f"{stack.label} defines {found[0]}, and its landscape says: {stage.lacks}")
        evidence.append(_searched(stack, stage))
    lacking = f"; {stage.lacks}" if stage.lacks else ""
    return fact_of(
        stack, TABLE, name, f"{stage.level}: {stage.how}{lacking}", "introspected", evidence,
        {"level": stage.level, "symbols": list(stage.symbols)},
    )  # fmt: skip


def _searched(stack: Stack, stage: Stage) -> Probe:
    place = code_of(ROOT / "bench" / "worker" / "answers.py", "find_definitions")
    return Probe(
        name="definitions",
        sent=f"names of classes and functions that match {stage.without}, in {stack.release.label}",
        seen="none",
        file=place.file,
        line=place.first,
        function=place.name,
    )
