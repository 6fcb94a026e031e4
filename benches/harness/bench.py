"""The measurements: which servers stand where, and in what order they are driven."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import re
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Callable

from . import evaluations, matrix, others, push, registry, replicas, signing
from .client import (
    JWT_SECRET,
    TOKEN,
    Answer,
    answers,
    answers_get,
    answers_hits,
    ask,
    fill,
    free_ports,
    listens,
)
from .error import BenchError
from .process import Server
from .progress import progress
from .rounds import Round, drive, drive_loop
from .report import Ratio, Table, against, at_least, latency, whole_cpu_us
from .script_commands import (
    SCRIPTS,
    WORKER,
    WORKER_COMMAND,
    script_workload,
)
from .targets import (
    TARGET_BASELINE_RATIO,
    TARGET_BESIDE_MS,
    TARGET_BINARY_MIB,
    TARGET_EDGE_RATIO,
    TARGET_EVALUATIONS_MS,
    TARGET_JWT_RATIO,
    TARGET_LATE_MS,
    TARGET_GO_RATIO,
    TARGET_HELD_MIB,
    TARGET_MATRIX_S,
    TARGET_POLLS_RATIO,
    TARGET_RESIDENT_MIB,
    TARGET_RUNS_RATIO,
    TARGET_SERVER_RATIO,
    TARGET_SIGNED_US,
    TARGET_START_MS,
    TARGET_STORE_RATIO,
    TARGET_TIMES_CHEAPER,
    TARGET_TOLD_MS,
)
from .workload import (
    EDGE_TLS,
    HIT_PARAMETERS,
    WORKLOADS,
    LOOKED_UP,
    LOOKED_UP_64,
    SCRIPT_PARAMETERS,
    SIGNED_HIT,
    Workload,
)
from .settings import Settings

GATEWAY, BASELINE, REFERENCE, CANARY = "gateway", "baseline", "reference", "canary"
HYPER = "reference with hyper-util's client"
LOOP, BARE_SERVER = "bare loop", "bare server"
HIT, HIT_64 = "gateway, a hit", "gateway, a hit (64 connections)"
HOLDER = "gateway that holds much"
KEEPER = "gateway that keeps answers"
UNSIGNED = "gateway, unsigned images"
SIGNED = "gateway, a hit on signed images"
STATIC = "gateway, by a static token"
ALONE, ALONE_MISS, STORE_MISS = "without a store", "a miss without", "a miss with a store"
AXUM, BY_TLS, BARE_TLS = "axum::serve", "gateway by TLS", "bare TLS loop"
EXAMPLES = ("reference", "echo", "upstream", "heads", "spawn", "bare")

CANARY_SECONDS = 1
CANARY_QUIET_US = 4.0
CANARY_NOISY_US = 4.6
WARM_UP_SECONDS = 1
STARTS = 20
INSPECTIONS = 20
MIB = 1024 * 1024
# The memory held by the gateway that starts programs with much memory, in answers of `HELD` bytes.
HELD_MIB = 1024
HELD = 200_000
# Answers that are kept for the measurement of memory.
KEPT, KEPT_BYTES = 10_000, 4096

# Callers by JWT; the secret of the issuer is a file.
JWT_CONFIG = """\
, jwt: [ {{ issuer: bench, audience: bench, algorithms: [HS256], secret: {{ file: "{secret_file}" }} }} ]"""

# The certificate that `openssl` makes.
TLS_CONFIG = ', tls: {{ cert: "{cert}", key: "{key}" }}'

# A port without a listener, for the routes that a scenario does not ask.
NOBODY = 9

GATEWAY_CONFIG = """\
server: {{ listen: "127.0.0.1:{port}", admin: "127.0.0.1:{admin}", deadline: 25s{tls} }}
log: {{ format: json, level: info }}
auth: {{ tokens: [ {{ name: argocd, file: "{token_file}", routes: ["*"] }} ]{jwt} }}
cache: {{ memory: {memory}{store} }}
registries: {{ "127.0.0.1:{registry}": {{ plainHttp: true }} }}
routes:
  - name: hit
    match: {{ applicationSet: hit }}
    backend: {{ fixed: {{ parameters: {hit_parameters} }} }}
  - name: miss
    backend:
      http:
        url: "http://127.0.0.1:{upstream}/v1/items?n={{{{ params.n }}}}"
        parameters: "body.items.map(t, {{'name': t.name, 'server': t.cluster}})"
        timeout: 10s
  - name: unchanged
    cache: {{ ttl: 0s }}
    backend:
      http:
        url: "http://127.0.0.1:{upstream}/v1/unchanged"
        parameters: "body.items.map(t, {{'name': t.name, 'server': t.cluster}})"
{scripts}{signed}  - name: hold
    backend: {{ fixed: {{ parameters: [{{ text: {held} }}] }} }}
  - name: digests
    backend: &digests
      digests:
        images:
          front: {{ image: "127.0.0.1:{registry}/org/front:{{{{ params.branch | tag }}}}" }}
          back: {{ image: "127.0.0.1:{registry}/org/back:{{{{ params.branch | tag }}}}" }}
    output: &output {{ digestFront: "{{{{ front.digest }}}}", digestBack: "{{{{ back.digest }}}}" }}
  - {{ name: lookups, backend: *digests, output: *output, cache: {{ ttl: 0s }} }}
"""


@dataclass(frozen=True)
class Surroundings:
    """The services that a scenario's servers use, and the expected answers."""

    parameters: Any
    upstream: int = NOBODY
    registry: Server | None = None


@dataclass(frozen=True)
class Lane:
    """A measured server, and a function that drives it for a number of seconds."""

    name: str
    drive: Callable[[int], Round]


