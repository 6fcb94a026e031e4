//! Documented incidents against three plugins: that of Argo CD's documentation, a careless one, and this gateway. The table of
//! docs/conformance.md has the same numbers.

use std::{
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use super::{conformance, folder, hostile::ask_source, port};
use crate::support::{
    TOKEN, TestApp,
    binary::command,
    upstream::{Step, Upstream, json_response, response},
};

/// A plugin server in a process that `--restart` can replace. Dropping it ends the process.
struct Server {
    folder: tempfile::TempDir,
    url: String,
    restart: String,
    /// The port at which it asks for its source.
    proxy: u16,
}

impl Server {
    /// Starts the words of `command`, which get the ports of the plugin and of its source.
    fn start(folder: tempfile::TempDir, path: &str, ports: [u16; 2], words: &[String]) -> Self {
        let script = tests().join("incidents/restart.sh");
        let words = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let restart = format!("sh '{}' {words}", script.display());
        let [port, proxy] = ports;
        let status = Command::new("sh").arg("-c").arg(&restart).current_dir(folder.path()).status().unwrap();
        assert!(status.success());
        let until = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            // The shell may not have made the file yet.
            let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < until, "{restart} does not listen: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { folder, url: format!("http://127.0.0.1:{port}{path}"), restart, proxy }
    }

    /// A plugin in Python.
    fn python(program: &str, before: &[&str], list: &str) -> Self {
        let ports = ports();
        let source = format!("http://127.0.0.1:{}/{list}", ports[1]);
        let program = tests().join(program).display().to_string();
        let mut words = vec!["python3".to_owned(), program];
        words.extend(before.iter().map(ToString::to_string));
        words.extend([source, ports[0].to_string()]);
        Self::start(folder(&json!([{"name": "all"}])), "", ports, &words)
    }

    fn documented(list: &str) -> Self {
        Self::python("incidents/documented.py", &[TOKEN], list)
    }

    fn careless(list: &str) -> Self {
        Self::python("careless.py", &[], list)
    }

    /// This gateway, whose route has the guard `guard`.
    fn gateway(list: &str, guard: &Value, has_file: bool) -> Self {
        let (folder, ports) = (folder(&json!([{"name": "all", "applicationSet": "fleet"}])), ports());
        let http = json!({
            "url": format!("http://127.0.0.1:{}/{list}", ports[1]),
            "parameters": "body.items.map(i, {'name': i.name})",
            "timeout": "2s",
        });
        let route = json!({"name": "all", "backend": {"http": http}, "cache": {"ttl": "0s"}, "guard": guard});
        let cache = if has_file { json!({"path": folder.path().join("answers.redb")}) } else { json!({}) };
        let config = format!(
            "server: {{ listen: \"127.0.0.1:{}\", admin: \"127.0.0.1:0\" }}\n{}cache: {cache}\nroutes: {}\n",
            ports[0],
            TestApp::auth(),
            json!([route])
        );
        std::fs::write(folder.path().join("gateway.yaml"), config).unwrap();
        let words = [env!("CARGO_BIN_EXE_appset-gateway"), "serve", "-c", "gateway.yaml"].map(str::to_owned);
        Self::start(folder, "/all", ports, &words)
    }

    /// Plays an incident, or `all`. Returns whether Argo CD would keep everything, and the report.
    async fn play(&self, incident: &str, source: &Upstream, options: &[&str]) -> (bool, String) {
        let (proxy, source) = (self.proxy.to_string(), format!("http://{}", source.address));
        let played = ["--incident", incident, "--break-upstream", &proxy, "--source", &source, "--timeout", "10"];
        let restart = ["--restart", &self.restart];
        conformance(self.folder.path(), &self.url, &[&played[..], &restart, options].concat()).await
    }

    /// What each incident deletes: `6 of 12`, or the result if it deletes nothing.
    async fn deleted(&self, incident: &str, source: &Upstream) -> Vec<(String, String)> {
        let (is_safe, report) = self.play(incident, source, &["-o", "json"]).await;
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["safe"], is_safe, "{report:#}");
        let told = |played: &Value| match played["result"].as_str().unwrap() {
            "deletes" => format!("{} of {}", played["deletes"], played["before"]),
            "keeps" => "0".to_owned(),
            result => format!("{result}: {}", played["why"]),
        };
        let played = report["incidents"].as_array().unwrap().iter();
        played.map(|played| (played["name"].as_str().unwrap().to_owned(), told(played))).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(self.folder.path().join("pid")).unwrap();
        let _ = kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL);
    }
}

/// Two free ports.
fn ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn tests() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/conformance")
}

/// A source with 12 memberships and 120 pull requests.
async fn source() -> Upstream {
    Upstream::start(|request| {
        let count = if request.target == "/pulls" { 120 } else { 12 };
        let items: Vec<Value> = (0..count).map(|n| json!({"name": format!("item-{n}"), "n": n})).collect();
        vec![Step::Send(json_response(json!({"items": items, "total": count}).to_string()))]
    })
    .await
}

