//! Plays scenes: asks the same of the gateway and of the plugins without one, and counts what Argo CD does.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use parking_lot::Mutex;
use reqwest::Url;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    config,
    judge::{Judge, Reconciled, Time},
    plugin::{OnError, Plugin},
    report::SceneReport,
    scene::{EVERY, Scene},
    source::{Set, Source},
    web::{Client, Server},
};

/// How long a reader needs for what is printed at the beginning of a scene, after a question, and at the end.
const BEGINNING: Duration = Duration::from_millis(2_500);
const QUESTION: Duration = Duration::from_millis(600);
const END: Duration = Duration::from_millis(3_200);
/// How often a pause is reported.
const TICK: Duration = Duration::from_millis(200);
/// How much time passes before a scene: what was looked up before is due again. The gateway asks the registry for some tags every ten minutes only.
const BETWEEN: Duration = Duration::from_mins(15);
/// How many reconciles the gateway may need after a scene until all is as it should be.
const SETTLING: u32 = 20;

/// Where the gateway of the story is, and its tokens.
#[derive(Debug)]
pub struct GatewayAt {
    /// The listener for Argo CD.
    pub main: SocketAddr,
    /// The listener for operators.
    pub admin: SocketAddr,
    /// The token of Argo CD.
    pub argocd: String,
    /// The token of operators.
    pub operator: String,
}

/// Shows the story.
pub trait Show {
    /// A scene begins.
    fn begin(&mut self, scene: &Scene);
    /// Argo CD asked for `set`, so many minutes after the beginning: without a gateway, and with it.
    fn asked(&mut self, minutes: u64, set: Set, without: &Reconciled, gateway: &Reconciled);
    /// A scene ended.
    fn end(&mut self, report: &SceneReport);
    /// Time passes for the reader.
    fn tick(&mut self, time: Duration);
}

/// The sources and the plugins of the story, which run in this process.
pub struct Stage {
    source: Source,
    client: Client,
    careless: Judge,
    passing_on: Judge,
    caught: Arc<Mutex<Vec<String>>>,
    sources: Server,
    /// The plugins answer as long as these are there.
    _plugins: [Server; 2],
}

impl Stage {
    /// Starts the sources and the plugins.
    ///
    /// # Errors
    /// When no port of this machine is free.
    pub async fn start() -> anyhow::Result<Self> {
        let (source, client) = (Source::new(), Client::new()?);
        let sources = Server::start(Arc::new(source.clone())).await.context("cannot serve the sources")?;
        let plugin = |on_error| anyhow::Ok(Plugin::new(url(sources.address)?, client.clone(), on_error));
        let (careless, passing_on) = (plugin(OnError::Catch)?, plugin(OnError::PassOn)?);
        let caught = careless.caught();
        let plugins = [Server::start(Arc::new(careless)).await?, Server::start(Arc::new(passing_on)).await?];
        let judge = |plugin: &Server| Judge::new(&url(plugin.address)?, None);
        let (careless, passing_on) = (judge(&plugins[0])?, judge(&plugins[1])?);
        Ok(Self { source, client, careless, passing_on, caught, sources, _plugins: plugins })
    }

    /// The configuration of a gateway before the sources. The hashes are those of the tokens of Argo CD and of operators.
    pub fn config(&self, argocd: &str, operator: &str) -> String {
        config::gateway(self.sources.address, argocd, operator)
    }
}

/// The story.
pub struct Story {
    stage: Stage,
    gateway: Judge,
    alerts: Url,
    operator: String,
    speed: f64,
}

impl Story {
    /// A story on `stage` with the gateway at `at`, so many times as fast as a reader reads.
    ///
    /// # Errors
    /// When the gateway's address is not one.
    pub fn new(stage: Stage, at: GatewayAt, speed: f64) -> anyhow::Result<Self> {
        let gateway = Judge::new(&url(at.main)?, Some(&at.argocd))?;
        let alerts = url(at.admin)?.join("/admin/status")?;
        Ok(Self { stage, gateway, alerts, operator: at.operator, speed })
    }

    /// How long `scene` takes to read.
    pub fn length(&self, scene: &Scene) -> Duration {
        let questions = u32::try_from(scene.sets.len()).unwrap_or_default() * scene.asks;
        (BEGINNING + QUESTION * questions + END).div_f64(self.speed)
    }

