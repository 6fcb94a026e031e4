//! The parts of a fault: its effect on the wire, its effect in a script, and an ailment of the gateway.

use std::{
    io::Write as _,
    process::{Command, Stdio},
    sync::Arc,
};

use oci::Digest;

use super::kind::Kind;
use crate::support::upstream::{Play, Request, Step, response};

/// The error codes of unknown outcomes.
pub(super) const FAILED: &str = "backend_failed";
pub(super) const INVALID: &str = "backend_output_invalid";
pub(super) const TIMEOUT: &str = "backend_timeout";
pub(super) const THROTTLED: &str = "throttled";
/// The error code of a proof of absence after there were sets.
pub(super) const HELD: &str = "held";
/// No error: the next image is not signed yet, and the last build is served.
pub(super) const UNSIGNED: &str = "unsigned";

pub(super) const JSON: &str = "Content-Type: application/json";
pub(super) const HTML: &str = "Content-Type: text/html";
pub(super) const OCI: &str = "Content-Type: application/vnd.oci.image.manifest.v1+json";
pub(super) const MANIFEST: &str = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json"}"#;
/// A registry's error for an unknown tag.
pub(super) const UNKNOWN: &str = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;

/// One fault and its renditions, each of them one that says nothing about what there is, or, with the code [`HELD`], that
/// there is nothing.
pub(super) struct Fault {
    pub name: &'static str,
    pub script: Rendition<Does>,
    pub http: Rendition<Wire>,
    pub plugin: Rendition<Wire>,
    /// Of a tag.
    pub digests: Rendition<Wire>,
    /// Of the list of a repository's tags.
    pub list: Rendition<Wire>,
    /// Of CI, as an `http` gate asks it.
    pub gate: Rendition<Wire>,
    /// The code if the rendition of a tag is that of the signatures.
    pub signature_code: &'static str,
    pub ailment: Option<Ailment>,
    /// Whether the source asks for a pause by HTTP.
    pub asks_for_a_pause: bool,
    /// Whether the configuration treats a refusal as a missing tag, and allows missing repositories.
    pub is_lenient: bool,
    /// Whether the list of an API is in an object, as its `items`.
    pub is_wrapped: bool,
    /// The `absent` of an API.
    pub absent: Option<&'static str>,
}

/// The behaviour, and the gateway's error code for it.
#[derive(Clone)]
pub(super) struct Rendition<T> {
    pub does: T,
    pub code: &'static str,
}

/// The behaviour of a faulty script.
pub(super) enum Does {
    /// Prints this and succeeds.
    Prints(Vec<u8>),
    /// Runs this line of shell.
    Runs(String),
}

/// The behaviour of a faulty source on the wire.
#[derive(Clone)]
pub(super) enum Wire {
    /// Nobody listens.
    Refuses,
    /// It gives these answers.
    Plays(Arc<Play>),
}

/// An ailment of the gateway while its source refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ailment {
    /// Its clock is put back an hour.
    ClockBack,
    /// Its clock restarts in 1970.
    ClockReset,
    /// Its clock jumps half an hour ahead.
    ClockAhead,
    /// Its clock jumps a century ahead.
    ClockFarAhead,
    /// Another process holds its store from the start.
    StoreLocked,
    /// Its store is overwritten while it runs.
    StoreOverwritten,
    /// It is started again, and its store was damaged meanwhile.
    StoreLost,
    /// It is started again.
    Restart,
}

