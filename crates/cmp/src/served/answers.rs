//! Which method a call is for: Argo CD's own, and those of the exchange with a relay.

use http::Response;
use prometheus::IntGauge;
use tokio::time::Instant;

use super::{Served, received};
use crate::{
    exchange::{Description, View},
    grpc::{
        message::Empty,
        reader::MessageReader,
        reply::{self, ReplyBody},
        status::Status,
    },
    service::{Answers, Method, unimplemented},
};
use telemetry::trace::Tracer;

impl Answers for Served {
    fn name(&self) -> String {
        self.plugin().full_name()
    }

    fn tracer(&self) -> &Tracer {
        &self.common.tracer
    }

    fn under_way(&self) -> &IntGauge {
        &self.metrics.under_way
    }

    fn called(&self, method: &str, status: Option<&Status>) {
        self.metrics.called(method, status);
    }

    async fn credentials(&self, messages: MessageReader) -> Response<ReplyBody> {
        if self.common.trees.has_indexes() {
            self.offered(messages).await
        } else {
            reply::failure(&unimplemented("Credentials"))
        }
    }

    async fn call(
        &self,
        method: Method<'_>,
        messages: &mut MessageReader,
        deadline: Option<Instant>,
    ) -> Result<Response<ReplyBody>, Status> {
        let is_relayed = matches!(method, Method::Relay(_));
        if is_relayed && !self.common.trees.has_indexes() {
            return Err(unimplemented(method.name()));
        }
        Ok(match method {
            Method::Plugin("CheckPluginConfiguration") => {
                messages.next::<Empty>().await?;
                reply::answer(&self.check_configuration())
            }
            Method::Relay("Describe") => reply::answer(&self.describe()),
            Method::Relay("Put") => {
                self.put(messages).await?;
                reply::answer(&Empty {})
            }
            Method::Plugin(name) | Method::Relay(name) => match name {
                "GenerateManifest" => reply::answer(&self.generate(messages, is_relayed, deadline).await?),
                "MatchRepository" => reply::answer(&self.match_repository(messages, is_relayed, deadline).await?),
                "GetParametersAnnouncement" => reply::answer(&self.parameters(messages, is_relayed, deadline).await?),
                name => return Err(unimplemented(name)),
            },
        })
    }
}

impl Served {
    /// What belongs to its trees.
    pub(super) fn view(&self) -> View {
        View { has_modes: self.plugin().preserve_file_mode, has_git: self.runner.settings().git }
    }

    /// `Describe` of the exchange.
    fn describe(&self) -> Description {
        Description::of(&self.plugin(), self.view(), self.takes_git_credentials())
    }

    /// `Put` of the exchange: keeps a tree for the next calls.
    ///
    /// # Errors
    /// When it is refused, has another digest, or cannot be written.
    async fn put(&self, messages: &mut MessageReader) -> Result<(), Status> {
        let (view, began) = (self.view(), Instant::now());
        let (digest, archive) =
            received::tree(messages, self.wanted(true), view.has_modes, |tree| tree.digest_in(view)).await?;
        self.metrics.received(archive.bytes, began.elapsed());
        let kept = self.common.trees.get(digest, archive, view.has_modes).await;
        kept.map(drop).map_err(|error| Status::unknown(error.to_string()))
    }
}
