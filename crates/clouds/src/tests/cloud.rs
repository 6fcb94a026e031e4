//! A cloud on this machine, which answers as the test says.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{IdentityConfig, Pod, Reach, build};
use domain::{
    clock::{Clock, Timestamp},
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};
use outbound::{Identities, Identity, Outbound};

/// 2026-01-01T00:00:00Z, when all tests happen.
pub(super) const NOW: u64 = 1_767_225_600_000;

/// A clock that stands still, until a test moves it.
pub(super) struct Standing(AtomicU64);

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// A request that arrived.
#[derive(Debug, Clone)]
pub(super) struct Received {
    /// Method and target.
    pub line: String,
    /// The headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
}

impl Received {
    /// The step that the request is for.
    pub(super) fn step(&self) -> &'static str {
        let target = self.headers.get("x-amz-target").map(String::as_str).unwrap_or_default();
        let all = format!("{} {target} {}", self.line, self.body);
        let known = [
            ("Action=AssumeRoleWithWebIdentity", "web identity"),
            ("Action=AssumeRole&", "assume role"),
            ("Action=GetCallerIdentity", "caller"),
            ("SpencerFrontendService", "ecr public"),
            ("AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken", "ecr"),
            ("/v1/credentials", "pod identity"),
            ("PUT /latest/api/token", "instance session"),
            ("GET /latest/meta-data/iam/security-credentials/ ", "instance role"),
            ("GET /latest/meta-data/iam/security-credentials/node", "instance keys"),
            ("/default/token", "google metadata"),
            ("/default/email", "google email"),
            ("token-exchange", "google sts"),
            (":generateAccessToken", "google impersonation"),
            ("/oauth2/v2.0/token", "entra"),
            ("/metadata/identity/oauth2/token", "azure metadata"),
            ("/oauth2/exchange", "acr"),
        ];
        known.iter().find(|(sign, _)| all.contains(sign)).map_or("unknown", |(_, step)| *step)
    }
}

/// What is replied.
#[derive(Debug, Clone)]
pub(super) enum Replied {
    /// Status, headers and body.
    With(u16, Vec<(&'static str, String)>, String),
    /// The connection is closed.
    Closed,
    /// Nothing for a long time.
    Silence,
}

/// The cloud.
pub(super) struct Cloud {
    /// `http://127.0.0.1:<port>/`
    pub url: String,
    /// All requests so far.
    pub requests: Arc<Mutex<Vec<Received>>>,
    /// A folder for token files.
    pub folder: tempfile::TempDir,
    /// The time of the identities.
    clock: Arc<Standing>,
}

type Answer = Arc<dyn Fn(&Received) -> Option<Replied> + Send + Sync>;

impl Cloud {
    /// A cloud that replies what `answer` says, or else what is good.
    pub(super) async fn start(answer: impl Fn(&Received) -> Option<Replied> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (requests, answer) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answer) as Answer);
        let log = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&log), Arc::clone(&answer)));
            }
        });
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "web-identity-token\n").unwrap();
        Self { url, requests, folder, clock: Arc::new(Standing(AtomicU64::new(NOW))) }
    }

    /// Moves the time of the identities.
    pub(super) fn pass(&self, seconds: u64) {
        self.clock.0.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    /// The steps of the requests, in order.
    pub(super) fn steps(&self) -> Vec<&'static str> {
        self.requests.lock().iter().map(Received::step).collect()
    }

    /// The last request for `step`.
    pub(super) fn last(&self, step: &str) -> Received {
        self.requests.lock().iter().rev().find(|request| request.step() == step).unwrap().clone()
    }

    /// The token file.
    pub(super) fn token(&self) -> String {
        self.folder.path().join("token").display().to_string()
    }

    /// The environment of a pod with `variables`, in which `{url}` and `{token}` are those of this cloud.
    pub(super) fn pod(&self, variables: &[(&str, &str)]) -> Pod {
        let filled = |value: &str| value.replace("{url}", &self.url).replace("{token}", &self.token());
        variables.iter().map(|(name, value)| (*name, filled(value))).collect()
    }

    /// The identities of `config` in `pod`, and the problems.
    pub(super) fn build(&self, config: &Value, pod: &Pod) -> (Identities, Vec<String>) {
        let text = config.to_string().replace("{url}", &self.url);
        let configs: BTreeMap<String, IdentityConfig> = serde_json::from_str(&text).unwrap();
        let (clock, mut problems): (Arc<dyn Clock>, _) = (self.clock.clone(), Problems::default());
        let outbound = Arc::new(Outbound::new(Arc::clone(&clock)));
        let base = BaseDir::new(self.folder.path());
        let reach = Reach { public: &outbound, clock: &clock, base: &base };
        let built = build(&configs, pod, reach, &Path::root().key("identities"), &mut problems);
        let is_news = |message: &String| !message.contains("cleartext") && !message.contains("http://");
        (built, problems.into_vec().into_iter().map(|problem| problem.message).filter(is_news).collect())
    }

    /// The identity of `config` in `pod`.
    pub(super) fn identity(&self, config: &Value, pod: &Pod) -> Arc<dyn Identity> {
        let (identities, problems) = self.build(&json!({ "it": config }), pod);
        assert_eq!(problems, Vec::<String>::new());
        identities.named("it").unwrap()
    }
}

