#!/usr/bin/env python3
"""Makes dashboard.json, the Grafana dashboard of the gateway.

usage: deploy/observability/dashboard.py           write dashboard.json
       deploy/observability/dashboard.py --check   exit 1 if dashboard.json is not what this script makes

Rows are in order of danger. A panel is one line: a title, what it shows, and its queries with a legend each. `$here` stands for the
selection of namespace, `$routes` for that of namespace and route. Replicas share what they know (`max`), and add up what they do
(`sum`). A metric of the process is only that of a gateway where `appset_gateway_build_info` has the same instance.
"""

import json
import sys
from pathlib import Path

FILE = Path(__file__).with_name("dashboard.json")
UID = "appset-gateway"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
SELECTIONS = {"$here": 'namespace=~"$namespace"', "$routes": 'namespace=~"$namespace", route=~"$route"'}
GATEWAYS = " and on (namespace, job, instance) appset_gateway_build_info"
GREEN, ORANGE, RED = "green", "orange", "red"

# What counts as a failure: as in rules.yaml.
BAD_CODES = 'code!~"ok|cancelled|invalid_input"'
BAD_OUTCOMES = 'outcome=~"failed|connect|untrusted|forbidden|timeout|broken|too_large|backoff|no_permit"'


def query(expression):
    for name, selection in SELECTIONS.items():
        expression = expression.replace(name, selection)
    return expression


def per_second(metric, by, selection="$here"):
    return f"sum by ({by}) (rate(appset_gateway_{metric}{{{selection}}}[$__rate_interval]))"


def share_of(bad, metric, by="", selection="$here", interval="$__rate_interval"):
    """The share of `bad` in a counter. 0, not nothing, while no bad one was ever counted."""
    bads, alls = (f"sum by ({by}) (rate(appset_gateway_{metric}{{{chosen}}}[{interval}]))" for chosen in (f"{selection}, {bad}", selection))
    return f"({bads} or 0 * {alls}) / {alls}"


def quantile(share, metric, by="", selection="$here"):
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate(appset_gateway_{metric}_bucket{{{selection}}}[$__rate_interval])))"


def thresholds(*steps):
    """From `(color, value)`; the first one has no value."""
    return {"mode": "absolute", "steps": [{"color": color, "value": value} for color, value in steps]}


ABOVE_ZERO = thresholds((GREEN, None), (RED, 1))


def target(expression, legend="", **more):
    return {"datasource": DATASOURCE, "expr": query(expression), "legendFormat": legend, "range": True, **more}


def panel(kind, title, description, targets, unit="short", width=8, height=7, defaults=None, options=None, **more):
    for index, one in enumerate(targets):
        one["refId"] = chr(ord("A") + index)
    return {
        "type": kind, "title": title, "description": description, "datasource": DATASOURCE, "targets": targets,
        "fieldConfig": {"defaults": {"unit": unit, **(defaults or {})}, "overrides": []}, "options": options or {},
        "gridPos": {"w": width, "h": height}, **more,
    }


def stat(title, description, expression, unit="short", steps=ABOVE_ZERO, **defaults):
    """One number now, on a coloured ground."""
    options = {"colorMode": "background", "graphMode": "none", "textMode": "value", "reduceOptions": {"calcs": ["lastNotNull"]}}
    targets = [target(expression, instant=True, range=False)]
    return panel("stat", title, description, targets, unit, 4, 4, {"thresholds": steps, **defaults}, options)


def lines(title, description, *queries, unit="short", stacked=False, width=8, most=None):
    """Series over time. Each query is an expression and its legend."""
    custom = {"fillOpacity": 20 if stacked else 5, "showPoints": "never", "stacking": {"mode": "normal" if stacked else "none"}}
    options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    defaults = {"custom": custom, "min": 0} | ({"max": most} if most else {})
    return panel("timeseries", title, description, [target(*query) for query in queries], unit, width, 7, defaults, options)


