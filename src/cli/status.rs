//! `appset-gateway status`: what is wrong with a running gateway, in one screen.

use std::{process::ExitCode, time::Duration};

use clap::Args;

use super::{
    Output, exit,
    gateway::{GatewayArgs, HELP, view},
    print, print_json,
    terminal::{Colour, Row, Terminal},
};
use crate::overview::{
    routes::{RouteState, RouteView, Routes},
    status::{Alert, AlertKind, Severity, Status},
};
use domain::{units::plural, visible::visible};

/// How many alerts of one kind are printed, so that many of one kind hide no other. JSON has more.
const MAX_OF_KIND: usize = 5;
/// How many routes are printed. JSON has all.
const MAX_ROUTES: usize = 20;

/// The arguments of `status`.
#[derive(Debug, Args)]
#[command(after_help = format!("{HELP}

Examples:
  appset-gateway status
  kubectl exec deploy/appset-gateway -- appset-gateway status -o json

A source counts as failing for an hour after its last failure.
Exit codes: 0 nothing is held and no source fails, 1 otherwise, or the gateway cannot be reached."))]
pub(crate) struct StatusArgs {
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    gateway: GatewayArgs,
}

/// Asks the gateway, and prints its reply.
pub(crate) fn run(arguments: &StatusArgs) -> anyhow::Result<ExitCode> {
    let gateway = arguments.gateway.find()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reply = runtime.block_on(gateway.get_known(&["status"], &[]))?;
    let status: Status = view(reply.clone())?;
    if arguments.output == Output::Json {
        print_json(&reply)?;
    } else {
        let routes: Routes = view(runtime.block_on(gateway.get_known(&["routes"], &[]))?)?;
        print(&shown(&status, routes.routes, Terminal::of_stdout()).join("\n"))?;
    }
    Ok(if status.is_held_or_failing { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS })
}

/// The lines of the screen.
fn shown(status: &Status, mut routes: Vec<RouteView>, terminal: Terminal) -> Vec<String> {
    let counts = &status.counts;
    let up = humantime::format_duration(Duration::from_secs(status.uptime_seconds));
    let mut lines = vec![
        terminal.paint(Colour::Bold, &format!("appset-gateway {}, {}, up {up}", status.version, status.phase)),
        format!(
            "{} route{}, {} answer{} in memory, {} parameter set{}; {} of {} requests under way, {} run{}",
            counts.routes,
            plural(counts.routes),
            counts.answers,
            plural(counts.answers),
            counts.parameter_sets,
            plural(counts.parameter_sets),
            counts.requests_in_flight,
            counts.requests_in_flight_limit,
            counts.runs_in_flight,
            plural(counts.runs_in_flight),
        ),
        format!("configuration {} in use since {}", status.generation, status.configured_at),
        String::new(),
    ];
    if status.alerts.is_empty() {
        lines.push(terminal.paint(Colour::Green, "nothing is wrong"));
    } else {
        let of_kinds = status.alerts.chunk_by(|one, other| one.kind == other.kind);
        let alerts: Vec<Row> = of_kinds.flat_map(of_kind).collect();
        lines.extend(terminal.table(&["WRONG NOW", "ABOUT", "SINCE", "MESSAGE"], &alerts, 3));
        if status.alerts_left_out > 0 {
            lines.push(format!("and {} more of these kinds", status.alerts_left_out));
        }
        lines.extend(advice(status).map(str::to_owned));
    }
    routes.sort_by_key(|route| route.state);
    lines.push(String::new());
    let shown: Vec<Row> = routes.iter().take(MAX_ROUTES).map(of_route).collect();
    lines.extend(terminal.table(&["ROUTE", "STATE", "SETS", "NEWEST", "OLDEST", "LAST SUCCESS"], &shown, 0));
    if routes.len() > shown.len() {
        lines.push(format!("and {} more that are no worse", routes.len() - shown.len()));
    }
    lines
}

/// The alerts of one kind.
fn of_kind(alerts: &[Alert]) -> Vec<Row> {
    let mut rows: Vec<Row> = alerts.iter().take(MAX_OF_KIND).map(of_alert).collect();
    if alerts.len() > MAX_OF_KIND {
        let more = format!("and {} more; -o json has them", alerts.len() - MAX_OF_KIND);
        rows.push(Row {
            cells: vec![name(alerts[0].kind).to_owned(), String::new(), String::new(), more],
            colour: None,
        });
    }
    rows
}

