//! The API server of Argo CD's cluster, as the gateway sees it: it lists the ApplicationSets, and takes annotations and Events. It fails as a server
//! and a network do.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use argocd::{Api, Argocd};
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    sync::Notify,
    time::{sleep, sleep_until},
};

use crate::{
    history::{History, Invariant},
    truth::Set,
};
use domain::{error::BackendError, secret::Secrets};
use outbound::{Reply, kubernetes::ApiCall};

/// The namespace of the ApplicationSets.
const NAMESPACE: &str = "argocd";
/// The config map by which they ask the gateway.
const CONFIG_MAP: &str = "gateway";
/// How long a request is on its way.
const ON_THE_WAY: Duration = Duration::from_millis(2);
/// So many requests of three replicas in a second are a loop without a pause. Each refreshes an ApplicationSet ten times in quick succession at
/// most, and writes an Event of each kind once.
const MOST_IN_A_SECOND: u64 = 200;

/// The state of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiState {
    /// It answers.
    Works,
    /// It refuses connections.
    Away,
    /// It takes requests, and nothing comes of them.
    Silent,
    /// Requests arrive, and the replies are lost.
    OneWay,
    /// Each way takes this many milliseconds.
    Slow(u64),
    /// It wants no requests for some seconds.
    Throttles,
    /// It takes annotations, and the controller does not see them.
    Unnoticed,
}

/// The API server.
#[derive(Debug)]
pub struct ApiServer {
    history: Arc<History>,
    state: Mutex<ApiState>,
    annotated: [Notify; Set::COUNT],
    requests: AtomicU64,
    /// A second, and how many requests it had.
    second: Mutex<(u64, u64)>,
}

impl ApiServer {
    /// One that answers.
    pub fn new(history: &Arc<History>) -> Arc<Self> {
        Arc::new(Self {
            history: Arc::clone(history),
            state: Mutex::new(ApiState::Works),
            annotated: std::array::from_fn(|_| Notify::new()),
            requests: AtomicU64::new(0),
            second: Mutex::default(),
        })
    }

    /// The real client of this server.
    pub fn client(self: &Arc<Self>) -> Arc<Argocd> {
        let api = Arc::clone(self) as Arc<dyn Api>;
        Arc::new(Argocd::with_api(api, vec![NAMESPACE.to_owned()], vec![CONFIG_MAP.to_owned()]))
    }

    /// Sets its state.
    pub fn set_state(&self, state: ApiState) {
        *self.state.lock() = state;
    }

    /// How many requests there were.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Annotates an ApplicationSet: it is reconciled now.
    pub fn annotate(&self, set: Set) {
        self.annotated[set as usize].notify_one();
    }

    /// Waits until the ApplicationSet is annotated.
    pub async fn annotated(&self, set: Set) {
        self.annotated[set as usize].notified().await;
    }

    /// Notes a request. Does not return if there are too many in a second.
    async fn begin(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let count = {
            let (mut second, now) = (self.second.lock(), self.history.now().as_secs());
            if second.0 != now {
                *second = (now, 0);
            }
            second.1 += 1;
            second.1
        };
        if count > MOST_IN_A_SECOND {
            self.history.violate(Invariant::Rate, format!("{count} requests to Argo CD's API server in a second"));
            pending::<()>().await;
        }
        sleep(ON_THE_WAY).await;
    }

    /// A request comes to the server.
    fn arrive(&self, call: &ApiCall<'_>, is_noticed: bool) -> Reply {
        match (&call.method, call.path) {
            (&Method::GET, [.., "applicationsets"]) => reply(StatusCode::OK, &list()),
            (&Method::PATCH, [.., "applicationsets", name]) => {
                let Some(set) = Set::ALL.into_iter().find(|set| set.name() == *name) else {
                    return reply(StatusCode::NOT_FOUND, &json!({}));
                };
                self.history.count("refresh");
                let seen = if is_noticed { "" } else { ", and the controller does not see it" };
                self.history.say(format!("the gateway annotates ApplicationSet {name}{seen}"));
                if is_noticed {
                    self.annotate(set);
                }
                reply(StatusCode::OK, &json!({}))
            }
            (_, [.., "events"] | [.., "events", _]) => {
                self.history.count("Kubernetes Event");
                reply(StatusCode::CREATED, &json!({}))
            }
            _ => reply(StatusCode::NOT_FOUND, &json!({})),
        }
    }
}

#[async_trait]
impl Api for ApiServer {
    async fn send(&self, call: ApiCall<'_>) -> (String, Result<Reply, BackendError>) {
        let shown = format!("{} /{}", call.method, call.path.join("/"));
        self.begin().await;
        let late = || BackendError::timeout("no reply in time");
        let state = *self.state.lock();
        let result = match state {
            ApiState::Works => Ok(self.arrive(&call, true)),
            ApiState::Unnoticed => Ok(self.arrive(&call, false)),
            ApiState::Away => Err(BackendError::unavailable("connection refused")),
            ApiState::Throttles => {
                let retry_after = Some(Duration::from_secs(20));
                Ok(Reply { retry_after, ..reply(StatusCode::TOO_MANY_REQUESTS, &json!({})) })
            }
            ApiState::Silent => {
                sleep_until(call.deadline).await;
                Err(late())
            }
            ApiState::OneWay => {
                self.arrive(&call, true);
                sleep_until(call.deadline).await;
                Err(late())
            }
            ApiState::Slow(each) => {
                let each = Duration::from_millis(each);
                sleep(each).await;
                let reply = self.arrive(&call, true);
                sleep(each).await;
                if tokio::time::Instant::now() < call.deadline { Ok(reply) } else { Err(late()) }
            }
        };
        (shown, result)
    }
}

fn reply(status: StatusCode, body: &serde_json::Value) -> Reply {
    Reply {
        status,
        headers: HeaderMap::new(),
        body: Bytes::from(body.to_string()),
        secrets: Secrets::default(),
        retry_after: None,
        attempts: 1,
    }
}

/// All ApplicationSets.
fn list() -> serde_json::Value {
    let items = Set::ALL.map(|set| {
        json!({
            "metadata": {"name": set.name(), "namespace": NAMESPACE, "uid": set.name()},
            "spec": {"generators": [{"plugin": {"configMapRef": {"name": CONFIG_MAP}}}]},
        })
    });
    json!({"metadata": {}, "items": items})
}
