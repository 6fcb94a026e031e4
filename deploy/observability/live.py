"""Rules and dashboard against a running gateway that a real Prometheus scrapes: on a good day, on a bad one, and when the gateway has ended.

The alerts run without their `for`, so that a wrong one fires at once.
"""

import math
import re
import resource
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import yaml

from scene import Scene, wait_until

OPENAPI = Path(__file__).resolve().parent.parent.parent / "openapi.yaml"
# What Grafana puts in place of these.
VARIABLES = {"$__rate_interval": "5m", "$__range": "5m", "$namespace": ".*", "$route": ".*"}
# Panels that are empty while nothing is wrong.
EMPTY_ON_GOOD_DAYS = {"Alerts", "Runs without an answer"}
# What the bad day is made of. The others need hours, a broken API server, or a defect; rules_test.yaml has them.
BAD_DAY = {
    "AppsetGatewayAnswersHeld", "AppsetGatewayRouteFailing", "AppsetGatewayRequestsFailing", "AppsetGatewayNearMaxInFlight",
    "AppsetGatewayOverloaded", "AppsetGatewaySourceFailing", "AppsetGatewaySourceLimits", "AppsetGatewayStoreAway",
    "AppsetGatewayDiskErrors", "AppsetGatewayReloadFailed", "AppsetGatewayCertificateExpires", "AppsetGatewayCallsRefused",
    "AppsetGatewayTokenReviewsFailing", "AppsetGatewayHooksRefused", "AppsetGatewaySpansLost",
}


def check(gateway, rules, alerts, dashboard, fault):
    """Reports problems to `fault`. Returns how many queries gave data."""
    with tempfile.TemporaryDirectory() as folder, Scene(gateway.resolve(), Path(folder)) as scene:
        scene.start_gateway()
        scene.start_prometheus(write_rules(Path(folder), rules))
        scene.wait_until_ready()

        dashboard = {"panels": [panel for panel in dashboard["panels"] if not is_of_plugins(panel)]}
        good_day(scene)
        if firing := fired(scene, "4s"):
            fault("good day", f"these alerts fire, though nothing is wrong: {', '.join(sorted(firing))}")
        check_names(scene, alerts, dashboard, fault)
        checked = subprocess.run(["promtool", "check", "metrics"], input=scene.metrics(), capture_output=True, text=True)
        if checked.returncode != 0:
            fault("promtool check metrics", checked.stderr.strip())
        panels = [panel for panel in dashboard["panels"] if panel["title"] not in EMPTY_ON_GOOD_DAYS]
        count = check_panels(scene, panels, fault)

        bad_day(scene)
        expect(scene, BAD_DAY, "5m", "bad day", fault)  # some are over within seconds
        count += check_panels(scene, [panel for panel in dashboard["panels"] if panel not in panels], fault)
        check_texts(scene, fault)

        scene.gateway.kill()
        expect(scene, {"AppsetGatewayAbsent", "AppsetGatewayTargetDown"}, "2s", "the gateway has ended", fault)
    return count


def is_of_plugins(panel):
    """Whether a panel shows cmp-gateway, which is another program."""
    return any("cmp_gateway_" in target["expr"] for target in panel.get("targets", []))


def write_rules(folder, text):
    rules = yaml.safe_load(text)
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump(rules))
    return file


# --- days --------------------------------------------------------------------------------------------------------------------


def good_day(scene):
    for number in range(6):
        calls = [("tenants", {}), ("limited", {}), ("images", {"tag": f"t{number}"}), ("program", {"seconds": "0"}),
                 ("tenants", {"token": scene.a_jwt()})]
        for route, parameters in calls:
            if (status := scene.call(route, **parameters)) != 200:
                raise AssertionError(f"{route}: {status}: {scene.log.read_text().splitlines()[-1]}")
        if number in (1, 3):
            change(scene)
        time.sleep(0.4)
    # Further scrapes, so that there are rates of everything.
    time.sleep(2)


