"""A fleet's limits follow from its sessions, every proxy's configuration keeps sessions whole, and folders can be deployed."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bench.machine import RESERVED_DESCRIPTORS
from bench.serving import deploy
from bench.serving.deploy import Deployment, write_deployment
from bench.serving.fleet import check_port, free_port, plan_fleet
from bench.serving.plan import LARGEST_BUFFER, MARK, SMALLEST_BUFFER, FleetPlan, Replica, read_affinity
from bench.serving.proxies import ProxyError, find_binary, load_proxy, proxy_names
from bench.serving.running import validate, write_configuration
from bench.stacks import adapter_names, find_stack

AFFINITIES = ("none", "header:x-session-id", "cookie")
SERVERS = [name for name in adapter_names() if find_stack(name).facts.kind == "server"]


def plan_of(
    fact: str, *, target: int = 16_384, count: int = 3, nofile: int = 20_000, cores: int = 2
) -> FleetPlan:
    affinity, header = read_affinity(fact)
    replicas = tuple(Replica(name=f"r{n}", host="127.0.0.1", port=9000 + n) for n in range(1, count + 1))
    return FleetPlan(
        port=8000, replicas=replicas, affinity=affinity, header=header, health="/health",
        target_sessions=target, nofile=nofile, cores=cores,
    )  # fmt: skip


def configuration(name: str, plan: FleetPlan, variant: str = "derived") -> str:
    files = load_proxy(name).render(plan, Path("/run/proxy"), variant)
    return next(iter(files.values()))


plans = st.builds(
    plan_of,
    st.sampled_from(AFFINITIES),
    target=st.integers(1, 200_000),
    count=st.integers(1, 12),
    nofile=st.integers(1024, 200_000),
    cores=st.integers(1, 64),
)


@given(plans)
def test_every_limit_lets_the_target_through_and_the_processes_have_the_descriptors(plan: FleetPlan) -> None:
    assert plan.limit >= plan.target_sessions
    assert plan.processes * plan.process_limit >= plan.target_sessions
    assert 2 * plan.process_limit + RESERVED_DESCRIPTORS <= plan.nofile


@given(plans)
def test_buffers_are_a_power_of_two_within_their_bounds(plan: FleetPlan) -> None:
    assert SMALLEST_BUFFER <= plan.buffer_bytes <= LARGEST_BUFFER
    assert plan.buffer_bytes & (plan.buffer_bytes - 1) == 0


def test_sixteen_thousand_sessions_at_twenty_thousand_descriptors_take_two_proxy_processes() -> None:
    assert plan_of("none", target=16_384, nofile=20_000).processes == 2
    assert plan_of("none", target=16_384, nofile=65_536).processes == 1


def test_replicas_that_cannot_hold_the_target_are_named_with_the_way_out() -> None:
    (sentence,) = plan_of("none", target=60_000, count=2).shortages()
    assert "30,000 sessions" in sentence
    assert "4 replicas" in sentence


def test_a_plan_with_two_replicas_of_one_name_is_refused() -> None:
    with pytest.raises(ValidationError, match="same name"):
        FleetPlan(port=1, replicas=(Replica(name="r1", host="a", port=1),) * 2, affinity="none")


@pytest.mark.parametrize("framework", SERVERS)
def test_every_framework_that_serves_says_what_binds_a_session_together(framework: str) -> None:
    stack = find_stack(framework)
    replicas = (Replica(name="r1", host="127.0.0.1", port=9001),)
    plan = plan_fleet(stack, replicas, host="127.0.0.1", port=8000, target_sessions=100)
    assert plan.affinity == (stack.facts.affinity or "").partition(":")[0]


def test_a_framework_that_does_not_say_it_is_refused_in_words() -> None:
    stack = find_stack(next(name for name in adapter_names() if name not in SERVERS))
    with pytest.raises(ProxyError, match="'affinity'"):
        plan_fleet(stack, plan_of("none").replicas, host="127.0.0.1", port=8000, target_sessions=100)


@pytest.mark.parametrize("fact", AFFINITIES)
@pytest.mark.parametrize("name", proxy_names())
def test_a_configuration_names_every_replica_and_where_it_listens(name: str, fact: str) -> None:
    for variant in ("default", "derived"):
        text = configuration(name, plan_of(fact), variant)
        everything = "".join(load_proxy(name).render(plan_of(fact), Path("/run/proxy"), variant).values())
        for replica in plan_of(fact).replicas:
            assert re.search(rf"127\.0\.0\.1\W+(port_value: )?{replica.port}\b", everything)
        assert "8000" in text


@pytest.mark.parametrize("name", proxy_names())
def test_every_answer_bears_the_replicas_cookie_where_clients_keep_the_last_cookies_only(name: str) -> None:
    text = configuration(name, plan_of("cookie"))
    written = [
        line for line in text.splitlines() if "set-cookie" in line.lower() or f'"{MARK}=$replica' in line
    ]
    assert written
    for replica in plan_of("cookie").replicas:
        assert f"replica-{replica.name}" in text
    assert MARK not in configuration(name, plan_of("none"))


@pytest.mark.parametrize("name", proxy_names())
def test_a_ring_of_hashes_never_changes(name: str) -> None:
    """A replica that is taken out and put back would take over sessions that others began in the meantime."""
    text = configuration(name, plan_of("header:x-session-id"))
    code = "\n".join(line for line in text.splitlines() if not line.strip().startswith("#"))
    assert "x-session-id" in code or "x_session_id" in code
    assert "health_checks" not in code
    assert not re.search(r"\bcheck inter\b", code)
    assert "max_fails=1" not in code


def test_envoy_keeps_none_of_the_breakers_that_stop_at_1024() -> None:
    plan = plan_of("none", target=4_000)
    clusters = yaml.safe_load(configuration("envoy", plan))["static_resources"]["clusters"]
    (threshold,) = clusters[0]["circuit_breakers"]["thresholds"]
    for breaker in ("max_connections", "max_pending_requests", "max_requests", "max_retries"):
        assert threshold[breaker] >= 4_000
    (plain,) = yaml.safe_load(configuration("envoy", plan, "default"))["static_resources"]["clusters"]
    assert "circuit_breakers" not in plain


def test_nginx_has_two_connections_for_every_session() -> None:
    text = configuration("nginx", plan_of("none", target=8_000, cores=2))
    workers = int(re.search(r"worker_processes (\d+);", text)[1])
    connections = int(re.search(r"worker_connections (\d+);", text)[1])
    assert workers * connections >= 2 * 8_000


def test_haproxy_lets_the_target_through() -> None:
    text = configuration("haproxy", plan_of("none", target=8_000))
    assert all(int(found) >= 8_000 for found in re.findall(r"maxconn (\d+)", text))


def test_an_unknown_proxy_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(ProxyError, match="envoy, haproxy, nginx"):
        load_proxy("traefik")


@pytest.mark.parametrize("name", proxy_names())
def test_a_missing_proxy_is_one_line_that_says_how_to_get_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = load_proxy(name)
    monkeypatch.setattr(type(proxy), "find", lambda _self: None)
    with pytest.raises(ProxyError) as refused:
        find_binary(proxy)
    assert proxy.how_to_get in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_port_that_somebody_has_is_refused_although_proxies_would_share_it() -> None:
    port = free_port("127.0.0.1")
    check_port("127.0.0.1", port)
    server = asyncio.new_event_loop()
    try:
        listener = server.run_until_complete(asyncio.start_server(lambda _r, _w: None, "127.0.0.1", port))
        with pytest.raises(OSError, match="choose another port"):
            check_port("127.0.0.1", port)
        listener.close()
        server.run_until_complete(listener.wait_closed())
    finally:
        server.close()


def deployment(name: str, framework: str = SERVERS[0]) -> Deployment:
    return Deployment(find_stack(framework), "wordle", 3, load_proxy(name), 8000, 1_000, 120)


@pytest.mark.parametrize("framework", SERVERS)
@pytest.mark.parametrize("name", proxy_names())
def test_a_folder_to_deploy_holds_what_each_place_reads(
    name: str, framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(load_proxy(name)), "find", lambda _self: None)
    monkeypatch.setattr(deploy, "_SOURCES", ("LICENSE",))
    assert asyncio.run(write_deployment(deployment(name, framework), tmp_path)) is False
    services = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]
    assert set(services) == {"r1", "r2", "r3", "proxy"}
    assert set(services["proxy"]["depends_on"]) == {"r1", "r2", "r3"}
    assert services["r1"]["command"][:3] == ["rosetta", "serve", "wordle"]
    assert services["proxy"]["command"][:2] == ["rosetta", "balance"]
    for service in services.values():
        drain = service["command"][service["command"].index("--drain") + 1]
        assert drain == "120"
        # Whoever stops containers kills those that take longer than this.
        assert int(service["stop_grace_period"].removesuffix("s")) > int(drain)
    front = yaml.safe_load((tmp_path / "README.md").read_text().split("---")[1])
    exposed = re.search(r"^EXPOSE (\d+)$", (tmp_path / "Dockerfile").read_text(), re.MULTILINE)
    assert front["sdk"] == "docker"
    assert front["app_port"] == int(exposed[1])
    subprocess.run(["bash", "-n", tmp_path / "slurm" / "serve.sbatch"], check=True)
    written = "\n".join(path.read_text() for path in (tmp_path / "proxy").iterdir())
    assert all(f"r{number}" in written for number in (1, 2, 3))
    assert (tmp_path / "project" / "LICENSE").is_file()


@pytest.mark.slow
def test_a_folder_to_deploy_takes_the_project_and_the_authors_own_file_along(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    shutil.copy2(deploy.ROOT / "docs" / "examples" / "higher_lower.py", own)
    stack = find_stack(SERVERS[0])
    asked = Deployment(stack, str(own), 2, load_proxy(proxy_names()[0]), 8000, 100, 60)
    asyncio.run(write_deployment(asked, tmp_path / "out"))
    project = tmp_path / "out" / "project"
    assert (project / "environments" / "mine.py").is_file()
    assert (project / "rosetta" / "__main__.py").is_file()
    assert not list(project.rglob("__pycache__"))
    assert "environments/mine.py" in (tmp_path / "out" / "slurm" / "serve.sbatch").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["default", "derived"])
@pytest.mark.parametrize("fact", AFFINITIES)
@pytest.mark.parametrize("name", proxy_names())
def test_the_proxy_itself_finds_nothing_wrong(name: str, fact: str, variant: str, tmp_path: Path) -> None:
    proxy = load_proxy(name)
    if proxy.find() is None:
        pytest.skip(f"{proxy.title} is not installed; get it with: {proxy.how_to_get}")
    write_configuration(proxy, plan_of(fact), tmp_path, variant)
    asyncio.run(validate(proxy, find_binary(proxy), tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", proxy_names())
def test_what_a_proxy_says_of_a_wrong_configuration_is_passed_on(name: str, tmp_path: Path) -> None:
    proxy = load_proxy(name)
    if proxy.find() is None:
        pytest.skip(f"{proxy.title} is not installed; get it with: {proxy.how_to_get}")
    write_configuration(proxy, plan_of("none"), tmp_path, "derived")
    file = next(path for path in tmp_path.iterdir() if path.suffix in {".yaml", ".cfg", ".conf"})
    wrong = {".yaml": "no_such_word: 1", ".cfg": "no_such_word 1", ".conf": "no_such_word 1;"}[file.suffix]
    file.write_text(f"{wrong}\n{file.read_text()}")
    with pytest.raises(ProxyError, match="no_such_word"):
        asyncio.run(validate(proxy, find_binary(proxy), tmp_path))
