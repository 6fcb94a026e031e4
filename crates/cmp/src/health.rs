//! gRPC's health service, as grpc-go's `health.Server` answers it in argocd-cmp-server: the server as a whole is the only service that has
//! a state.

use std::collections::BTreeMap;

use http::Response;
use hyper::body::Frame;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout_at},
};

use crate::grpc::{
    message::{HealthCheckRequest, HealthCheckResponse, HealthListResponse},
    reader::MessageReader,
    reply::{self, ReplyBody},
    status::{Code, Status},
};

const SERVICE: &str = "/grpc.health.v1.Health/";
/// The states (`ServingStatus`).
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const SERVICE_UNKNOWN: i32 = 3;

/// The methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthMethod {
    Check,
    List,
    Watch,
}

/// The method at `path`.
pub(crate) fn method(path: &str) -> Option<HealthMethod> {
    match path.strip_prefix(SERVICE)? {
        "Check" => Some(HealthMethod::Check),
        "List" => Some(HealthMethod::List),
        "Watch" => Some(HealthMethod::Watch),
        _ => None,
    }
}

/// The state now.
///
/// # Errors
/// When the client asks for a service, or breaks the protocol.
pub(crate) async fn check(
    messages: &mut MessageReader,
    is_ending: &watch::Receiver<bool>,
    until: Instant,
) -> Result<Response<ReplyBody>, Status> {
    let service = service(messages, until).await?;
    if service.is_empty() {
        return Ok(reply::answer(&state(*is_ending.borrow())));
    }
    Err(Status { code: Code::NotFound, message: "unknown service".to_owned() })
}

/// The states of all services.
pub(crate) fn list(is_ending: &watch::Receiver<bool>) -> Response<ReplyBody> {
    let statuses = BTreeMap::from([(String::new(), state(*is_ending.borrow()))]);
    reply::answer(&HealthListResponse { statuses })
}

/// The state now, and at each change, until the client goes. Nothing waits for the end of this call.
pub(crate) async fn watch(
    mut messages: MessageReader,
    mut is_ending: watch::Receiver<bool>,
    until: Instant,
) -> Response<ReplyBody> {
    let service = match service(&mut messages, until).await {
        Ok(service) => service,
        Err(status) => return reply::failure(&status),
    };
    let (frames, received) = mpsc::channel(1);
    tokio::spawn(async move {
        let frame = |state| Frame::data(reply::frame(&state));
        if !service.is_empty() {
            let _ = frames.send(frame(HealthCheckResponse { status: SERVICE_UNKNOWN })).await;
            return frames.closed().await;
        }
        loop {
            let now = state(*is_ending.borrow_and_update());
            if frames.send(frame(now)).await.is_err() {
                return;
            }
            tokio::select! {
                () = frames.closed() => return,
                changed = is_ending.changed() => if changed.is_err() { return frames.closed().await },
            }
        }
    });
    reply::stream(received)
}

/// The service that the client names, `until` it is too late: a server that ends waits for open calls.
async fn service(messages: &mut MessageReader, until: Instant) -> Result<String, Status> {
    let request = timeout_at(until, messages.next::<HealthCheckRequest>()).await;
    let too_late = |_| Status { code: Code::DeadlineExceeded, message: "the request did not come in time".to_owned() };
    Ok(request.map_err(too_late)??.unwrap_or_default().service)
}

fn state(is_ending: bool) -> HealthCheckResponse {
    HealthCheckResponse { status: if is_ending { NOT_SERVING } else { SERVING } }
}
