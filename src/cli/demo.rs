//! `appset-gateway demo`: the story of the crate `demo`, with a gateway in this process.

mod gateway;
mod show;

use std::{process::ExitCode, sync::Arc};

use anyhow::Context as _;
use clap::{Args, builder::PossibleValuesParser};
use serde_json::json;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
};

use self::{
    gateway::Running,
    show::{Printer, Silent},
};
use super::{Output, exit, print_json};
use demo::{
    report::{SceneReport, Side},
    scene::{SCENES, Scene, named},
    story::{Show, Stage, Story},
};

/// What to play, and how.
#[derive(Debug, Args)]
#[command(
    after_help = "It starts a gateway, its sources and Argo CD's part on this machine's loopback, and leaves no file behind. Minutes of the \
                  story pass in a moment.\n\nExit codes: 0 the gateway deleted nothing wrongly; 1 it did, or the story could not be played."
)]
pub(crate) struct DemoArgs {
    /// Play only this scene. Can be repeated.
    #[arg(long = "scene", value_name = "NAME", value_parser = PossibleValuesParser::new(SCENES.map(|scene| scene.name)))]
    scenes: Vec<String>,
    /// How many times as fast to play: 2 takes half of the time.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_speed)]
    speed: f64,
    /// Print no colours and no progress line, also on a terminal.
    #[arg(long)]
    plain: bool,
    /// Leave the gateway and its page running after the story, until Ctrl-C.
    #[arg(long)]
    stay: bool,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed.is_finite() && speed >= 0.01 => Ok(speed),
        _ => Err("write a number from 0.01 on, such as 2".to_owned()),
    }
}

/// Plays the scenes of the arguments.
pub(crate) fn run(arguments: &DemoArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(play(arguments));
    runtime.shutdown_background();
    code
}

async fn play(arguments: &DemoArgs) -> anyhow::Result<ExitCode> {
    let all = SCENES.iter().map(|scene| scene.name);
    let chosen: Vec<&'static Scene> = if arguments.scenes.is_empty() {
        all.filter_map(named).collect()
    } else {
        arguments.scenes.iter().filter_map(|name| named(name)).collect()
    };
    // Before the first line: without a handler, Ctrl-C would end the process at once.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let stage = Stage::start().await?;
    let running = Running::start(&stage).await.context("the gateway of the story cannot start")?;
    let mut story = Story::new(stage, running.at(), arguments.speed)?;
    let reports = match arguments.output {
        Output::Json => {
            let (reports, is_whole) =
                scenes(&mut story, &chosen, &running, &mut Silent, (&mut interrupts, &Notify::new())).await?;
            print_json(&document(&reports, is_whole))?;
            reports
        }
        Output::Text => {
            let gone = Arc::new(Notify::new());
            let length = chosen.iter().map(|scene| story.length(scene)).sum();
            let mut printer = Printer::new(arguments.plain, chosen.len(), length, Arc::clone(&gone));
            printer.introduce(&running);
            let (reports, is_whole) =
                scenes(&mut story, &chosen, &running, &mut printer, (&mut interrupts, &gone)).await?;
            printer.sum_up(&reports, is_whole);
            if arguments.stay && is_whole {
                printer.stay(&running);
                interrupts.recv().await;
            }
            reports
        }
    };
    running.close().await;
    let is_good = reports.iter().all(|report| report.gateway.deleted_wrongly == 0);
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// Plays `chosen` until the end, or until Ctrl-C or the reader is `gone`. Returns the scenes that were played, and whether these are all.
async fn scenes(
    story: &mut Story,
    chosen: &[&'static Scene],
    running: &Running,
    show: &mut impl Show,
    (interrupts, gone): (&mut Signal, &Notify),
) -> anyhow::Result<(Vec<SceneReport>, bool)> {
    let mut reports = Vec::new();
    for scene in chosen {
        tokio::select! {
            report = story.play(scene, running, show) => {
                reports.push(report.with_context(|| format!("the scene {} cannot be played", scene.name))?);
            }
            _ = interrupts.recv() => return Ok((reports, false)),
            () = gone.notified() => return Ok((reports, false)),
        }
    }
    Ok((reports, true))
}

fn document(reports: &[SceneReport], is_whole: bool) -> serde_json::Value {
    let total = |side: fn(&SceneReport) -> &Side| {
        let sides = || reports.iter().map(side);
        let deleted: usize = sides().map(|side| side.deleted.len()).sum();
        let wrongly: usize = sides().map(|side| side.deleted_wrongly).sum();
        json!({ "deleted": deleted, "deletedWrongly": wrongly })
    };
    json!({
        "isWhole": is_whole,
        "scenes": reports,
        "total": {
            "withoutGateway": total(|report| &report.without_gateway),
            "errorsPassedOn": total(|report| &report.errors_passed_on),
            "gateway": total(|report| &report.gateway),
        },
    })
}
