//! A source that works, provably has nothing, or has a fault, by its mode.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use serde_json::{Value, json};

use super::{
    kind::Kind,
    rendition::{Does, Fault, Wire},
    signed::KEY_FILE,
};
use crate::support::upstream::Upstream;

/// The mode of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// It has the good answer.
    Well,
    /// It says that there is nothing, and proves it.
    Nothing,
    /// It has the fault.
    AtFault,
}

/// The source of one route.
pub(super) enum Source {
    /// A script that reads its mode from a file, and records its runs in another file.
    Script { mode: PathBuf, runs: PathBuf },
    /// An upstream that is asked over the wire.
    Wire {
        mode: Arc<AtomicU8>,
        upstream: Upstream,
        /// Another part of the source, which never has a fault: the registry beside a gate, or the other elements.
        beside: Option<Upstream>,
        wire: Wire,
        is_lenient: bool,
        is_wrapped: bool,
        absent: Option<&'static str>,
    },
}

impl Source {
    /// The source of the route `name`, which is well. A script is written to `folder`, where it runs.
    pub(super) async fn start(fault: &Fault, kind: Kind, name: &str, folder: &Path) -> Self {
        let wire = match kind {
            Kind::Script | Kind::Pipeline => return Self::script(&fault.script.does, name, folder),
            Kind::Worker => return Self::worker(&fault.script.does, name, folder),
            Kind::Http => fault.http.does.clone(),
            Kind::Plugin => fault.plugin.does.clone(),
            Kind::Digests | Kind::Tag | Kind::Signature => fault.digests.does.clone(),
            Kind::List => fault.list.does.clone(),
            Kind::Gate => fault.gate.does.clone(),
            Kind::OneElement | Kind::SomeElements | Kind::AllElements | Kind::ElementList => {
                return Self::start_elements(fault, kind).await;
            }
        };
        let mode = Arc::new(AtomicU8::new(Mode::Well as u8));
        let (current_mode, plays) = (Arc::clone(&mode), wire.clone());
        let is_wrapped = kind == Kind::Http && fault.is_wrapped;
        let upstream = Upstream::start_apart(move |request| match (current_mode.load(Ordering::SeqCst), &plays) {
            (mode, Wire::Plays(play)) if mode == Mode::AtFault as u8 && is_wrapped => play(request),
            (mode, _) if is_wrapped => Kind::wrapped(mode == Mode::Well as u8),
            (mode, _) if mode == Mode::Well as u8 => kind.well(request),
            (mode, _) if mode == Mode::AtFault as u8 && kind.spares(request) => kind.spared(request),
            (mode, Wire::Plays(play)) if mode == Mode::AtFault as u8 => play(request),
            _ => kind.nothing(request),
        })
        .await;
        let beside = if kind == Kind::Gate { Some(Self::registry_beside(&mode).await) } else { None };
        let absent = fault.absent.filter(|_| kind == Kind::Http);
        Self::Wire { mode, upstream, beside, wire, is_lenient: fault.is_lenient, is_wrapped, absent }
    }

    /// A registry that has the image, or provably has none.
    async fn registry_beside(mode: &Arc<AtomicU8>) -> Upstream {
        let current_mode = Arc::clone(mode);
        Upstream::start_apart(move |request| match current_mode.load(Ordering::SeqCst) {
            mode if mode == Mode::Nothing as u8 => Kind::Digests.nothing(request),
            _ => Kind::Digests.well(request),
        })
        .await
    }

    fn script(does: &Does, name: &str, folder: &Path) -> Self {
        let command = match does {
            Does::Prints(output) => {
                std::fs::write(folder.join(format!("{name}.out")), output).unwrap();
                format!("exec cat {name}.out")
            }
            Does::Runs(command) => command.clone(),
        };
        let good = Kind::Script.good();
        let script = format!(
            "echo run >> {name}.runs\nread -r mode < {name}.mode\n\
             case $mode in\nWell) echo '{good}'; exit ;;\nNothing) echo '[]'; exit ;;\nesac\n{command}\n"
        );
        Self::write(&script, name, folder)
    }

    /// The same as a worker: what the script prints is its answer's `output`.
    fn worker(does: &Does, name: &str, folder: &Path) -> Self {
        let command = match does {
            Does::Prints(output) => {
                std::fs::write(folder.join(format!("{name}.out")), output).unwrap();
                format!("printf '{{\"id\":%s,\"output\":' $n\ncat {name}.out\necho '}}'")
            }
            Does::Runs(command) => command.clone(),
        };
        let good = Kind::Worker.good();
        let script = format!(
            "while IFS= read -r question; do\nn=${{question#*:}}\nn=${{n%%,*}}\necho run >> {name}.runs\nread -r mode < {name}.mode\n\
             case $mode in\nWell) echo '{{\"id\":'$n',\"output\":{good}}}' ;;\n\
             Nothing) echo '{{\"id\":'$n',\"output\":[]}}' ;;\n*)\n{command}\n;;\nesac\ndone\n"
        );
        Self::write(&script, name, folder)
    }