def table(title, description, queries, units, sort, height=8):
    """A line for each route or alert, a column for each query."""
    shown = [target(expression, instant=True, range=False, format="table") for expression in queries.values()]
    # Grafana numbers the columns of values only if there are several.
    names = {f"Value #{chr(ord('A') + index)}" if len(queries) > 1 else "Value": name for index, name in enumerate(queries)}
    hidden = dict.fromkeys(["Time", "__name__", "job", "pod", "container", "endpoint", "service"], True)
    result = panel("table", title, description, shown, width=24, height=height, options={"sortBy": [{"displayName": sort, "desc": True}]})
    result["transformations"] = [{"id": "merge", "options": {}},
                                 {"id": "organize", "options": {"excludeByName": hidden, "renameByName": names}}]
    for name, unit in units.items():
        by_name = {"id": "byName", "options": name}
        result["fieldConfig"]["overrides"].append({"matcher": by_name, "properties": [{"id": "unit", "value": unit}]})
    return result


def wrong_now():
    return [
        stat("Answers held", "Answers that would delete Applications. `appset-gateway held list` shows them.",
             "sum(max by (namespace, job, route) (appset_gateway_held_answers{$routes}))"),
        stat("Stale for", "How long the oldest fallback answer for a failing source has been stale.",
             "max(clamp_min(appset_gateway_route_fallback_age_seconds{$routes} - appset_gateway_route_ttl_seconds{$routes}, 0))",
             "s", thresholds((GREEN, None), (ORANGE, 600), (RED, 3600))),
        stat("Calls that fail", "The share of calls with an error in the last 15 minutes; parameters that a route cannot use do not count.",
             share_of(BAD_CODES, "requests_total", interval="15m"),
             "percentunit", thresholds((GREEN, None), (ORANGE, 0.01), (RED, 0.1)), noValue="no calls"),
        stat("Sources that fail", "Destinations that failed more than half of the requests of the last 15 minutes.",
             f"count({share_of(BAD_OUTCOMES, 'outbound_requests_total', 'destination', interval='15m')} > 0.5) or vector(0)"),
        stat("Without the store", "Replicas that have no contact with the shared store. 0 without `cache.shared`.",
             "count(appset_gateway_store_in_contact{$here} == 0) or vector(0)"),
        stat("Refused configurations", "Gateways whose latest configuration cannot be used.",
             "count(appset_gateway_config_last_reload_successful{$here} == 0) or vector(0)"),
        table("Alerts", "Alerts of rules.yaml that fire or wait.",
              {"since": 'ALERTS_FOR_STATE{alertname=~"AppsetGateway.*"} * 1000'}, {"since": "dateTimeFromNow"}, "since", 6),
    ]


def answers():
    return [
        lines("Calls by code", "`ok`, or the code of the error.",
              (per_second("requests_total", "code", '$here, route=~"$route|none"') + " > 0", "{{code}}"),
              unit="reqps", stacked=True),
        lines("Calls that fail, by route", "The share of calls with an error. `none`: no route was reached.",
              (share_of(BAD_CODES, "requests_total", "route", '$here, route=~"$route|none"'), "{{route}}"),
              unit="percentunit", most=1),
        lines("How long calls take", "Argo CD gives up after 30 s.",
              (quantile(0.5, "request_duration_seconds", selection="$routes"), "p50"),
              (quantile(0.99, "request_duration_seconds", selection="$routes"), "p99"), unit="s"),
        lines("Where answers come from", "`stale_if_error` and `failing`: the source gives no answer.",
              (per_second("cache_lookups_total", "state", "$routes"), "{{state}}"), unit="reqps", stacked=True),
        lines("Slowest routes", "The 99th percentile of calls, by route.",
              (quantile(0.99, "request_duration_seconds", "route", "$routes"), "{{route}}"), unit="s"),
        lines("Calls under way", "At the limit, `server.maxInFlight`, calls are refused.",
              ("appset_gateway_requests_in_flight{$here}", "{{instance}}"),
              ("max(appset_gateway_requests_in_flight_limit{$here})", "limit")),
    ]