impl Fault {
    /// The possible codes of the gateway for `kind`.
    pub(super) fn codes(&self, kind: Kind) -> Vec<&'static str> {
        match kind {
            Kind::Script | Kind::Pipeline => vec![self.script.code],
            // What it printed is its line, or not; that it has ended says less.
            Kind::Worker if self.script.code != TIMEOUT => vec![FAILED, INVALID],
            Kind::Worker => vec![TIMEOUT, INVALID],
            // Elements have no `absent`.
            Kind::OneElement | Kind::SomeElements | Kind::AllElements | Kind::ElementList if self.http.code == HELD => {
                vec![INVALID]
            }
            Kind::Http | Kind::OneElement | Kind::SomeElements | Kind::AllElements | Kind::ElementList => {
                vec![self.http.code]
            }
            Kind::Plugin => vec![self.plugin.code],
            // Who lists a tag, and denies to have it, is not accepted.
            Kind::Tag if self.digests.code == HELD => vec![FAILED],
            Kind::Digests | Kind::Tag => vec![self.digests.code],
            Kind::Signature => vec![self.signature_code],
            Kind::List => vec![self.list.code],
            Kind::Gate => vec![self.gate.code],
        }
    }

    pub(super) fn new(
        name: &'static str,
        script: Rendition<Does>,
        http: Rendition<Wire>,
        digests: Rendition<Wire>,
    ) -> Self {
        let (plugin, list, gate) = (http.clone(), digests.clone(), http.clone());
        let signature_code = if digests.code == HELD { UNSIGNED } else { digests.code };
        let (ailment, asks_for_a_pause, is_lenient, is_wrapped) = (None, false, false, false);
        Self {
            name,
            script,
            http,
            plugin,
            digests,
            list,
            gate,
            signature_code,
            ailment,
            asks_for_a_pause,
            is_lenient,
            is_wrapped,
            absent: None,
        }
    }

    /// With a rendition of its own for each kind that is asked over the wire.
    fn over_the_wire(name: &'static str, script: Rendition<Does>, wire: impl Fn(Kind) -> Rendition<Wire>) -> Self {
        let (plugin, list, gate) = (wire(Kind::Plugin), wire(Kind::List), wire(Kind::Gate));
        Self { plugin, list, gate, ..Self::new(name, script, wire(Kind::Http), wire(Kind::Digests)) }
    }

    /// Where the configuration is lenient.
    pub(super) fn lenient(self) -> Self {
        Self { is_lenient: true, ..self }
    }

    /// With a request for a pause by HTTP.
    pub(super) fn pausing(self) -> Self {
        Self { asks_for_a_pause: true, ..self }
    }

    /// With another code for signatures.
    pub(super) fn signed(self, signature_code: &'static str) -> Self {
        Self { signature_code, ..self }
    }

    /// With another rendition for an API, whose list is in an object.
    pub(super) fn wrapped(self, http: Rendition<Wire>) -> Self {
        Self { http, is_wrapped: true, ..self }
    }

    /// With an `absent` of an API.
    pub(super) fn absent(self, absent: &'static str) -> Self {
        Self { absent: Some(absent), ..self }
    }

    /// With another rendition for a plugin, and for CI.
    pub(super) fn plugged(self, plugin: Rendition<Wire>) -> Self {
        Self { gate: plugin.clone(), plugin, ..self }
    }

    /// With another rendition for a list of tags.
    pub(super) fn listed(self, list: Rendition<Wire>) -> Self {
        Self { list, ..self }
    }

    /// With another answer of CI, a whole 200.
    pub(super) fn gated(self, body: impl Into<Vec<u8>>) -> Self {
        Self { gate: says(INVALID, 200, JSON, body), ..self }
    }

    /// The connection is refused; the script fails accordingly.
    pub(super) fn refused(name: &'static str) -> Self {
        let refuses = || Rendition { does: Wire::Refuses, code: FAILED };
        Self::new(name, runs(FAILED, "echo 'connect: connection refused' >&2; exit 7"), refuses(), refuses())
    }

    /// The same with an ailment of the gateway.
    pub(super) fn ailing(name: &'static str, ailment: Ailment) -> Self {
        Self { ailment: Some(ailment), ..Self::refused(name) }
    }

    /// Each response is that of a source that has nothing, changed by `distort`.
    pub(super) fn on_the_wire(
        name: &'static str,
        code: &'static str,
        script: Rendition<Does>,
        distort: fn(&Whole) -> Vec<Step>,
    ) -> Self {
        Self::over_the_wire(name, script, |kind| plays(code, move |_| distort(&Whole::of(kind))))
    }

    /// The same for responses with a body: a `HEAD` is answered correctly.
    pub(super) fn in_the_body(
        name: &'static str,
        code: &'static str,
        script: Rendition<Does>,
        distort: fn(&Whole) -> Vec<Step>,
    ) -> Self {
        Self::over_the_wire(name, script, |kind| {
            plays(
                code,
                move |request| {
                    if request.method == "HEAD" { kind.nothing(request) } else { distort(&Whole::of(kind)) }
                },
            )
        })
    }

    /// The response of a source that has nothing, with another status.
    pub(super) fn status(
        name: &'static str,
        code: &'static str,
        script: Rendition<Does>,
        status: u16,
        headers: &'static str,
    ) -> Self {
        let asks_for_a_pause = status == 429 || (status >= 500 && headers.starts_with("Retry-After"));
        let headers = if headers.is_empty() { JSON.to_owned() } else { format!("{JSON}\r\n{headers}") };
        let fault = Self::over_the_wire(name, script, |kind| {
            let headers = headers.clone();
            plays(code, move |request| request.answer(status, &headers, kind.nothing_parts().1))
        });
        Self { asks_for_a_pause, ..fault }
    }

    /// A whole answer of a source that is well, by all outer signs: a script and an API say `content`, a registry says
    /// `(status, headers, body)` of a tag, and `list` for a list of tags.
    pub(super) fn content(
        name: &'static str,
        content: impl Into<Vec<u8>>,
        registry: (u16, &str, &[u8]),
        list: impl Into<Vec<u8>>,
    ) -> Self {
        let (content, (status, headers, body)) = (content.into(), registry);
        let digests = says(INVALID, status, headers, body);
        Self::new(name, prints(content.clone()), says(INVALID, 200, JSON, content), digests)
            .listed(says(INVALID, 200, JSON, list))
    }
}