    fn write(script: &str, name: &str, folder: &Path) -> Self {
        let path = |what: &str| folder.join(format!("{name}.{what}"));
        std::fs::write(path("sh"), script).unwrap();
        std::fs::write(path("mode"), "Well\n").unwrap();
        Self::Script { mode: path("mode"), runs: path("runs") }
    }

    /// The backend of its route, which is called `name`.
    pub(super) fn backend(&self, kind: Kind, name: &str) -> Value {
        match (self, kind) {
            (Self::Wire { upstream, .. }, Kind::Digests) => {
                json!({"digests": {"images": {"app": {"image": format!("{}/org/app:1", upstream.address)}}}})
            }
            (Self::Wire { upstream, .. }, Kind::Signature) => {
                let images = json!({"app": {"image": format!("{}/org/app:1", upstream.address)}});
                json!({"digests": {"images": images, "signature": {"any": [{"key": {"file": KEY_FILE}}]}}})
            }
            (Self::Wire { upstream, beside: Some(beside), is_wrapped, .. }, kind) if kind.has_elements() => {
                Self::elements_backend(kind, upstream, beside, *is_wrapped)
            }
            (Self::Wire { upstream, beside: Some(registry), .. }, _) => {
                let gate = json!({"url": format!("http://{}/builds/1", upstream.address), "verdict": "body.result"});
                let images = json!({"app": {"image": format!("{}/org/app:1", registry.address)}});
                json!({"digests": {"images": images, "gate": {"http": gate}}})
            }
            (Self::Wire { upstream, is_lenient, .. }, Kind::List | Kind::Tag) => {
                let repositories = [format!("{}/org/app", upstream.address)];
                let missing = if *is_lenient { "absent" } else { "error" };
                json!({"digests": {"list": {"repositories": repositories, "missingRepository": missing}}})
            }
            (Self::Wire { upstream, .. }, Kind::Plugin) => {
                let plugin = json!({"baseUrl": format!("http://{}", upstream.address)});
                json!({"http": {"plugin": plugin, "maxBody": "1MiB"}})
            }
            (Self::Wire { upstream, is_wrapped, absent, .. }, _) => {
                let parameters = if *is_wrapped { "body.items" } else { "body" };
                let url = format!("http://{}/list", upstream.address);
                json!({"http": {"url": url, "maxBody": "1MiB", "parameters": parameters, "absent": absent}})
            }
            (Self::Script { .. }, kind) => {
                let own = json!({"read": ["."], "write": ["."]});
                let mut script = json!({"command": ["sh", format!("{name}.sh")], "maxOutput": "1MiB", "allow": own});
                match kind {
                    Kind::Worker => {
                        script["mode"] = json!("worker");
                        json!({"script": script})
                    }
                    Kind::Pipeline => {
                        let others = json!({"fixed": {"parameters": [{"name": "a"}, {"name": "d"}]}});
                        let merge = json!({"mergeKeys": ["name"], "backends": [{"script": script}, others]});
                        json!({"pipeline": [{"merge": merge}, {"select": "items"}]})
                    }
                    _ => json!({"script": script}),
                }
            }
        }
    }

    /// The host of the registry, and its options in the configuration.
    pub(super) fn registry(&self) -> Option<(String, Value)> {
        let Self::Wire { upstream, beside, is_lenient, .. } = self else { return None };
        Some((
            beside.as_ref().unwrap_or(upstream).address.to_string(),
            json!({"plainHttp": true, "deniedMeansMissing": is_lenient}),
        ))
    }

    /// Changes the mode.
    pub(super) async fn set_mode(&mut self, to: Mode) {
        match self {
            Self::Script { mode, .. } => std::fs::write(mode, format!("{to:?}\n")).unwrap(),
            Self::Wire { mode, upstream, wire, .. } => {
                let refuses = |mode: u8| matches!(wire, Wire::Refuses) && mode == Mode::AtFault as u8;
                let was = mode.swap(to as u8, Ordering::SeqCst);
                match (refuses(was), refuses(to as u8)) {
                    (false, true) => upstream.refuse().await,
                    (true, false) => upstream.listen().await,
                    _ => {}
                }
            }
        }
    }

    /// The number of requests so far; `None` if it cannot be known.
    pub(super) fn asked(&self) -> Option<usize> {
        match self {
            Self::Script { runs, .. } => Some(std::fs::read_to_string(runs).map_or(0, |runs| runs.lines().count())),
            Self::Wire { mode, wire: Wire::Refuses, .. } if mode.load(Ordering::SeqCst) == Mode::AtFault as u8 => None,
            Self::Wire { upstream, .. } => Some(upstream.requests().len()),
        }
    }
}