def routes():
    latest = "max by (namespace, route) ({}{{$routes}})"
    last = latest.format("appset_gateway_route_last_success_timestamp_seconds")
    return [
        table("Routes", "`last success` is empty if none came since the start; `stale for` is 0 unless an answer is the fallback for a failing source.", {
            "held": latest.format("appset_gateway_held_answers"),
            "last success": f"({last} > 0) * 1000",
            "stale for": latest.format("appset_gateway_route_fallback_age_seconds"),
            "failures in an hour": "sum by (namespace, route) (increase(appset_gateway_backend_failures_total{$routes}[1h]))",
            "parameter sets": latest.format("appset_gateway_route_parameter_sets"),
            "calls in an hour": "sum by (namespace, route) (increase(appset_gateway_requests_total{$routes}[1h]))",
            "ttl": latest.format("appset_gateway_route_ttl_seconds"),
        }, {"last success": "dateTimeFromNow", "stale for": "s", "ttl": "s", "failures in an hour": "short"}, "held"),
        lines("Parameter sets", "Each is an Application. A step down that nobody wanted is what the guard is for.",
              (latest.format("appset_gateway_route_parameter_sets"), "{{route}}")),
        lines("Runs without an answer", "By cause. `held`: the guard holds the answer.",
              ("sum by (route, kind) (rate(appset_gateway_backend_failures_total{$routes}[$__rate_interval])) > 0", "{{route}} {{kind}}"),
              unit="ops"),
        lines("How long runs take", "The 99th percentile, by route.",
              (quantile(0.99, "backend_duration_seconds", "route", "$routes"), "{{route}}"), unit="s"),
        lines("Runs by outcome", "`unknown`: the backend could not tell.",
              (per_second("backend_duration_seconds_count", "outcome", "$routes"), "{{outcome}}"), unit="ops", stacked=True),
        lines("Candidates", "Comparisons with the candidates of routes (`shadow`).",
              (per_second("shadow_comparisons_total", "route, result", "$routes"), "{{route}} {{result}}"), unit="ops"),
        lines("Answers in memory", "The least used leave when `cache.memory` is full.",
              ("sum(appset_gateway_cache_entries{$here})", "answers")),
    ]


def sources():
    return [
        lines("Requests by destination", "`other`: hosts from templates, redirects and answers.",
              (per_second("outbound_requests_total", "destination"), "{{destination}}"), unit="reqps"),
        lines("Requests that fail, by destination", "A 4xx is no failure: registries answer so.",
              (share_of(BAD_OUTCOMES, "outbound_requests_total", "destination"), "{{destination}}"),
              unit="percentunit", most=1),
        lines("How long requests take", "The 99th percentile of attempts, by destination.",
              (quantile(0.99, "outbound_request_duration_seconds", "destination"), "{{destination}}"), unit="s"),
        lines("Requests by outcome", "`limited`, `throttled`: the account pauses. `backoff`: not sent, since the destination failed repeatedly.",
              (per_second("outbound_requests_total", "outcome") + " > 0", "{{outcome}}"), unit="reqps", stacked=True, width=12),
        lines("Pauses that destinations ask for", "Raise `cache.ttl`, use hooks, or use a credential with a higher limit.",
              (per_second("outbound_requests_total", "destination", '$here, outcome=~"limited|throttled"'), "{{destination}}"),
              unit="reqps", width=12),
    ]


def scripts():
    return [
        lines("Runs and programs", "Runs of all backends under way, and programs of scripts with their idle workers.",
              ("sum(appset_gateway_backend_runs_in_flight{$here})", "runs"), ("sum(appset_gateway_programs{$here})", "programs")),
        lines("Workers that ended", "`fault`: the worker broke its protocol. `memory`: it used more than `maxMemory`.",
              (per_second("workers_ended_total", "reason"), "{{reason}}"), unit="ops"),
        lines("Expressions and templates", "Evaluations in processes of their own. Anything but `done` and `wrong` costs too much.",
              (per_second("evaluations_total", "outcome"), "{{outcome}}"), unit="ops"),
    ]