def change(scene):
    """Changes an answer, and waits until Argo CD was told. A call meanwhile would get the new answer, and nobody would be told."""

    def told():
        return int(re.search(r"^appset_gateway_event_to_refresh_duration_seconds_count (\d+)", scene.metrics(), re.MULTILINE)[1])

    before = told()
    scene.sources.serial += 1
    scene.deliver("tenants")
    wait_until("Argo CD is told of a change", lambda: told() > before, 30)


def bad_day(scene):
    """Everything that can go wrong within seconds."""
    scene.sources.is_well = False
    scene.make_certificate(3)
    scene.write_config(routes=[{"name": "nothing"}])
    busy = [scene.calls.submit(scene.call, "program", seconds="2.5") for _ in range(8)]
    for _ in range(10):
        scene.call("images", token="wrong", tag="x")
        scene.deliver("tenants", token="wrong")
        scene.deliver("tenants", token="wrong")
        time.sleep(0.25)
    for one in busy:
        one.result()
    for number in range(6):
        for route in ("tenants", "limited", "broken"):
            scene.call(route)
        scene.call("tenants", token=scene.a_jwt())
        time.sleep(0.3)
    # A full disk: the gateway can write no file.
    resource.prlimit(scene.gateway.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    scene.call("images", tag="not-yet-asked")
    scene.store.send_signal(signal.SIGKILL)


# --- checks ------------------------------------------------------------------------------------------------------------------


def fired(scene, window):
    """The alerts that fired within the last `window`."""
    return {labels["alertname"] for labels, _ in scene.query(f'count_over_time(ALERTS{{alertstate="firing"}}[{window}])')}


def expect(scene, wanted, window, when, fault):
    """Waits until the alerts `wanted` have fired within the last `window`."""
    missing = set(wanted)

    def are_there():
        missing.difference_update(fired(scene, window))
        return not missing

    try:
        wait_until("alerts", are_there, 20)
    except TimeoutError:
        fault(when, f"these alerts do not fire: {', '.join(sorted(missing))}")


def check_texts(scene, fault):
    """Checks that Prometheus could fill in the annotations of the alerts that fire."""
    for alert in scene.api("alerts")["alerts"]:
        for key, text in alert["annotations"].items():
            if re.search(r"<no value>|<error|\{\{|  | ,| \.", text) or text != text.strip():
                fault(alert["labels"]["alertname"], f"{key} reads: {text}")


def check_panels(scene, panels, fault):
    """Runs the queries of these panels. Returns their number."""
    count = 0
    for panel in panels:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            try:
                values = [value for _, value in scene.query(expression)]
            except ValueError as error:
                fault(f"dashboard: {panel['title']}", f"{error}: {expression}")
                continue
            if all(math.isnan(value) for value in values):
                fault(f"dashboard: {panel['title']}", f"no data for {expression}")
            count += 1
    return count


def check_names(scene, alerts, dashboard, fault):
    """Checks that the gateway has each metric that a rule or a panel names, with each value of a label that they compare it with."""
    codes = set(re.search(r"\n    Code:.*?enum:\n((?: +- \w+\n)+)", OPENAPI.read_text(), re.DOTALL)[1].split()) | {"ok", "cancelled"}
    expressions = [(rule["alert"], rule["expr"]) for rule in alerts]
    expressions += [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", [])]
    asked = set()
    for where, expression in expressions:
        for metric, matchers in re.findall(r"\b((?:appset_gateway|process)_\w+|up)\b(?:\{([^}]*)\})?", expression):
            wanted = {metric}
            for label, operator, value in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', matchers):
                if "$" in value or label in ("job", "route"):
                    continue
                values = set(value.split("|") if "~" in operator else [value])
                if label == "code":  # a code is counted from its first use
                    for code in values - codes:
                        fault(where, f"there is no code {code}")
                else:
                    wanted |= {f'{metric}{{{label}="{one}"}}' for one in values}
            for selector in wanted - asked:
                asked.add(selector)
                if not scene.query(f"count({selector})"):
                    fault(where, f"the gateway has no {selector}")
