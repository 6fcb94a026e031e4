//! Asks the replicas of a remote, one after the other, until one answers.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use tokio::time::{Duration, Instant, sleep};

use super::{
    credentials::GitCredentials,
    failure::Failure,
    link::{Fields, Kind, Link, PLUGIN_SERVICE},
    remote::Remote,
    replicas::Replica,
    upload,
};
use crate::{
    archive::{
        digest::{TreeDigest, digest, digest_without_git},
        intake::Archive,
    },
    exchange::{self, Description, RelayedCall, TreeName, View},
    grpc::{
        message::Metadata,
        reply,
        status::{Code, Status},
    },
};

/// How long all replicas are tried again when none can be asked: as long as a pod takes to be replaced.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long to wait between two rounds, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// How often a call is repeated whose connection broke when it was under way: perhaps it is the call that breaks it.
const MAX_BROKEN: usize = 3;

/// A call with its archive.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) metadata: Metadata,
    pub(super) archive: Arc<Archive>,
    /// What decides who is asked.
    pub(super) key: TreeDigest,
    pub(super) until: Instant,
    /// The repository's Git credentials, if they may be passed on.
    pub(super) credentials: Option<Arc<GitCredentials>>,
}

impl Remote {
    /// The answer to `method`, and whether cmp-gateway has given it.
    ///
    /// # Errors
    /// The status that a replica answered, or why none did.
    pub(super) async fn ask(&self, method: &'static str, question: &Question) -> Result<(Bytes, bool), Status> {
        // A remote that has been away for long is tried once.
        let since = self.down_since.lock().unwrap_or_else(Instant::now);
        let patience = question.until.min(since + PATIENCE);
        let (mut failures, mut broken, mut pause) = (BTreeMap::new(), 0, PAUSE.0);
        loop {
            for replica in self.replicas.order(&question.key) {
                let calling = replica.calling();
                let asked = self.ask_one(&replica, method, question).await;
                drop(calling);
                let (outcome, why) = match asked {
                    Ok(answer) => {
                        self.own.attempted("ok");
                        self.down_since.lock().take();
                        replica.answered();
                        return Ok(answer);
                    }
                    Err(Failure::Status(status)) if !is_for_another(&status) => {
                        self.own.attempted("error");
                        return Err(self.refused(&replica, status, &failures));
                    }
                    Err(Failure::Broken(why)) => {
                        broken += 1;
                        replica.drop_link();
                        ("broken", why)
                    }
                    Err(failure) => ("unreached", failure.to_string()),
                };
                self.own.attempted(outcome);
                tracing::warn!(plugin = self.name, replica = %replica.address, method, outcome, why, "a replica did not answer");
                replica.failed(&why);
                failures.insert(replica.address.to_string(), why);
                if broken >= MAX_BROKEN {
                    return Err(self.unanswered(&failures));
                }
            }
            self.down_since.lock().get_or_insert_with(Instant::now);
            self.wake.notify_one();
            if Instant::now() + pause >= patience {
                return Err(self.unanswered(&failures));
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Connects to the first replica that can be reached, which then describes itself.
    pub(super) async fn reach(&self, question: &Question) {
        for replica in self.replicas.order(&question.key) {
            if let Ok(Ok(_)) = tokio::time::timeout_at(question.until, self.link(&replica)).await {
                return;
            }
        }
    }

    /// What Argo CD shows of a status that a replica answered.
    fn refused(&self, replica: &Replica, status: Status, before: &BTreeMap<String, String>) -> Status {
        // The plugin's own words.
        if status.code == Code::Unknown {
            return status;
        }
        let Status { code, message } = status;
        let before: Vec<String> =
            before.iter().map(|(address, why)| format!("; before that {address}: {why}")).collect();
        let text = format!("the remote `{}` ({}): {message}{}", self.name, replica.address, before.concat());
        Status { code: if code == Code::DeadlineExceeded { code } else { Code::Unknown }, message: text }
    }

    fn unanswered(&self, failures: &BTreeMap<String, String>) -> Status {
        let failures = failures.iter().map(|(address, why)| format!("{address}: {why}"));
        let all: Vec<String> = self.replicas.problem().into_iter().chain(failures).collect();
        let why = if all.is_empty() { "no address is known yet".to_owned() } else { all.join("; ") };
        Status::unknown(format!("no replica of the remote `{}` answers: {why}", self.name))
    }

    async fn ask_one(
        &self,
        replica: &Arc<Replica>,
        method: &'static str,
        question: &Question,
    ) -> Result<(Bytes, bool), Failure> {
        let connecting = tokio::time::timeout_at(question.until, self.link(replica)).await;
        let link = connecting.map_err(|_| late())?.map_err(Failure::Unreached)?;
        let fields = Fields { map: self.fields().map_err(Failure::Unreached)?, until: question.until };
        let Kind::Ours(description) = &link.kind else {
            return self.ask_plain(&link, method, question, &fields).await;
        };
        match self.ask_by_tree(replica, &link, description, method, question, &fields).await {
            // The plugin's file has changed meanwhile, and with it what belongs to a tree.
            Err(Failure::Status(status)) if status.code == Code::Aborted => {
                let link = self.describe(replica, link, fields.map.clone()).await.map_err(Failure::Unreached)?;
                match &link.kind {
                    Kind::Ours(description) => {
                        self.ask_by_tree(replica, &link, description, method, question, &fields).await
                    }
                    Kind::Plain(_) => self.ask_plain(&link, method, question, &fields).await,
                }
            }
            answered => answered,
        }
    }

    /// Names the tree, and sends it if it is not there.
    async fn ask_by_tree(
        &self,
        replica: &Arc<Replica>,
        link: &Link,
        description: &Description,
        method: &'static str,
        question: &Question,
        fields: &Fields,
    ) -> Result<(Bytes, bool), Failure> {
        let view = description.view.unwrap_or_default();
        let digest = digest_in(view, &question.archive);
        let tree = TreeName::new(digest, view);
        let asked = Instant::now();
        // Open until the call has ended. Nothing but a run asks for credentials.
        let offered = match method {
            "GenerateManifest" => self.offer(link, description, question.credentials.as_ref(), fields).await?,
            _ => None,
        };
        let offer = offered.as_ref().map(|offered| offered.offer.clone()).unwrap_or_default();
        match self.ask_named(link, method, question, fields, (&tree, &offer)).await {
            Err(Failure::Status(status)) if status.code == Code::FailedPrecondition => {}
            Err(Failure::Status(status)) if status.code == Code::Unimplemented => {
                return self.ask_plain(link, method, question, fields).await;
            }
            answered => {
                if answered.is_ok() {
                    self.own.spared.inc_by(question.archive.bytes);
                }
                return answered;
            }
        }
        self.put(replica, link, question, fields, &tree, (digest, asked)).await?;
        match self.ask_named(link, method, question, fields, (&tree, &offer)).await {
            // It had to go at once: the service has little room.
            Err(Failure::Status(status)) if status.code == Code::FailedPrecondition => {
                self.ask_plain(link, method, question, fields).await
            }
            answered => answered,
        }
    }

    async fn ask_named(
        &self,
        link: &Link,
        method: &'static str,
        question: &Question,
        fields: &Fields,
        (tree, offer): (&TreeName, &Bytes),
    ) -> Result<(Bytes, bool), Failure> {
        let metadata = Some(question.metadata.clone());
        let call = RelayedCall { metadata, tree: Some(tree.clone()), offer: offer.clone() };
        let answer = link.ask(&format!("{}{method}", exchange::SERVICE), fields, reply::whole(&call)).await?;
        Ok((answer, true))
    }

    /// Sends the tree, unless another call has sent it since `asked`.
    async fn put(
        &self,
        replica: &Arc<Replica>,
        link: &Link,
        question: &Question,
        fields: &Fields,
        tree: &TreeName,
        (digest, asked): (TreeDigest, Instant),
    ) -> Result<(), Failure> {
        let sent = replica.sent(digest);
        let turn = tokio::time::timeout_at(question.until, sent.lock()).await;
        let mut done = turn.map_err(|_| late())?;
        if done.is_some_and(|done| done > asked) {
            return Ok(());
        }
        let body = upload::tree(Arc::clone(&question.archive), tree.clone(), self.own.sent.clone());
        match link.ask(&format!("{}Put", exchange::SERVICE), fields, body).await {
            Ok(_) => {
                *done = Some(Instant::now());
                Ok(())
            }
            Err(Failure::Status(status)) if status.code == Code::Unknown => {
                Err(Failure::Status(status.within("the remote did not take the files")))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn ask_plain(
        &self,
        link: &Link,
        method: &'static str,
        question: &Question,
        fields: &Fields,
    ) -> Result<(Bytes, bool), Failure> {
        let body = upload::plain(Arc::clone(&question.archive), question.metadata.clone(), self.own.sent.clone());
        let answer = link.ask(&format!("{PLUGIN_SERVICE}{method}"), fields, body).await?;
        Ok((answer, matches!(link.kind, Kind::Ours(_))))
    }
}

/// Whether another replica may answer a call that one answered so: nothing has run.
fn is_for_another(status: &Status) -> bool {
    matches!(status.code, Code::Unavailable | Code::ResourceExhausted | Code::Unauthenticated | Code::NotFound)
}

fn digest_in(view: View, archive: &Archive) -> TreeDigest {
    let of = if view.has_git { digest } else { digest_without_git };
    of(&archive.entries, view.has_modes)
}

fn late() -> Failure {
    Failure::Status(Status::new(Code::DeadlineExceeded, "it could not be reached before the deadline"))
}