/// The complete response of a source that has nothing, in parts.
pub(super) struct Whole {
    /// Up to the blank line, without `Content-Length`.
    head: String,
    pub body: &'static str,
}

impl Whole {
    fn of(kind: Kind) -> Self {
        let (status, body) = kind.nothing_parts();
        Self { head: format!("HTTP/1.1 {status} X\r\n{JSON}\r\nConnection: close\r\n"), body }
    }

    /// The correct response.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.claiming(self.body.len())
    }

    /// With another `Content-Length`.
    pub(super) fn claiming(&self, length: usize) -> Vec<u8> {
        self.with(&format!("Content-Length: {length}"), self.body)
    }

    /// With the chunks `pieces`, and no last one.
    pub(super) fn chunks(&self, pieces: &[&str]) -> Vec<u8> {
        let chunk = |piece: &&str| format!("{:x}\r\n{piece}\r\n", piece.len()).into_bytes();
        self.with("Transfer-Encoding: chunked", pieces.iter().flat_map(chunk).collect::<Vec<u8>>())
    }

    /// With `headers` and `body` in the place of its own.
    pub(super) fn with(&self, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
        [format!("{}{headers}\r\n\r\n", self.head).as_bytes(), body.as_ref()].concat()
    }

    /// Without its last bytes, of which there are `missing`.
    pub(super) fn cut(&self, missing: usize) -> Vec<u8> {
        let mut bytes = self.bytes();
        bytes.truncate(bytes.len() - missing);
        bytes
    }

    /// Its head alone.
    pub(super) fn head(&self) -> Vec<u8> {
        self.cut(self.body.len())
    }
}

pub(super) fn send(bytes: impl Into<Vec<u8>>) -> Vec<Step> {
    vec![Step::Send(bytes.into())]
}

pub(super) fn runs(code: &'static str, command: &str) -> Rendition<Does> {
    Rendition { does: Does::Runs(command.to_owned()), code }
}

pub(super) fn prints(output: impl Into<Vec<u8>>) -> Rendition<Does> {
    Rendition { does: Does::Prints(output.into()), code: INVALID }
}

pub(super) fn plays(
    code: &'static str,
    play: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static,
) -> Rendition<Wire> {
    Rendition { does: Wire::Plays(Arc::new(play)), code }
}

/// One whole response, whatever is asked.
pub(super) fn says(code: &'static str, status: u16, headers: &str, body: impl Into<Vec<u8>>) -> Rendition<Wire> {
    let (headers, body) = (headers.to_owned(), body.into());
    plays(code, move |request| match &*request.method {
        "HEAD" => request.answer(status, &headers, &body),
        _ => send(response(status, &headers, &body)),
    })
}

pub(super) fn digest(content: &str) -> Digest {
    Digest::of(content.as_bytes())
}

/// A compressed body, though the request did not allow compression.
pub(super) fn encoded(name: &'static str, content: Vec<u8>, registry: Vec<u8>, list: Vec<u8>) -> Fault {
    let headers = format!("{JSON}\r\nContent-Encoding: gzip");
    let wire = |status, body| says(INVALID, status, &headers, body);
    Fault::new(name, prints(content.clone()), wire(200, content), wire(404, registry)).listed(wire(200, list))
}

pub(super) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut child = Command::new("gzip")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs the program `gzip`");
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(content).unwrap());
        child.wait_with_output().unwrap().stdout
    })
}