class Bench:
    def __init__(self, settings: Settings, directory: Path) -> None:
        self.settings = settings
        self.directory = directory
        # Not beside the configuration, whose folder the gateway watches.
        self.logs = directory / "logs"
        self.logs.mkdir()
        self.canary_figures: list[float] = []
        self.numbers = itertools.count()
        self.token_file = directory / "token"
        self.token_file.write_text(TOKEN)
        self.token_file.chmod(0o600)
        self.secret_file = directory / "jwt-secret"
        self.secret_file.write_text(JWT_SECRET)
        self.secret_file.chmod(0o600)

    def run(self, scenario: str) -> Table:
        special = {
            "jwt": self.jwt,
            "edge": self.edge,
            "lookups": self.lookups,
            "signed": self.signed,
            "scripts": self.scripts,
            "evaluations": self.evaluations,
            "replicas": self.replicas,
            "push": self.push,
            "matrix": self.matrix,
            "start": self.start,
            "resident": self.resident,
            "binary": self.binary,
        }
        return special[scenario]() if scenario in special else self.load(scenario)

    # --- servers

    def candidates(self, *, with_reference: bool) -> list[str]:
        names = [GATEWAY]
        if self.settings.baseline is not None:
            names.append(BASELINE)
        if with_reference:
            names.append(REFERENCE)
        return names

    def gateway_binary(self, name: str) -> Path:
        if name == BASELINE and self.settings.baseline is not None:
            return self.settings.baseline
        return self.settings.gateway

    def spawn(
        self,
        name: str,
        argv: Sequence[str],
        port: int,
        *,
        core: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Server:
        return Server(
            name,
            argv,
            port=port,
            core=self.settings.server_core if core is None else core,
            log=self.logs / f"{name}-{next(self.numbers)}.log",
            environment=environment or {},
        )

    def spawn_example(self, name: str, example: str, **options: Any) -> Server:
        (port,) = free_ports(1)
        argv = [str(self.settings.examples / example), f"127.0.0.1:{port}"]
        return self.spawn(name, argv, port, **options)

    def spawn_gateway(
        self,
        name: str,
        upstream: int,
        registry_port: int,
        memory: str = "64MiB",
        *,
        takes_jwt: bool = False,
        tls: str = "",
        store: str = "",
        signer: Path | None = None,
    ) -> Server:
        port, config = self.write_config(
            name,
            upstream,
            registry_port,
            memory,
            takes_jwt=takes_jwt,
            tls=tls,
            store=store,
            signer=signer,
        )
        return self.spawn(name, [str(self.gateway_binary(name)), "serve", "--config", str(config)], port)

    def spawn_bare(self, name: str, tls: str = "") -> Server:
        """The same gateway, served without its accept loop."""
        port, config = self.write_config(name, NOBODY, NOBODY, "64MiB", tls=tls)
        return self.spawn(name, [str(self.settings.examples / "bare"), str(config)], port)

    def write_config(
        self,
        name: str,
        upstream: int,
        registry_port: int,
        memory: str,
        *,
        takes_jwt: bool = False,
        tls: str = "",
        store: str = "",
        signer: Path | None = None,
    ) -> tuple[int, Path]:
        """A gateway's configuration, and the port that it names."""
        port, admin = free_ports(2)
        config = self.directory / f"{name}-{next(self.numbers)}.yaml"
        config.write_text(
            GATEWAY_CONFIG.format(
                port=port,
                admin=admin,
                tls=tls,
                memory=memory,
                store=f', shared: {{ url: "{store}" }}' if store else "",
                token_file=self.token_file,
                jwt=JWT_CONFIG.format(secret_file=self.secret_file) if takes_jwt else "",
                upstream=upstream,
                registry=registry_port,
                hit_parameters=json.dumps(HIT_PARAMETERS),
                scripts="".join(
                    f"  - {{ name: {route}, backend: {{ script: {{ command: {json.dumps(command)} }} }} }}\n"
                    for route, command in self.commands().items()
                    if route != WORKER
                )
                + f"  - {{ name: worker, backend: {{ script: {{ mode: worker, concurrency: 1, "
                f"command: {json.dumps(self.commands()[WORKER])} }} }} }}\n",
                signed=signing.ROUTES.format(registry=registry_port, key=signer) if signer else "",
                held="x" * {HOLDER: HELD, KEEPER: KEPT_BYTES}.get(name, 1),
            )
        )
        return port, config

    def spawn_candidate(
        self, name: str, upstream: int = NOBODY, registry_port: int = NOBODY
    ) -> Server:
        if name == CANARY:
            return self.spawn_example(CANARY, "echo")
        if name in (others.GO, others.NGINX):
            (port,) = free_ports(1)
            argv = others.command(name, self.directory, port, self.token_file, HIT_PARAMETERS)
            return self.spawn(name, argv, port)
        if name not in (REFERENCE, HYPER):
            return self.spawn_gateway(name, upstream, registry_port)
        environment = {"REFERENCE_CLIENT": "hyper-util"} if name == HYPER else {}
        if upstream != NOBODY:
            environment["REFERENCE_UPSTREAM"] = f"http://127.0.0.1:{upstream}/v1/items"
        return self.spawn_example(name, "reference", environment=environment)

    @contextlib.contextmanager
    def running(
        self, server: Server, ready: Callable[[Server], bool] = answers_hits
    ) -> Iterator[Server]:
        try:
            server.wait_until(ready)
            yield server
        finally:
            server.stop()

    @contextlib.contextmanager
    def surroundings(self, name: str) -> Iterator[Surroundings]:
        """Sets up what the scenario's servers ask, on the client's core."""
        scenario = WORKLOADS[name]
        core = self.settings.client_core
        if name in ("miss", "unchanged"):
            upstream = self.spawn_example("upstream", "upstream", core=core)
            with self.running(upstream, answers_get("/v1/items")):
                yield Surroundings(scenario.parameters, upstream=upstream.port)
        elif name in ("digests", "lookups", "signed"):
            (port,) = free_ports(1)
            config = self.directory / f"registry-{name}.yaml"
            data = self.directory / f"registry-{name}"
            config.write_text(registry.CONFIG.format(data=data, port=port))
            argv = ["docker-registry", "serve", str(config)]
            server = self.spawn("docker-registry", argv, port, core=core)
            with self.running(server, answers_get("/v2/")):
                images = self.directory / f"images-{name}"
                yield Surroundings([self.push_images(images, port)], registry=server)
        else:
            yield Surroundings(scenario.parameters)

    def push_images(self, images: Path, port: int) -> dict[str, str]:
        """Fills the registry; returns the parameter set that names its contents."""
        parameters = {}
        for image in ("front", "back"):
            layout = images / image
            parameters[f"digest{image.capitalize()}"] = registry.write_oci_layout(layout, image)
            registry.push(layout, port, f"org/{image}")
        return parameters

    # --- scenarios under load

    def load(self, name: str) -> Table:
        scenario = WORKLOADS[name]
        remarks: list[str] = []
        with contextlib.ExitStack() as stack:
            around = stack.enter_context(self.surroundings(name))
            registry_port = around.registry.port if around.registry else NOBODY
            candidates = [
                stack.enter_context(
                    self.running(self.spawn_candidate(candidate, around.upstream, registry_port))
                )
                for candidate in [
                    *self.candidates(with_reference=scenario.has_reference),
                    *([HYPER] if name == "miss" else []),
                    *(others.installed() if name == "hit64" else []),
                ]
            ]
            canary = stack.enter_context(self.running(self.spawn_candidate(CANARY)))

            for server in candidates:
                self.check_answer(server, scenario, around.parameters)
                remarks += self.doubts_about_cache(server, scenario)
                if around.registry is not None:
                    remarks.append(self.count_registry_requests(server, scenario, around.registry))
            lanes = [self.lane(server, scenario) for server in candidates]
            rounds = self.interleave(scenario.title, [*lanes, self.canary_lane(canary)])
            for server in candidates:
                self.check_answer(server, scenario, around.parameters)
                remarks += self.doubts_about_log(server, scenario)
        self.canary_figures += [one.cpu_us for one in rounds[CANARY]]
        return tabulate(name, rounds, remarks)

    def jwt(self) -> Table:
        """The same gateway and answer, by a JWT that was verified before and by a static token."""
        scenario, static = WORKLOADS["jwt"], WORKLOADS["hit64"]
        with contextlib.ExitStack() as stack:
            gateway = stack.enter_context(
                self.running(self.spawn_gateway(GATEWAY, NOBODY, NOBODY, takes_jwt=True))
            )
            canary = stack.enter_context(self.running(self.spawn_candidate(CANARY)))
            remarks: list[str] = []
            for kind in (scenario, static):
                self.check_answer(gateway, kind, HIT_PARAMETERS)
                remarks += self.doubts_about_cache(gateway, kind)
            lanes = [
                self.lane(gateway, scenario),
                dataclasses.replace(self.lane(gateway, static), name=STATIC),
            ]
            rounds = self.interleave(scenario.title, [*lanes, self.canary_lane(canary)])
            self.check_answer(gateway, scenario, HIT_PARAMETERS)
        self.canary_figures += [one.cpu_us for one in rounds[CANARY]]
        return tabulate("jwt", rounds, remarks)

    def edge(self) -> Table:
        """The gateway's router behind its own accept loop, and behind the least that serves it."""
        scenario = WORKLOADS["edge"]
        tls = self.certificate()
        remarks: list[str] = []
        with contextlib.ExitStack() as stack:
            pairs = [
                (stack.enter_context(self.running(server, answers(kind))), kind)
                for server, kind in (
                    (self.spawn_gateway(GATEWAY, NOBODY, NOBODY), scenario),
                    (self.spawn_bare(AXUM), scenario),
                    (self.spawn_gateway(BY_TLS, NOBODY, NOBODY, tls=tls), EDGE_TLS),
                    (self.spawn_bare(BARE_TLS, tls), EDGE_TLS),
                )
            ]
            canary = stack.enter_context(self.running(self.spawn_candidate(CANARY)))
            for server, kind in pairs:
                self.check_answer(server, kind, HIT_PARAMETERS)
                remarks += self.doubts_about_cache(server, kind)
            lanes = [self.lane(server, kind) for server, kind in pairs]
            rounds = self.interleave(scenario.title, [*lanes, self.canary_lane(canary)])
            for server, kind in pairs:
                self.check_answer(server, kind, HIT_PARAMETERS)
                remarks += self.doubts_about_log(server, kind)
        self.canary_figures += [one.cpu_us for one in rounds[CANARY]]
        table = tabulate("edge", rounds, remarks)
        for over, target in ((BARE_TLS, TARGET_EDGE_RATIO), (GATEWAY, None)):
            ratio = Ratio.between(over, rounds[BY_TLS], rounds[over], of=BY_TLS)
            table.remarks.append(ratio.text(target))
            table.data["ratios"][f"{BY_TLS} / {over}"] = asdict(ratio)
        return table

    def certificate(self) -> str:
        """The part of `server` that names a new certificate, which vouches for itself."""
        cert, key = (self.directory / name for name in ("tls.crt", "tls.key"))
        argv = [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(cert)),
        ]
        made = subprocess.run(argv, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise BenchError(f"openssl made no certificate:\n{made.stderr}")
        return TLS_CONFIG.format(cert=cert, key=key)

    def lookups(self) -> Table:
        """Each answer asks a registry; beside bare look-ups, and a hit on the same answer."""
        scenario = WORKLOADS["lookups"]
        remarks: list[str] = []
        with contextlib.ExitStack() as stack:
            around = stack.enter_context(self.surroundings("lookups"))
            asked = around.registry
            if asked is None:
                raise BenchError("there is no registry to look anything up in")
            # So little memory is full when the first round begins: no answer pays for its growth.
            gateways = [
                stack.enter_context(
                    self.running(self.spawn_gateway(name, NOBODY, asked.port, memory="2MiB"))
                )
                for name in self.candidates(with_reference=False)
            ]
            environment = {"HEADS_REGISTRY": f"127.0.0.1:{asked.port}"}
            loop, bare = (
                stack.enter_context(
                    self.running(
                        self.spawn_example(name, "heads", environment=environment),
                        answers_get("/"),
                    )
                )
                for name in (LOOP, BARE_SERVER)
            )
            canary = stack.enter_context(self.running(self.spawn_candidate(CANARY)))

            for server in gateways:
                for kind in (scenario, LOOKED_UP):
                    self.check_answer(server, kind, around.parameters)
                    remarks += self.doubts_about_cache(server, kind)
            self.check_answer(bare, scenario, around.parameters)
            lanes = [
                *(self.lane(server, scenario) for server in gateways),
                Lane(LOOP, lambda seconds: drive_loop(loop, scenario.connections, seconds)),
                self.lane(bare, scenario),
                dataclasses.replace(self.lane(gateways[0], LOOKED_UP), name=HIT),
                dataclasses.replace(self.lane(gateways[0], LOOKED_UP_64), name=HIT_64),
            ]
            rounds = self.interleave(
                scenario.title,
                [
                    *(self.beside(asked, lane) for lane in lanes),
                    self.canary_lane(canary),
                ],
            )
            for server in [*gateways, bare]:
                self.check_answer(server, scenario, around.parameters)
            remarks += self.inspections(asked.port)
        self.canary_figures += [one.cpu_us for one in rounds[CANARY]]
        return tabulate("lookups", rounds, [*times_cheaper(rounds), *remarks])

    def signed(self) -> Table:
        """Look-ups whose signatures are proven, beside the same without a signature; and hits on both answers."""
        signed, unsigned = WORKLOADS["signed"], WORKLOADS["lookups"]
        with contextlib.ExitStack() as stack:
            around = stack.enter_context(self.surroundings("signed"))
            asked = around.registry
            if asked is None:
                raise BenchError("there is no registry to look anything up in")
            private, public = signing.make_key(self.directory)
            for image in ("front", "back"):
                digest = around.parameters[0][f"digest{image.capitalize()}"]
                signing.sign(asked.port, f"org/{image}", digest, private)
            server = stack.enter_context(
                self.running(self.spawn_gateway(GATEWAY, NOBODY, asked.port, memory="2MiB", signer=public))
            )
            canary = stack.enter_context(self.running(self.spawn_candidate(CANARY)))
            for kind in (signed, unsigned, SIGNED_HIT, LOOKED_UP_64):
                self.check_answer(server, kind, around.parameters)
            remarks = [self.count_registry_requests(server, signed, asked)]
            lanes = [
                self.lane(server, signed),
                dataclasses.replace(self.lane(server, unsigned), name=UNSIGNED),
                dataclasses.replace(self.lane(server, SIGNED_HIT), name=SIGNED),
                dataclasses.replace(self.lane(server, LOOKED_UP_64), name=HIT_64),
            ]
            rounds = self.interleave(
                signed.title,
                [*(self.beside(asked, lane) for lane in lanes), self.canary_lane(canary)],
            )
        self.canary_figures += [one.cpu_us for one in rounds[CANARY]]
        for kind, of, over in (("a look-up", GATEWAY, UNSIGNED), ("a hit", SIGNED, HIT_64)):
            more = [whole_cpu_us(one) - whole_cpu_us(other) for one, other in zip(rounds[of], rounds[over])]
            remarks.append(
                f"{kind} of signed images costs {statistics.median(more):+.2f} µs "
                f"({min(more):+.2f} to {max(more):+.2f}); the target is at most {TARGET_SIGNED_US} µs"
            )
        return tabulate("signed", rounds, remarks)

    def commands(self) -> dict[str, list[str]]:
        """The commands of the scripts, with the list that they print."""
        listed = json.dumps(SCRIPT_PARAMETERS)
        file = self.directory / "scripts" / "list.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(listed)
        return {
            route: [part.replace("{file}", str(file)).replace("{list}", listed) for part in command]
            for route, command in {**SCRIPTS, WORKER: WORKER_COMMAND}.items()
        }

    def scripts(self) -> Table:
        """Each answer runs a program: contained, and bare; and with much memory held by the gateway.

        A machine's speed at starting programs changes from second to second, so that the turns are short.
        """
        header = ["", "alone", "bare", "ratio", "8 at once", "bare", "ratio"]
        table = Table("scripts", WORKLOADS["scripts"].title, header)
        with contextlib.ExitStack() as stack:
            gateway, holder = (
                stack.enter_context(
                    self.running(self.spawn_gateway(name, NOBODY, NOBODY, memory=memory))
                )
                for name, memory in ((GATEWAY, "64MiB"), (HOLDER, "2GiB"))
            )
            environment = {"SPAWN_COMMANDS": json.dumps(self.commands())}
            bare = stack.enter_context(
                self.running(
                    self.spawn_example(BARE_SERVER, "spawn", environment=environment),
                    answers_get("/"),
                )
            )
            fill(holder.port, HELD_MIB * MIB // HELD)
            held = holder.resident_mib()
            for route in SCRIPTS:
                for server in (gateway, bare):
                    self.check_answer(server, script_workload(route, 1), SCRIPT_PARAMETERS)
                alone, eight = (
                    self.interleave(
                        scenario.title,
                        [self.lane(server, scenario) for server in servers],
                        by_second=True,
                        times=times,
                    )
                    for scenario, servers, times in (
                        (script_workload(route, 1), (gateway, bare, holder), 1),
                        # The load of a machine varies more in a second than the time of one program.
                        (script_workload(route, 8), (gateway, bare), 2),
                    )
                )
                table.add_script(route, alone, eight, GATEWAY, BARE_SERVER, HOLDER, held)
            scenario = script_workload(WORKER, 1)
            for server in (gateway, bare):
                self.check_answer(server, scenario, SCRIPT_PARAMETERS)
            lanes = [self.lane(server, scenario) for server in (gateway, bare)]
            rounds = self.interleave(scenario.title, lanes, by_second=True, times=2)
            table.add_worker(rounds[GATEWAY], rounds[BARE_SERVER], "script-python")
        return table

    def inspections(self, port: int) -> list[str]:
        core = self.settings.server_core
        images = itertools.islice(itertools.cycle(("org/front", "org/back")), INSPECTIONS)
        times = [registry.inspect(port, image, core) * 1000 for image in images]
        return [
            f"skopeo inspect: {statistics.median(times):.1f} ms per image "
            f"({min(times):.1f} to {max(times):.1f})"
        ]

    def lane(self, server: Server, scenario: Workload) -> Lane:
        def one_round(seconds: int) -> Round:
            driven = drive(server, scenario, seconds, self.settings.client_core)
            server.clear_log()
            return driven

        return Lane(server.name, one_round)

    def canary_lane(self, server: Server) -> Lane:
        # It is always driven alike, so that all its figures are comparable.
        lane = self.lane(server, WORKLOADS["hit64"])
        return Lane(lane.name, lambda seconds: lane.drive(min(seconds, CANARY_SECONDS)))

    def beside(self, asked: Server, lane: Lane) -> Lane:
        """The lane, with what it costs the registry."""
        return Lane(
            lane.name,
            lambda seconds: registry.counting_heads(asked, lambda: lane.drive(seconds)),
        )

    def interleave(
        self, title: str, lanes: Sequence[Lane], *, by_second: bool = False, times: int = 1
    ) -> dict[str, list[Round]]:
        """The rounds of each lane, in turns, so many `times` as usual. `by_second` makes them short, and as many more."""
        seconds = 1 if by_second else self.settings.seconds
        for lane in lanes:
            progress(f"{title}: warming up: {lane.name}")
            lane.drive(WARM_UP_SECONDS)
        rounds: dict[str, list[Round]] = {lane.name: [] for lane in lanes}
        count = times * self.settings.rounds * self.settings.seconds // seconds
        for number in range(1, count + 1):
            for lane in lanes:
                progress(f"{title}: round {number} of {count}: {lane.name}")
                rounds[lane.name].append(lane.drive(seconds))
        return rounds

    def check_answer(self, server: Server, scenario: Workload, expected: Any) -> None:
        answer = ask(server.port, scenario)
        if answer.status != HTTPStatus.OK or answer.parameters() != expected:
            raise BenchError(
                f"{server.name}: {scenario.title}: expected {json.dumps(expected)}, got\n"
                f"{answer}\n{server.log_tail()}"
            )

    def doubts_about_cache(self, server: Server, scenario: Workload) -> list[str]:
        """A remark if the gateway reports a miss instead of a hit, or a hit instead of a miss."""
        if server.name.startswith(REFERENCE) or server.name in (others.GO, others.NGINX):
            return []
        answer: Answer = ask(server.port, scenario)
        cache_status = answer.headers.get("cache-status", "")
        was_hit = re.search(r";\s*hit\b", cache_status) is not None
        if was_hit == scenario.is_hit:
            return []
        wanted = "a hit" if scenario.is_hit else "a miss"
        told = f"says '{cache_status}'" if cache_status else "has no Cache-Status header"
        return [f"doubt: {server.name}'s answer should be {wanted}, but it {told}"]

    def doubts_about_log(self, server: Server, scenario: Workload) -> list[str]:
        """A remark if the gateway did not write one log line per request."""
        if server.name.startswith(REFERENCE) or server.name in (others.GO, others.NGINX) or not scenario.is_hit:
            return []
        server.clear_log()
        driven = drive(server, scenario, WARM_UP_SECONDS, self.settings.client_core)
        time.sleep(0.2)
        lines = server.log_lines() / driven.requests
        if abs(lines - 1) < 0.05:
            return []
        return [f"doubt: {server.name} wrote {lines:.2f} log lines per request instead of 1"]

    def count_registry_requests(
        self, server: Server, scenario: Workload, registry_server: Server
    ) -> str:
        registry_server.clear_log()
        ask(server.port, scenario)
        time.sleep(0.2)
        count = registry_server.log.read_bytes().count(b" /v2/")
        return f"{server.name}: {count} requests to the registry for one answer"

    # --- the other scenarios

    def evaluations(self) -> Table:
        """An ordinary route alone, and while four other routes evaluate until their deadline."""
        port, text = evaluations.config(self.token_file)
        config = self.directory / "evaluations.yaml"
        config.write_text(text)
        argv = [str(self.settings.gateway), "serve", "--config", str(config)]
        seconds = self.settings.seconds * self.settings.rounds
        with self.running(self.spawn("evaluations", argv, port), answers_ordinary) as server:
            progress("evaluations: alone")
            times = {"ordinary, alone": evaluations.ordinary(server, seconds)}
            progress("evaluations: beside hostile expressions")
            with evaluations.Hostile(server) as hostile:
                times["ordinary, beside the hostile"] = evaluations.ordinary(server, seconds)
            times["hostile"] = hostile.times()
        title = f"a route beside four expressions that never end, deadline {evaluations.DEADLINE} s"
        table = Table("evaluations", title, ["", "calls", "p50 ms", "p99 ms", "max ms"])
        for name, one in times.items():
            figures = (one.median, one.p99, one.longest)
            table.rows.append([name, str(one.calls), *(f"{figure:.1f}" for figure in figures)])
        p99 = times["ordinary, beside the hostile"].p99
        table.remarks.append(f"p99 beside the hostile: {against(p99, TARGET_EVALUATIONS_MS, ' ms')}")
        late = times["hostile"].longest - evaluations.DEADLINE * 1000
        table.remarks.append(f"after the deadline: {against(late, TARGET_LATE_MS, ' ms')}")
        table.data = {name: asdict(one) for name, one in times.items()}
        return table

    def replicas(self) -> Table:
        """What a store costs a replica, and what several replicas ask of their source."""
        seconds = self.settings.seconds * self.settings.rounds
        with contextlib.ExitStack() as stack:
            store = stack.enter_context(self.store())
            around = stack.enter_context(self.surroundings("miss"))
            with_store, alone = (
                stack.enter_context(self.running(self.spawn_gateway(name, around.upstream, NOBODY, store=url)))
                for name, url in ((GATEWAY, store), (ALONE, ""))
            )
            hit, miss = WORKLOADS["hit64"], WORKLOADS["miss"]
            hits = self.interleave(hit.title, [self.lane(server, hit) for server in (with_store, alone)])
            lanes = [
                dataclasses.replace(self.lane(server, miss), name=name)
                for server, name in ((with_store, STORE_MISS), (alone, ALONE_MISS))
            ]
            misses = self.interleave(miss.title, lanes)
            starts = [self.start_with(store) for _ in range(replicas.STARTS)]
            table = tabulate("hit64", {**hits, **misses}, [])
            table.name, table.title = "replicas", "one replica with a store, and without"
            for ours, theirs, target in ((GATEWAY, ALONE, TARGET_STORE_RATIO), (STORE_MISS, ALONE_MISS, None)):
                rounds = {**hits, **misses}
                ratio = Ratio.between(theirs, rounds[ours], rounds[theirs], of=ours)
                table.remarks.append(ratio.text(target))
                table.data["ratios"][f"{ours} / {theirs}"] = asdict(ratio)
            times, sizes = zip(*starts)
            table.remarks.append(
                f"a new replica: {statistics.median(times):.0f} ms to its first answer, "
                f"{statistics.median(sizes):.1f} MiB resident"
            )
            runs = {count: self.grow(store, around.upstream, count, seconds) for count in replicas.COUNTS}
        for count, growth in runs.items():
            one = runs[replicas.COUNTS[0]]
            ratio = growth.runs / one.runs
            told = f"{ratio:.2f} of one replica's, {against(ratio, TARGET_RUNS_RATIO)}"
            table.remarks.append(
                f"{count} replicas: {growth.runs} runs, {growth.requests} requests to the source, "
                f"{growth.calls} calls in {seconds} s; runs {told}"
            )
        table.data["growth"] = {str(count): asdict(growth) for count, growth in runs.items()}
        return table

    def push(self) -> Table:
        """How long a push takes to reach Argo CD, and what hooks spare a source."""
        folder = self.directory / "push"
        folder.mkdir()
        (folder / "secret").write_text(push.SECRET)
        with contextlib.ExitStack() as stack:
            api, source = stack.enter_context(push.ApiServer()), stack.enter_context(push.Source())
            hooks, registry_port = free_ports(2)
            config = folder / "registry.yaml"
            values = {"port": registry_port, "hooks": hooks, "secret": push.SECRET, "data": folder / "data"}
            config.write_text(push.REGISTRY.format(**values))
            argv = ["docker-registry", "serve", str(config)]
            core = self.settings.client_core
            stack.enter_context(self.running(self.spawn("docker-registry", argv, registry_port, core=core), listens))

            def gateway(ttl: str, hooks: int) -> contextlib.AbstractContextManager[Server]:
                port, admin = free_ports(2)
                values = {"port": port, "admin": admin, "hooks": hooks, "registry": registry_port, "ttl": ttl}
                values |= {"api": api.server_port, "source": source.server_port}
                config = folder / f"gateway-{ttl}.yaml"
                config.write_text(
                    push.CONFIG.format(token_file=self.token_file, secret_file=folder / "secret", **values)
                )
                argv = [str(self.settings.gateway), "serve", "--config", str(config)]
                return self.running(self.spawn(f"push-{ttl}", argv, port), listens)

            with gateway("10s", hooks) as server:
                told = push.push_all(server, registry_port, api, folder, progress)
                progress("push: 10,000 events")
                burst = push.burst(server, hooks)
                progress("push: an hour with hooks")
                pushed, pushed_late = push.follow(server, source, hooks)
            with gateway("500ms", hooks) as server:
                progress("push: an hour of polling")
                polled, polled_late = push.follow(server, source, None)
        table = Table("push", f"{push.PUSHES} pushes by skopeo, until Argo CD is told", ["", "p50 ms", "p99", "max"])
        figures = (told.percentile(50), told.percentile(99), max(told.milliseconds))
        table.rows.append(["from the end of the push", *(f"{figure:.0f}" for figure in figures)])
        table.remarks.append(f"p99: {against(figures[1], TARGET_TOLD_MS, ' ms')}; {told.lost} lost")
        ratio = pushed / polled
        table.remarks.append(
            f"{push.PREVIEWS} previews, each built once, an hour in {push.MINUTES} s: {pushed} requests with hooks and "
            f"`ttl: 10m`, {polled} with polling each minute; {ratio:.2f}, {against(ratio, TARGET_POLLS_RATIO)}"
        )
        table.remarks.append(f"answers that were old 30 s after the build or later: {pushed_late} with hooks, {polled_late} with polling")
        table.remarks.append(
            f"{push.EVENTS} events in {burst.seconds:.0f} s: {burst.taken} taken, {burst.refused} refused, resident {burst.grown_mib:+.1f} MiB; "
            f"calls of others, with the client's time, p99 {burst.p99_ms:.1f} ms, {against(burst.p99_ms, TARGET_BESIDE_MS, ' ms')}"
        )
        table.data = {"burst": asdict(burst), "told": asdict(told), "pushed": pushed, "polled": polled, "late": [pushed_late, polled_late]}
        return table

    def matrix(self) -> Table:
        """How long the elements of a matrix take, one after the other, when all answers have expired."""
        with matrix.Source() as source:
            port, admin = free_ports(2)
            values = {"port": port, "admin": admin, "source": source.server_port, "token_file": self.token_file}
            config = self.directory / "matrix.yaml"
            config.write_text(matrix.CONFIG.format(**values))
            argv = [str(self.settings.gateway), "serve", "--config", str(config)]
            with self.running(self.spawn("matrix", argv, port), listens) as server:
                found = {}
                for route in ("ahead", "in-turn"):
                    progress(f"matrix: {route}")
                    found[route] = matrix.reconcile(server, source, route)
        columns = ["", "first, s", "later", "requests in each", "at once"]
        title = f"{matrix.ELEMENTS} elements whose source takes {matrix.TAKES * 1000:.0f} ms, one after the other"
        table = Table("matrix", title, columns)
        for name, route in (("gateway", "ahead"), ("gateway, `prefetch: false`", "in-turn")):
            first, *later = found[route].seconds
            requests = ", ".join(map(str, found[route].requests))
            table.rows.append([name, f"{first:.1f}", f"{statistics.median(later):.2f}", requests, str(found[route].most_at_once)])
        slowest = max(found["ahead"].seconds[1:])
        table.remarks.append(f"the slowest of the later ones: {against(slowest, TARGET_MATRIX_S, ' s')}")
        table.data = {route: asdict(reconciles) for route, reconciles in found.items()}
        return table

    @contextlib.contextmanager
    def store(self) -> Iterator[str]:
        """A store on the client's core, as its URL."""
        (port,) = free_ports(1)
        folder = self.directory / "store"
        folder.mkdir()
        argv = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        argv += ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
        with self.running(self.spawn("redis-server", argv, port, core=self.settings.client_core), listens):
            yield f"redis://127.0.0.1:{port}"

    def start_with(self, store: str) -> tuple[float, float]:
        """Milliseconds until a new replica answers, and its resident size."""
        began = time.perf_counter()
        server = self.spawn_gateway(GATEWAY, NOBODY, NOBODY, store=store)
        try:
            server.wait_until(answers_hits, pause=0)
            return (time.perf_counter() - began) * 1000, server.resident_mib()
        finally:
            server.stop()

    def grow(self, store: str, upstream: int, count: int, seconds: int) -> replicas.Growth:
        with contextlib.ExitStack() as stack:
            servers = []
            for number in range(count):
                port, admin, text = replicas.config(self.token_file, store, upstream, count)
                config = self.directory / f"fleet-{count}-{number}.yaml"
                config.write_text(text)
                argv = [str(self.settings.gateway), "serve", "--config", str(config)]
                server = self.spawn(f"fleet-{count}-{number}", argv, port)
                stack.enter_context(self.running(server, replicas.is_in_contact))
                servers.append((server, admin))
            progress(f"replicas: {count} at once")
            return replicas.grow(servers, seconds)

    def start(self) -> Table:
        """From spawning the process to the first 200, connecting in a tight loop."""
        names = self.candidates(with_reference=True)
        times: dict[str, list[float]] = {name: [] for name in names}
        for number in range(STARTS + 1):
            for name in names:
                progress(f"start {number} of {STARTS}: {name}")
                began = time.perf_counter()
                server = self.spawn_candidate(name)
                try:
                    server.wait_until(answers_hits, pause=0)
                    elapsed = time.perf_counter() - began
                finally:
                    server.stop(patience=0)
                if number > 0:  # the first start reads the binary from the disk
                    times[name].append(elapsed * 1000)
        title = f"from spawn to the first answer, {STARTS} times"
        table = Table("start", title, ["", "median ms", "min", "max"])
        for name, taken in times.items():
            figures = (statistics.median(taken), min(taken), max(taken))
            table.rows.append([name, *(f"{figure:.1f}" for figure in figures)])
        median = statistics.median(times[GATEWAY])
        table.remarks.append(f"gateway: {against(median, TARGET_START_MS, ' ms')}")
        table.data = {"milliseconds": times}
        return table

    def resident(self) -> Table:
        """VmRSS of a fresh process after its first answer, and after a run of hits."""
        seconds = self.settings.seconds
        header = ["", "after start, MiB", f"after {seconds} s of hits, MiB"]
        table = Table("resident", "memory", header)
        for name in self.candidates(with_reference=True):
            progress(f"resident: {name}")
            with self.running(self.spawn_candidate(name)) as server:
                time.sleep(0.5)
                after_start = server.resident_mib()
                hits = drive(server, WORKLOADS["hit64"], seconds, self.settings.client_core)
            table.rows.append([name, f"{after_start:.1f}", f"{hits.resident_mib:.1f}"])
            table.data[name] = {"start_mib": after_start, "hits_mib": hits.resident_mib}
        verdict = against(table.data[GATEWAY]["start_mib"], TARGET_RESIDENT_MIB, " MiB")
        table.remarks.append(f"gateway after start: {verdict}")
        with self.running(self.spawn_gateway(KEEPER, NOBODY, NOBODY)) as server:
            fill(server.port, KEPT)
            kept = server.resident_mib()
        table.data[KEEPER] = {"kept_mib": kept}
        table.remarks.append(f"with {KEPT:,} answers of 4 KiB: {kept:.1f} MiB, {against(kept, TARGET_HELD_MIB, ' MiB')}")
        return table

    def binary(self) -> Table:
        table = Table("binary", "size of the executable", ["", "MiB"])
        for name in self.candidates(with_reference=False):
            size = self.gateway_binary(name).stat().st_size / MIB
            table.rows.append([name, f"{size:.1f}"])
            table.data[name] = {"mib": size}
        verdict = against(table.data[GATEWAY]["mib"], TARGET_BINARY_MIB, " MiB")
        table.remarks.append(f"gateway: {verdict}")
        return table

    def canary_lines(self) -> list[str]:
        if not self.canary_figures:
            return []
        figure = statistics.median(self.canary_figures)
        lines = [
            f"canary: {figure:.2f} µs of CPU per request (quiet machine: {CANARY_QUIET_US:.1f})"
        ]
        if figure > CANARY_NOISY_US:
            lines.append(f"canary above {CANARY_NOISY_US} µs: machine is noisy, read ratios only")
        return lines


def answers_ordinary(server: Server) -> bool:
    try:
        evaluations.ordinary(server, 0.001)
    except OSError:
        return False
    return True


def tabulate(name: str, rounds: Mapping[str, Sequence[Round]], remarks: Sequence[str]) -> Table:
    scenario = WORKLOADS[name]
    with_children = any(one.children_us > 0 for one in rounds[GATEWAY])
    children_header = ["children µs"] if with_children else []
    with_heads = any(one.heads > 0 for one in rounds[GATEWAY])
    heads_header = ["HEADs", "registry µs/HEAD"] if with_heads else []
    columns = ["CPU µs", "min", *children_header, *heads_header, "req/s", "p50", "p99", "RSS MiB"]
    header = ["", *columns]
    table = Table(name, scenario.title, header)
    for server, driven in rounds.items():
        median = Round(
            *(
                statistics.median(getattr(one, field.name) for one in driven)
                for field in dataclasses.fields(Round)
            )
        )
        canary_label = f"{CANARY} (64 connections)"
        table.rows.append(
            [
                canary_label if server == CANARY else server,
                f"{median.cpu_us:.2f}",
                f"{min(one.cpu_us for one in driven):.2f}",
                *([f"{median.children_us:.2f}"] if with_children else []),
                *([f"{median.heads:.2f}", f"{median.head_us:.0f}"] if with_heads else []),
                f"{median.requests_per_second:.0f}",
                latency(median.p50_us),
                latency(median.p99_us),
                f"{driven[-1].resident_mib:.1f}",
            ]
        )
    targets = {
        REFERENCE: scenario.target,
        HYPER: None,
        LOOP: None,
        BARE_SERVER: TARGET_SERVER_RATIO,
        others.NGINX: None,
        STATIC: TARGET_JWT_RATIO,
        AXUM: TARGET_EDGE_RATIO,
        BASELINE: TARGET_BASELINE_RATIO,
    }
    ratios = [
        Ratio.between(over, rounds[GATEWAY], rounds[over]) for over in targets if over in rounds
    ]
    table.remarks = [*(ratio.text(targets[ratio.over]) for ratio in ratios), *remarks]
    if others.GO in rounds:
        by_go = Ratio.between(GATEWAY, rounds[others.GO], rounds[GATEWAY], of=others.GO)
        table.remarks.append(f"{by_go.text(None)}, {at_least(by_go.median, TARGET_GO_RATIO)}")
    if HYPER in rounds:
        by_hyper = Ratio.between(REFERENCE, rounds[HYPER], rounds[REFERENCE], of=HYPER)
        table.remarks.append(by_hyper.text(None))
    table.data = {
        "rounds": {server: [asdict(one) for one in driven] for server, driven in rounds.items()},
        "ratios": {ratio.over: asdict(ratio) for ratio in ratios},
    }
    return table


def times_cheaper(rounds: Mapping[str, Sequence[Round]]) -> list[str]:
    """How many times cheaper a hit is than looking up: for the gateway, and with the registry."""
    lines = []
    for lane in (HIT, HIT_64):
        for who, with_registry in (("the gateway", False), ("gateway and registry", True)):
            times = [
                (whole_cpu_us(miss) + with_registry * miss.heads * miss.head_us) / whole_cpu_us(hit)
                for miss, hit in zip(rounds[GATEWAY], rounds[lane])
            ]
            line = f"{lane}, is cheaper for {who}: {statistics.median(times):.0f} times"
            line += f" ({min(times):.0f} to {max(times):.0f})"
            if with_registry and lane == HIT_64:
                line += f", {at_least(statistics.median(times), TARGET_TIMES_CHEAPER)}"
            lines.append(line)
    return lines