fn of_alert(alert: &Alert) -> Row {
    let colour = if alert.severity == Severity::Critical { Colour::Red } else { Colour::Yellow };
    let about = alert.route.as_ref().or(alert.subject.as_ref()).map_or_else(String::new, |about| visible(about));
    let since = alert.since.as_deref().and_then(|since| since.split('.').next()).unwrap_or_default();
    let cells = vec![name(alert.kind).to_owned(), about, visible(since), visible(&alert.message)];
    Row { cells, colour: Some(colour) }
}

fn of_route(route: &RouteView) -> Row {
    let age = |seconds: Option<u64>| {
        seconds.map_or_else(
            || "-".to_owned(),
            |seconds| humantime::format_duration(Duration::from_secs(seconds)).to_string(),
        )
    };
    let (state, colour) = match route.state {
        RouteState::Held => ("held", Some(Colour::Red)),
        RouteState::Failing => ("failing", Some(Colour::Red)),
        RouteState::Stale => ("stale", Some(Colour::Yellow)),
        RouteState::Good => ("good", Some(Colour::Green)),
        RouteState::NeverQueried => ("never called", None),
    };
    let last = route.last_success_at.as_deref().and_then(|at| at.split('.').next()).unwrap_or("never");
    let cells = vec![
        visible(&route.name),
        state.to_owned(),
        route.parameter_sets.to_string(),
        age(route.newest_age_seconds),
        age(route.oldest_age_seconds),
        visible(last),
    ];
    Row { cells, colour }
}

/// The next commands, by kind of problem.
fn advice(status: &Status) -> impl Iterator<Item = &'static str> {
    let has = |kinds: &[AlertKind]| status.alerts.iter().any(|alert| kinds.contains(&alert.kind));
    let held = "`appset-gateway held list` shows what would be deleted; `held release` and `held reject` decide.";
    let failing = "`appset-gateway explain ROUTE -a SET -p NAME=VALUE` shows what a source says now, step by step.";
    let held = Some(held).filter(|_| has(&[AlertKind::Held]));
    held.into_iter()
        .chain(Some(failing).filter(|_| has(&[AlertKind::Failing, AlertKind::Fallback, AlertKind::Element])))
}

fn name(kind: AlertKind) -> &'static str {
    match kind {
        AlertKind::Held => "held",
        AlertKind::Failing => "failing",
        AlertKind::Fallback => "fallback",
        AlertKind::Element => "element",
        AlertKind::BreakerOpen => "breaker open",
        AlertKind::StoreAway => "store away",
        AlertKind::StoreLostRecords => "store lost",
        AlertKind::Disk => "disk",
        AlertKind::ReloadRefused => "reload",
        AlertKind::Certificate => "certificate",
        AlertKind::IssuerKeys => "issuer keys",
        AlertKind::HooksRefused => "hooks",
        AlertKind::NearLimit => "near limit",
        AlertKind::Draining => "draining",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overview::status::Counts;

    #[test]
    fn many_alerts_of_one_kind_hide_no_other() {
        let alert = |kind, message: &str| Alert {
            kind,
            severity: Severity::Critical,
            message: message.to_owned(),
            since: None,
            route: Some("r".to_owned()),
            id: None,
            subject: None,
            requesters: Vec::new(),
        };
        let mut alerts = vec![alert(AlertKind::Held, "lost"); 100];
        alerts.push(alert(AlertKind::StoreAway, "no contact"));
        let counts = Counts {
            routes: 1,
            answers: 0,
            parameter_sets: 0,
            held: 400,
            failing: 0,
            fallback: 0,
            unknown_elements: 0,
            requests_in_flight: 0,
            requests_in_flight_limit: 1,
            runs_in_flight: 0,
        };
        let status = Status {
            version: String::new(),
            now: String::new(),
            started_at: String::new(),
            uptime_seconds: 1,
            phase: "serving".to_owned(),
            generation: 1,
            configured_at: String::new(),
            is_held_or_failing: true,
            alerts,
            alerts_left_out: 300,
            counts,
        };
        let lines = shown(&status, Vec::new(), Terminal::default());
        assert_eq!(lines.iter().filter(|line| line.ends_with("lost")).count(), 5, "{lines:#?}");
        assert!(lines.iter().any(|line| line.ends_with("and 95 more; -o json has them")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.ends_with("no contact")), "{lines:#?}");
        assert!(lines.contains(&"and 300 more of these kinds".to_owned()), "{lines:#?}");
    }
}