def memory():
    return [
        lines("Contact with the store", "1 while a replica is in contact with the shared store.",
              ("appset_gateway_store_in_contact{$here}", "{{instance}}"), most=1),
        lines("Replicas in contact", "As each replica sees it, and whether they restore records, or lost some for good.",
              ("max(appset_gateway_store_replicas{$here})", "replicas"), ("max(appset_gateway_store_recovering{$here})", "restoring"),
              ("max(appset_gateway_store_has_lost_records{$here})", "lost records")),
        lines("How long the store takes", "The 99th percentile, by request.",
              (quantile(0.99, "store_request_duration_seconds", "request"), "{{request}}"), unit="s"),
        lines("Trouble with the store", "Requests that failed or got nowhere, commits that were decided again, records that cannot be read.",
              ("sum(rate(appset_gateway_store_errors_total{$here}[$__rate_interval]))", "failed"),
              ("sum(rate(appset_gateway_store_fruitless_total{$here}[$__rate_interval]))", "got nowhere"),
              ("sum(rate(appset_gateway_store_conflicts_total{$here}[$__rate_interval]))", "decided again"),
              ("sum(rate(appset_gateway_store_unreadable_total{$here}[$__rate_interval]))", "unreadable"), unit="ops"),
        lines("The file of last good answers", "Errors and losses are the ones to look at.",
              ("sum(rate(appset_gateway_disk_writes_total{$here}[$__rate_interval]))", "written"),
              ("sum(rate(appset_gateway_disk_errors_total{$here}[$__rate_interval]))", "errors"),
              ("sum(rate(appset_gateway_disk_lost_total{$here}[$__rate_interval]))", "lost"), unit="ops"),
        lines("Size of the answers in memory", "`cache.memory` is the limit.", ("appset_gateway_cache_size_bytes{$here}", "{{instance}}"),
              unit="bytes"),
    ]


def push():
    return [
        lines("Deliveries of hooks", "`unproven` and `malformed` are refused. `refused`: too many events wait.",
              (per_second("hook_deliveries_total", "hook, outcome"), "{{hook}} {{outcome}}"), unit="ops"),
        lines("Rechecks after events", "Questions that events concerned, and the result of each recheck.",
              (per_second("hook_rechecks_total", "result"), "{{result}}"),
              ("sum(rate(appset_gateway_hook_questions_total{$here}[$__rate_interval]))", "concerned"), unit="ops"),
        lines("From an event until Argo CD is notified", "Rechecks are repeated after 2, 10 and 60 s, since CI may be behind its events.",
              (quantile(0.5, "event_to_refresh_duration_seconds"), "p50"),
              (quantile(0.99, "event_to_refresh_duration_seconds"), "p99"), unit="s"),
        lines("ApplicationSets notified", "`failed`: the API server does not take it.",
              (per_second("refreshes_total", "result"), "{{result}}"),
              ("sum(rate(appset_gateway_refreshes_dropped_total{$here}[$__rate_interval]))", "dropped"), unit="ops"),
        lines("From another answer until Argo CD is notified", "An ApplicationSet that is notified often has to wait.",
              (quantile(0.5, "refresh_duration_seconds"), "p50"), (quantile(0.99, "refresh_duration_seconds"), "p99"), unit="s"),
        lines("Kubernetes Events", "Events on ApplicationSets.", (per_second("kubernetes_events_total", "result"), "{{result}}"), unit="ops"),
    ]