async fn serve(mut stream: TcpStream, log: Arc<Mutex<Vec<Received>>>, answer: Answer) {
    while let Some(request) = read(&mut stream).await {
        let replied = answer(&request).unwrap_or_else(|| good(&request));
        log.lock().push(request);
        match replied {
            Replied::Closed => return,
            Replied::Silence => return tokio::time::sleep(Duration::from_mins(1)).await,
            Replied::With(status, headers, body) => {
                let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                let headers = headers.concat();
                let length = body.len();
                let text = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n{body}");
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let mut lines = head.lines();
            let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned() + " ";
            let headers = lines.filter_map(|line| line.split_once(": "));
            let headers: BTreeMap<_, _> =
                headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
            let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                let body = String::from_utf8(bytes[end + 4..end + 4 + length].to_vec()).unwrap();
                return Some(Received { line, headers, body });
            }
        }
        match stream.read(&mut part).await {
            Ok(count) if count > 0 => bytes.extend(&part[..count]),
            _ => return None,
        }
    }
}

/// A reply with a JSON body.
pub(super) fn with_json(status: u16, body: &Value) -> Replied {
    Replied::With(status, vec![("content-type", "application/json".to_owned())], body.to_string())
}

/// AWS's temporary credentials in XML, which end at `ends`.
pub(super) fn credentials_xml(ends: &str) -> String {
    format!(
        "<R xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Credentials><AccessKeyId>ASIAKEY</AccessKeyId>\
         <SecretAccessKey>secret-key-of-aws</SecretAccessKey><SessionToken>session-token-of-aws</SessionToken>\
         <Expiration>{ends}</Expiration></Credentials><Arn>arn:aws:sts::123456789012:assumed-role/read/x</Arn></R>"
    )
}

/// What a cloud replies if all is well.
fn good(request: &Received) -> Replied {
    let later = "2026-01-01T01:00:00Z";
    let keys = json!({"AccessKeyId": "ASIAKEY", "SecretAccessKey": "secret-key-of-aws", "Token": "session-token-of-aws",
                      "Expiration": later});
    let token = |token: &str| json!({"access_token": token, "expires_in": 3600, "token_type": "Bearer"});
    // "AWS:ecr-password"
    let data = json!({"authorizationToken": "QVdTOmVjci1wYXNzd29yZA==", "expiresAt": 1_767_268_800.5});
    match request.step() {
        "web identity" | "assume role" | "caller" => Replied::With(200, Vec::new(), credentials_xml(later)),
        "ecr" => with_json(200, &json!({"authorizationData": [data]})),
        "ecr public" => with_json(200, &json!({"authorizationData": data})),
        "pod identity" | "instance keys" => with_json(200, &keys),
        "instance session" => Replied::With(200, Vec::new(), "imds-session".to_owned()),
        "instance role" => Replied::With(200, Vec::new(), "node".to_owned()),
        "google email" => {
            let flavor = vec![("metadata-flavor", "Google".to_owned())];
            Replied::With(200, flavor, "pod@project.iam.gserviceaccount.com".to_owned())
        }
        "google metadata" => {
            let flavor = vec![("metadata-flavor", "Google".to_owned())];
            Replied::With(200, flavor, token("google-token-of-metadata").to_string())
        }
        "google sts" => with_json(200, &token("google-token-of-sts")),
        "google impersonation" => {
            with_json(200, &json!({"accessToken": "google-token-of-account", "expireTime": later}))
        }
        "entra" | "azure metadata" => with_json(200, &token("entra-token")),
        "acr" => with_json(200, &json!({"refresh_token": "acr-refresh-token"})),
        other => Replied::With(404, Vec::new(), format!("{other}: {request:?}")),
    }
}