    /// Plays `scene`.
    ///
    /// # Errors
    /// When the gateway or a plugin cannot be asked, or the gateway does not come back to what is true.
    pub async fn play(&mut self, scene: &Scene, time: &impl Time, show: &mut impl Show) -> anyhow::Result<SceneReport> {
        if scene.sets != Set::ALL {
            self.settle(time).await?;
            time.pass(BETWEEN).await;
        }
        show.begin(scene);
        (scene.begin)(&self.stage.source);
        self.pause(BEGINNING, show).await;
        self.stage.caught.lock().clear();
        let mut report = SceneReport::new(scene);
        for ask in 0..scene.asks {
            if ask > 0 {
                time.pass(scene.every).await;
                report.minutes += scene.every.as_secs() / 60;
            }
            for set in scene.sets {
                self.ask(*set, &mut report, show).await?;
                self.pause(QUESTION, show).await;
            }
        }
        report.applications = scene.sets.iter().map(|set| self.stage.source.truth(*set).len()).sum();
        report.without_gateway.explain(self.stage.caught.lock().drain(..));
        (scene.end)(&self.stage.source);
        show.end(&report);
        self.pause(END, show).await;
        Ok(report)
    }

    /// Has all three judges reconcile `set`.
    async fn ask(&mut self, set: Set, report: &mut SceneReport, show: &mut impl Show) -> anyhow::Result<()> {
        let truth = self.stage.source.truth(set);
        let without = self.stage.careless.reconcile(set).await?;
        let passed_on = self.stage.passing_on.reconcile(set).await?;
        let gateway = self.gateway.reconcile(set).await?;
        report.without_gateway.add(&without, &truth);
        report.errors_passed_on.add(&passed_on, &truth);
        report.gateway.add(&gateway, &truth);
        let alerts = self.alerts(set).await?;
        if !alerts.is_empty() {
            // An alert changes while it lasts: the last ones are those of the scene's end.
            report.gateway.because.clear();
            report.gateway.explain(alerts.into_iter().chain(gateway.stale.iter().cloned()));
        }
        show.asked(report.minutes, set, &without, &gateway);
        Ok(())
    }

    /// The alerts of the gateway about the answers to `set`, the most dangerous first.
    async fn alerts(&self, set: Set) -> anyhow::Result<Vec<String>> {
        let reply = self.stage.client.get(self.alerts.clone(), Some(&self.operator)).await;
        let (status, body) = reply.map_err(anyhow::Error::msg).context("cannot read the gateway's alerts")?;
        anyhow::ensure!(status == 200, "the gateway answered {status} when asked for its alerts");
        let document: Value = serde_json::from_slice(&body)?;
        let alerts = document["alerts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let own = alerts.iter().filter(|alert| alert["route"] == set.name());
        Ok(own.filter_map(|alert| alert["message"].as_str().map(str::to_owned)).collect())
    }

    /// Lets time pass until each judge has the Applications that should exist: what a scene broke is mended before the next one begins.
    async fn settle(&mut self, time: &impl Time) -> anyhow::Result<()> {
        for _ in 0..SETTLING {
            let mut is_settled = true;
            for set in Set::ALL {
                let truth = self.stage.source.truth(set);
                for judge in [&mut self.stage.careless, &mut self.stage.passing_on, &mut self.gateway] {
                    let reconciled = judge.reconcile(set).await?;
                    is_settled &= judge.applications(set) == truth && reconciled.stale.is_empty();
                }
                is_settled &= self.alerts(set).await?.is_empty();
            }
            if is_settled {
                return Ok(());
            }
            time.pass(EVERY).await;
        }
        anyhow::bail!("the gateway or a plugin does not answer what is true, although no fault is played")
    }

    async fn pause(&self, pause: Duration, show: &mut impl Show) {
        let mut left = pause.div_f64(self.speed);
        while !left.is_zero() {
            let part = left.min(TICK);
            sleep(part).await;
            show.tick(part);
            left -= part;
        }
    }
}

/// The URL of a server of this machine.
fn url(address: SocketAddr) -> anyhow::Result<Url> {
    Ok(Url::parse(&format!("http://{address}/"))?)
}