def callers():
    return [
        lines("Open connections", "", ("appset_gateway_connections{$here}", "{{instance}}")),
        lines("Connections that ended", "Many `crowded_out` or `refused` are a flood.",
              (per_second("connections_ended_total", "reason"), "{{reason}}"), unit="ops"),
        lines("Token reviews", "By the cluster's API server. `last_review`: it did not answer, and an earlier review was used.",
              (per_second("token_reviews_total", "outcome"), "{{outcome}}"),
              (per_second("token_reviews_spared_total", "reason"), "not sent: {{reason}}"), unit="ops"),
        lines("Age of issuers' keys", "They are read every few minutes.",
              ("time() - max by (issuer) (appset_gateway_issuer_keys_read_timestamp_seconds{$here})", "{{issuer}}"), unit="s"),
        lines("Reads of issuers' keys", "", (per_second("issuer_key_reads_total", "issuer, outcome"), "{{issuer}} {{outcome}}"), unit="ops"),
        stat("Keys of issuers", "", "sum(max by (issuer) (appset_gateway_issuer_keys{$here}))", steps=thresholds((GREEN, None)),
             noValue="no issuers"),
        stat("Certificate ends in", "Of `server.tls`; empty without TLS.",
             "min((appset_gateway_tls_certificate_not_after_seconds{$here} > 0) - time())", "s",
             thresholds((RED, None), (ORANGE, 86400), (GREEN, 7 * 86400)), noValue="no TLS"),
    ]


def plugins():
    """Of cmp-gateway, a program of its own, which live.py does not start."""
    def count(metric, by):
        return f"sum by ({by}) (rate(cmp_gateway_{metric}{{$here}}[$__rate_interval]))"

    buckets = "sum by (plugin, phase, le) (rate(cmp_gateway_phase_seconds_bucket{$here}[$__rate_interval]))"
    return [
        lines("Plugins: held manifests and failed discoveries", "Each is an error that keeps Argo CD from deleting. The log names the Application.",
              (count("held_total", "plugin"), "{{plugin}} held"), (count("discovery_failures_total", "plugin"), "{{plugin}} discovery"), unit="ops"),
        lines("Plugins: calls by code", "", (count("calls_total", "plugin, code") + " > 0", "{{plugin}} {{code}}"), unit="reqps", stacked=True),
        lines("Plugins: runs by their end", "An exit code, or `signal`, `timeout`, `output`, `left_behind`, `not_started`.",
              (count("runs_total", "plugin, end") + " > 0", "{{plugin}} {{end}}"), unit="ops", stacked=True),
        lines("Plugins: how long phases take", "The 99th percentile.", (f"histogram_quantile(0.99, {buckets})", "{{plugin}} {{phase}}"), unit="s"),
        lines("Plugins: runs and calls that wait", "", ("sum by (plugin) (cmp_gateway_running{$here})", "{{plugin}} running"),
              ("sum by (plugin) (cmp_gateway_queued{$here})", "{{plugin}} queued")),
        lines("Plugins: trees on the disk", "", ("sum(cmp_gateway_trees_bytes{$here})", "bytes"), unit="bytes"),
        lines("Relays: replicas", "Of all relays: a replica counts once for each.",
              ("sum by (plugin, state) (cmp_gateway_relay_replicas{$here})", "{{plugin}} {{state}}")),
        lines("Relays: tries by their outcome", "`unreached` and `broken` are repeated.",
              (count("relay_attempts_total", "plugin, outcome") + " > 0", "{{plugin}} {{outcome}}"), unit="ops", stacked=True),
        lines("Relays: archives sent and spared", "Spared: the replica had the files.",
              (count("relay_sent_bytes_total", "plugin"), "{{plugin}} sent"), (count("relay_spared_bytes_total", "plugin"), "{{plugin}} spared"), unit="Bps"),
        lines("Relays: archives and answers that are held", "", ("sum(cmp_gateway_relay_spool_bytes{$here})", "archives"),
              ("sum(cmp_gateway_relay_answers_bytes{$here})", "answers"), unit="bytes"),
        lines("Services: calls under way", "For a HorizontalPodAutoscaler.", ("sum by (plugin) (cmp_gateway_in_flight{$here})", "{{plugin}}")),
    ]