/// The incidents that do not depend on the length of the list, and what each plugin loses of 12 Applications.
const LOST: [(&str, [&str; 2]); 7] = [
    ("half-a-list", ["6 of 12", "6 of 12"]),
    ("empty-on-error", ["0", "12 of 12"]),
    ("source-away", ["0", "12 of 12"]),
    ("html-maintenance", ["0", "12 of 12"]),
    ("empty-204", ["0", "12 of 12"]),
    ("token-expired-as-403-list", ["12 of 12", "12 of 12"]),
    ("gateway-restart", ["6 of 12", "12 of 12"]),
];
/// What both lose of 120 Applications.
const CUT: &str = "20 of 120";
/// The incident that needs more than 100 items.
const CUT_NAME: &str = "list-cut-at-100";

/// Checks `found` against `LOST`, by `lost`.
fn check(found: &[(String, String)], lost: impl Fn(&[&'static str; 2]) -> &'static str) {
    assert_eq!(found.len(), LOST.len() + 1, "{found:#?}");
    for (name, deleted) in found {
        match LOST.iter().find(|(known, _)| known == name) {
            Some((_, both)) => assert_eq!(deleted, lost(both), "{name}: {found:#?}"),
            None => assert!(
                name == CUT_NAME
                    && deleted.starts_with("not played: \"it needs a JSON document with a list of more than 100 items"),
                "{found:#?}"
            ),
        }
    }
}

/// The plugin of the documentation is stopped by errors, and takes each short list for the truth.
#[tokio::test(flavor = "multi_thread")]
async fn the_documentations_plugin_loses_what_a_source_leaves_out() {
    let source = source().await;
    let plugin = Server::documented("memberships");
    check(&plugin.deleted("all", &source).await, |both| both[0]);
    let plugin = Server::documented("pulls");
    assert_eq!(plugin.deleted(CUT_NAME, &source).await, [(CUT_NAME.to_owned(), CUT.to_owned())]);
}

/// A careless plugin turns each failure into an empty list.
#[tokio::test(flavor = "multi_thread")]
async fn a_careless_plugin_loses_everything() {
    let source = source().await;
    let plugin = Server::careless("memberships");
    check(&plugin.deleted("all", &source).await, |both| both[1]);
    for (format, shows) in [
        (
            "text",
            &[
                "deletes    half-a-list               Argo CD would delete 6 of 12 Applications\n",
                "           all: the source has half of its list: status 200, 6 sets instead of 12\n",
                "           https://github.com/GoogleCloudPlatform/gke-fleet-management/issues/113\n",
                "Argo CD would delete Applications in 1 of 1 incidents\n",
            ][..],
        ),
        (
            "markdown",
            &["| `half-a-list` | deletes | Argo CD would delete 6 of 12 Applications<br>all: the source has half"],
        ),
        ("junit", &["name=\"half-a-list\"><failure message=\"Argo CD would delete 6 of 12 Applications\">"]),
    ] {
        let (is_safe, report) = plugin.play("half-a-list", &source, &["-o", format]).await;
        assert!(!is_safe && shows.iter().all(|shown| report.contains(shown)), "{format}: {report}");
    }
    let plugin = Server::careless("pulls");
    assert_eq!(plugin.deleted(CUT_NAME, &source).await, [(CUT_NAME.to_owned(), CUT.to_owned())]);
}

/// This gateway loses nothing, if its cache has a file and its guard is as strict as the list is long.
#[tokio::test(flavor = "multi_thread")]
async fn this_gateway_loses_nothing() {
    let source = source().await;
    let gateway = Server::gateway("memberships", &json!({}), true);
    check(&gateway.deleted("all", &source).await, |_| "0");
    let gateway = Server::gateway("pulls", &json!({"maxShrink": "10%"}), true);
    assert_eq!(gateway.deleted(CUT_NAME, &source).await, [(CUT_NAME.to_owned(), "0".to_owned())]);
}

/// The two settings that the page names are needed.
#[tokio::test(flavor = "multi_thread")]
async fn this_gateway_needs_its_file_and_a_guard_that_fits() {
    let source = source().await;
    let gateway = Server::gateway("memberships", &json!({}), false);
    assert_eq!(gateway.deleted("gateway-restart", &source).await[0].1, "6 of 12");
    let gateway = Server::gateway("pulls", &json!({}), true);
    assert_eq!(gateway.deleted(CUT_NAME, &source).await[0].1, CUT);
}

/// The page has the numbers of the tests above.
#[test]
fn the_page_has_the_same_numbers() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/conformance.md")).unwrap();
    let rows = LOST.iter().map(|(name, both)| (*name, *both)).chain([(CUT_NAME, [CUT, CUT])]);
    for (name, [documented, careless]) in rows {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap();
        assert!(row.ends_with(&format!("| {documented} | {careless} | 0 |")), "{row}");
    }
    let listed = command().args(["conformance", "--incidents", "-o", "json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), LOST.len() + 1);
    for incident in listed {
        for source in incident["sources"].as_array().unwrap() {
            assert!(page.contains(source.as_str().unwrap()), "docs/conformance.md lacks {source}");
        }
    }
}

/// An incident that is named must be played. With `all`, one that cannot be played is left out.
#[tokio::test(flavor = "multi_thread")]
async fn incidents_that_were_not_played_are_not_passed() {
    let (source, port) = (source().await, port().to_string());
    let address = format!("http://{}", source.address);
    let folder = folder(&json!([{"name": "all"}]));
    let fixed = json_response(r#"{"output":{"parameters":[{"name":"a"}]}}"#);
    let plugin = Upstream::always(fixed).await;
    let url = format!("http://{}", plugin.address);
    let options =
        |incident| ["--incident", incident, "--break-upstream", &port, "--source", &address].map(str::to_owned);
    for (incident, format, shows) in [
        ("half-a-list", "text", "did not ask for its source at the port of `--break-upstream`"),
        ("gateway-restart", "text", "it needs `--restart COMMAND`, or a terminal"),
        ("all", "text", "not known whether Argo CD would keep all Applications, 8 not played"),
        ("all", "junit", "name=\"finished\"><failure message=\"not known whether"),
    ] {
        let options = options(incident);
        let options: Vec<&str> = options.iter().map(String::as_str).chain(["-o", format]).collect();
        let (is_safe, report) = conformance(folder.path(), &url, &options).await;
        assert!(!is_safe && report.contains(shows), "{incident}: {report}");
    }
    let plugin = Server::documented("memberships");
    let port = plugin.proxy.to_string();
    let options = ["--incident", "gateway-restart", "--break-upstream", &port, "--source", &address];
    let failing = [&options[..], &["--restart", "exit 3"]].concat();
    let (is_safe, report) = conformance(plugin.folder.path(), &plugin.url, &failing).await;
    assert!(!is_safe && report.contains("the command of `--restart` failed: exit status: 3"), "{report}");
}

/// Half of an incident proves nothing: this source has no list that could be empty.
#[tokio::test(flavor = "multi_thread")]
async fn an_incident_that_was_played_in_part_is_unknown() {
    let source = Upstream::always(json_response("true")).await;
    let (folder, port) = (folder(&json!([{"name": "all"}])), port());
    let plugin = Upstream::start(move |_| {
        let reply = tokio::task::block_in_place(|| ask_source(port));
        let is_fine = reply.ends_with(b"\r\n\r\ntrue");
        vec![Step::Send(if is_fine {
            json_response(r#"{"output":{"parameters":[{}]}}"#)
        } else {
            response(502, "", "no")
        })]
    })
    .await;
    let (port, address) = (port.to_string(), format!("http://{}", source.address));
    let options = ["--break-upstream", &port, "--source", &address, "-o", "json", "--incident"];
    for (incident, result, is_expected) in [
        ("token-expired-as-403-list", "unknown", false),
        ("half-a-list", "not played", false),
        ("empty-204", "keeps", true),
    ] {
        let options = [&options[..], &[incident]].concat();
        let (is_safe, report) = conformance(folder.path(), &format!("http://{}", plugin.address), &options).await;
        let report: Value = serde_json::from_str(&report).unwrap();
        let played = &report["incidents"][0];
        assert_eq!((played["result"].as_str().unwrap(), is_safe), (result, is_expected), "{report:#}");
        let needs = "it needs a JSON document with a list that is not empty";
        assert!(is_expected || played["why"].as_str().unwrap().starts_with(needs), "{report:#}");
    }
}

/// A wrong name is answered by the names, and nothing is sent.
#[test]
fn a_wrong_name_is_explained() {
    let run = |arguments: &[&str]| {
        let output = command().arg("conformance").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let proxy = ["--url", "http://127.0.0.1:1", "--break-upstream", "0", "--source", "http://127.0.0.1:1"];
    let (code, _, said) = run(&[&proxy[..], &["--incident", "half-a-lsit"]].concat());
    assert!(code == Some(2) && LOST.iter().all(|(name, _)| said.contains(name)) && said.contains(CUT_NAME), "{said}");
    let (code, _, said) = run(&["--url", "http://127.0.0.1:1", "--incident", "half-a-list"]);
    assert!(code == Some(2) && said.contains("--break-upstream"), "{said}");
    let (code, list, _) = run(&["--incidents"]);
    assert!(code == Some(0) && LOST.iter().all(|(name, _)| list.contains(&format!("{name}\n    "))), "{list}");
    assert!(list.contains("    https://github.com/argoproj/argo-cd/issues/18212\n"), "{list}");
}
