//! Routes with `each`, from the outside: what operators see of the elements of an answer.

mod bad_input;
mod commands;
mod events;
mod gates;
mod kinds;
mod limits;
mod views;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    Reply, TestApp,
    upstream::{Step, Upstream, json_response, response},
};

/// What the source says about one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    Present,
    Absent,
    Fails,
}

/// A source with a list at `/list`, and an element at `/element/N`.
struct Source {
    upstream: Upstream,
    elements: Arc<Mutex<BTreeMap<u32, Says>>>,
}

impl Source {
    async fn start(elements: &[(u32, Says)]) -> Self {
        let elements = Arc::new(Mutex::new(elements.iter().copied().collect::<BTreeMap<_, _>>()));
        let known = Arc::clone(&elements);
        let upstream = Upstream::start(move |request| {
            let known = known.lock().unwrap();
            let Some(number) = request.target.strip_prefix("/element/") else {
                let items = known.keys().map(|number| json!({"number": number, "sha": format!("sha-{number}")}));
                return vec![Step::Send(json_response(items.collect::<Value>().to_string()))];
            };
            let number: u32 = number.parse().unwrap();
            vec![Step::Send(match known[&number] {
                Says::Present => json_response(json!([{"digest": format!("digest-{number}")}]).to_string()),
                Says::Absent => json_response("[]"),
                Says::Fails => response(500, "", "no"),
            })]
        })
        .await;
        Self { upstream, elements }
    }

    fn set(&self, number: u32, says: Says) {
        self.elements.lock().unwrap().insert(number, says);
    }

    /// A route that lists, and then looks up each element.
    fn route(&self) -> Value {
        let url = format!("http://{}", self.upstream.address);
        let each = json!({"key": ["number"], "http": {"url": format!("{url}/element/{{{{ item.number }}}}")}});
        let pipeline = json!([{"http": {"url": format!("{url}/list")}}, {"each": each}]);
        json!({
            "name": "previews",
            "cache": {"ttl": "10s", "staleWhileRevalidate": "0s", "staleIfError": "24h", "prefetch": false},
            "backend": {"pipeline": pipeline},
            "output": {"number": "{{ item.number }}", "digest": "{{ digest }}"},
        })
    }

    /// One failure is no reason to leave the destination alone.
    fn config(&self) -> String {
        format!("{}routes: {}\n", TestApp::auth(), json!([self.route()]))
    }
}

/// The numbers of the elements of an answer.
fn numbers(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let sets = reply.json()["output"]["parameters"].as_array().unwrap().clone();
    sets.iter().map(|set| set["number"].as_str().unwrap().to_owned()).collect()
}