def process():
    return [
        stat("Gateways", "", "count(appset_gateway_build_info{$here})", steps=thresholds((RED, None), (GREEN, 1))),
        stat("Versions", "More than one during a rollout only.", "count(count by (version) (appset_gateway_build_info{$here}))",
             steps=thresholds((GREEN, None), (ORANGE, 2))),
        stat("Newest start", "", f"time() - max(process_start_time_seconds{{$here}}{GATEWAYS})", "s", thresholds((ORANGE, None), (GREEN, 600))),
        stat("Configuration since", "", "time() - min(appset_gateway_config_last_reload_success_timestamp_seconds{$here})", "s",
             thresholds((GREEN, None))),
        stat("Configurations loaded", "Since the start.", "max(appset_gateway_config_generation{$here})", steps=thresholds((GREEN, None))),
        stat("Reloads refused", "Within the range.",
             'sum(increase(appset_gateway_config_reloads_total{$here, outcome="failed"}[$__range]))', decimals=0),
        lines("CPU", "Of the gateway; programs of scripts are processes of their own.",
              (f"rate(process_cpu_seconds_total{{$here}}[$__rate_interval]){GATEWAYS}", "{{instance}}"), unit="percentunit"),
        lines("Resident memory", "Of the gateway; programs of scripts are processes of their own.",
              (f"process_resident_memory_bytes{{$here}}{GATEWAYS}", "{{instance}}"), unit="bytes"),
        lines("Open files and connections", "The share of what the process may open.",
              (f"process_open_fds{{$here}} / process_max_fds{{$here}}{GATEWAYS}", "{{instance}}"), unit="percentunit", most=1),
        lines("Threads", "", (f"process_threads{{$here}}{GATEWAYS}", "{{instance}}")),
        lines("Spans", "`dropped` and `failed` do not reach the collector.", (per_second("trace_spans_total", "outcome"), "{{outcome}}"),
              unit="ops"),
    ]


ROWS = {
    "Wrong now": wrong_now, "Answers": answers, "Routes": routes, "Sources": sources, "Scripts and expressions": scripts,
    "Store and file": memory, "Hooks and refreshes": push, "Callers and connections": callers, "Process": process,
    "Config management plugins": plugins,
}


def placed():
    """All panels with ids and places: each row from left to right, 24 columns wide."""
    panels, top = [], 0
    for title, make in ROWS.items():
        panels.append({"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}})
        top, left, height = top + 1, 0, 0
        for one in make():
            if left + one["gridPos"]["w"] > 24:
                top, left, height = top + height, 0, 0
            one["gridPos"] |= {"x": left, "y": top}
            left, height = left + one["gridPos"]["w"], max(height, one["gridPos"]["h"])
            panels.append(one)
        top += height
    for number, one in enumerate(panels, 1):
        one["id"] = number
    return panels


def variable(name, label, values):
    return {"type": "query", "name": name, "label": label, "datasource": DATASOURCE, "query": {"query": values, "refId": name},
            "definition": values, "refresh": 2, "sort": 1, "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"text": "All", "value": "$__all"}}


def dashboard():
    return {
        "uid": UID, "title": "appset-gateway", "tags": ["argocd", "appset-gateway"], "schemaVersion": 39, "version": 1, "editable": True,
        "description": "The server behind Argo CD's ApplicationSet plugin generator. Rows are in order of danger.",
        "time": {"from": "now-6h", "to": "now"}, "refresh": "1m", "timezone": "", "graphTooltip": 1, "annotations": {"list": []},
        "links": [],
        "templating": {"list": [
            {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1},
            variable("namespace", "Namespace", "label_values(appset_gateway_build_info, namespace)"),
            variable("route", "Route", 'label_values(appset_gateway_held_answers{namespace=~"$namespace"}, route)'),
        ]},
        "panels": placed(),
    }


def main(arguments):
    text = json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"
    if arguments == ["--check"]:
        if not FILE.exists() or FILE.read_text() != text:
            sys.exit(f"{FILE.name} is old: run deploy/observability/dashboard.py")
    elif arguments:
        sys.exit(__doc__.strip())
    else:
        FILE.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
