//! A route with `each`: a list, and five elements. The fault affects one of the elements, two of them, all, or the list. What it does not
//! affect moves on meanwhile: the other elements have their next version.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use serde_json::{Value, json};

use super::{
    kind::Kind,
    rendition::{Fault, Wire},
    source::{Mode, Source},
};
use crate::support::upstream::{Request, Step, Upstream, json_response};

/// The elements of the list.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

impl Kind {
    /// The elements that the fault affects; `None` if the route has no elements.
    const fn affected(self) -> Option<&'static [&'static str]> {
        match self {
            Self::OneElement => Some(&["c"]),
            Self::SomeElements => Some(&["b", "d"]),
            Self::AllElements => Some(&NAMES),
            Self::ElementList => Some(&[]),
            _ => None,
        }
    }

    /// Whether the route has elements.
    pub(super) const fn has_elements(self) -> bool {
        self.affected().is_some()
    }

    /// Whether the fault leaves the answer without some elements only, and fewer than half.
    pub(super) const fn is_partial(self) -> bool {
        matches!(self, Self::OneElement | Self::SomeElements)
    }

    /// The parameter sets in which the affected elements are as they were, and all others have their next version.
    pub(super) fn moved_on(self) -> String {
        sets(|name| if self.is_affected(name) { "1" } else { "2" })
    }

    fn is_affected(self, name: &str) -> bool {
        self.affected().unwrap_or_default().contains(&name)
    }
}

/// The parameter sets of all elements, each of a version.
pub(super) fn sets(version_of: impl Fn(&str) -> &str) -> String {
    let sets = NAMES.map(|name| format!(r#"{{"name":"{name}","version":"{}"}}"#, version_of(name)));
    format!("[{}]", sets.join(","))
}

impl Source {
    /// The source of the list and the elements, in two parts, of which one never has a fault.
    pub(super) async fn start_elements(fault: &Fault, kind: Kind) -> Self {
        let mode = Arc::new(AtomicU8::new(Mode::Well as u8));
        let (wire, is_wrapped) = (fault.http.does.clone(), fault.is_wrapped);
        let (current_mode, plays) = (Arc::clone(&mode), wire.clone());
        let upstream = Upstream::start_apart(move |request| match (current_mode.load(Ordering::SeqCst), &plays) {
            (mode, Wire::Plays(play)) if mode == Mode::AtFault as u8 => play(request),
            (mode, _) => answer(kind, request, is_wrapped, if mode == Mode::Nothing as u8 { None } else { Some("1") }),
        })
        .await;
        let current_mode = Arc::clone(&mode);
        let beside = Upstream::start_apart(move |request| {
            let version = match current_mode.load(Ordering::SeqCst) {
                mode if mode == Mode::Well as u8 => Some("1"),
                mode if mode == Mode::AtFault as u8 => Some("2"),
                _ => None,
            };
            answer(kind, request, is_wrapped, version)
        })
        .await;
        Self::Wire { mode, upstream, beside: Some(beside), wire, is_lenient: false, is_wrapped, absent: None }
    }

    /// The pipeline of a route whose list and elements are at `faulty` and `beside`.
    pub(super) fn elements_backend(kind: Kind, faulty: &Upstream, beside: &Upstream, is_wrapped: bool) -> Value {
        let [faulty, beside] = [faulty, beside].map(|upstream| upstream.address.to_string());
        let list = if kind == Kind::ElementList { &faulty } else { &beside };
        let body = if is_wrapped { "body.items" } else { "body" };
        let at =
            |address: &str| address.split_once(':').map(|(host, port)| json!({"host": host, "port": port})).unwrap();
        let at = format!("(i.name in {} ? {} : {})", json!(kind.affected()), at(&faulty), at(&beside));
        let with_address = format!("{body}.map(i, {{'name': i.name, 'at': {at}}})");
        let element = json!({"url": "http://{{ item.at.host }}:{{ item.at.port }}/element/{{ item.name }}",
            "allowedHosts": [faulty, beside], "maxBody": "1MiB", "parameters": body});
        json!({"pipeline": [
            {"http": {"url": format!("http://{list}/list"), "maxBody": "1MiB", "parameters": with_address}},
            {"each": {"key": ["name"], "http": element}},
        ]})
    }
}

/// The answer of a source without a fault: the list, or an element in `version`. `None`: it provably has nothing.
fn answer(kind: Kind, request: &Request, is_wrapped: bool, version: Option<&str>) -> Vec<Step> {
    let items: Value = match version {
        _ if request.target == "/list" && (version.is_some() || kind != Kind::ElementList) => {
            NAMES.iter().map(|name| json!({"name": name})).collect()
        }
        Some(version) => json!([{"version": version}]),
        None => json!([]),
    };
    let body = if is_wrapped { json!({"items": items}) } else { items };
    vec![Step::Send(json_response(body.to_string()))]
}
