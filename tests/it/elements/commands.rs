//! What commands print of elements, and cases of `test` and `record` for a route that has some.

use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::support::{
    ADMIN_TOKEN,
    binary::{Gateway, command},
    images,
};

/// Runs `appset-gateway` beside `gateway.yaml` in `folder`. Returns the exit code, standard output and standard error.
fn cli(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command().current_dir(folder).args(arguments).args(["-c", "gateway.yaml"]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn folder(config: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.yaml"), config).unwrap();
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_prints_one_line_for_each_element() {
    let source = Source::start(&[(1, Says::Present), (2, Says::Absent), (3, Says::Present)]).await;
    let folder = folder(&source.config());
    let (code, printed, error) = cli(folder.path(), &["call", "previews"]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["output"]["parameters"].as_array().unwrap().len(), 2);
    for line in ["elements  2 present, 1 absent", "element   1: present, 1 parameter set", "element   2: absent"] {
        assert!(error.lines().any(|other| other == line), "{line} is not in {error}");
    }
    assert!(error.contains("the list") && error.contains("element 3"), "the steps: {error}");

    // An element fails, so there is no first answer. What is known is printed all the same.
    source.set(3, Says::Fails);
    let (code, printed, error) = cli(folder.path(), &["call", "previews"]);
    assert_eq!((code, &*printed), (Some(1), ""), "{error}");
    let line = error.lines().find(|line| line.starts_with("element   3: ")).unwrap_or_else(|| panic!("{error}"));
    assert!(
        line.starts_with("element   3: unknown, the answer has nothing of it; since 20") && line.contains("500"),
        "{line}"
    );
    assert!(error.contains("element   1: present, 1 parameter set"), "{error}");
    let (_, printed, _) = cli(folder.path(), &["call", "previews", "-o", "json"]);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&json["outcome"], &json["elements"]["unknown"]), (&json!("unknown"), &json!(1)));
}

/// The first line of the log with these words.
fn line_with(gateway: &Gateway, words: &str) -> Value {
    let log = gateway.logged(words);
    serde_json::from_str(log.lines().find(|line| line.contains(words)).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_gateway_shows_elements_to_commands_and_in_its_log() {
    let source = Source::start(&[(1, Says::Present), (2, Says::Present), (3, Says::Present)]).await;
    let mut route = source.route();
    route["cache"]["ttl"] = json!("1ms");
    let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }";
    let folder = folder(&format!("{server}\n{}routes: {}\n", TestApp::auth(), json!([route])));
    let gateway = Gateway::serve(&folder.path().join("gateway.yaml"));
    let ask = async || {
        let body = json!({"applicationSetName": "test", "input": {"parameters": {}}}).to_string();
        let request = crate::support::wire::argo_request(
            "/previews/api/v1/getparams.execute",
            crate::support::TOKEN,
            body.as_bytes(),
        );
        crate::support::wire::exchange(gateway.address, &request).await
    };
    assert_eq!(numbers(&ask().await), ["1", "2", "3"]);
    source.set(2, Says::Fails);
    assert_eq!(numbers(&ask().await), ["1", "2", "3"]);
    let line = line_with(&gateway, "elements are unknown");
    assert_eq!((&line["level"], &line["route"], &line["elements"]), (&json!("WARN"), &json!("previews"), &json!(3)));
    assert!(line["last_known"].as_str().unwrap().starts_with("2: "), "{line}");
    assert_eq!(line.get("left_out"), None, "{line}");
    let answered = line_with(&gateway, "last-known=1");
    assert_eq!(answered["elements"], "present=2, absent=0, last-known=1, unknown=0");

    std::fs::write(folder.path().join("token"), ADMIN_TOKEN).unwrap();
    let url = format!("http://{}", gateway.admin);
    let at = ["--admin", &url, "--token-file", "token"];
    let run = |arguments: &[&str]| {
        let output = command().current_dir(folder.path()).args([arguments, &at].concat()).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let status = run(&["status"]);
    assert!(status.contains("element 2: the answer has what it had last"), "{status}");
    let explained = run(&["explain", "previews", "-a", "test"]);
    assert!(explained.contains("elements  2 present, 1 as last known"), "{explained}");
    let list: Value = serde_json::from_str(&run(&["answers", "list", "-o", "json"])).unwrap();
    let shown = run(&["answers", "show", list["answers"][0]["key"].as_str().unwrap(), "--elements", "1"]);
    assert!(shown.contains("element   2: unknown, the answer has what it had last: 1 parameter set of 20"), "{shown}");
    assert!(shown.contains("elements  2 more are not shown"), "{shown}");
}

/// A recorded case has the list and each element, and is played without the source.
#[tokio::test(flavor = "multi_thread")]
async fn a_case_of_a_route_with_elements_is_recorded_and_played() {
    let source = Source::start(&[(1, Says::Present), (2, Says::Absent)]).await;
    let folder = folder(&source.config());
    let (code, _, error) = cli(folder.path(), &["record", "previews", "--to", "tests/cases.yaml"]);
    assert_eq!(code, Some(0), "{error}");
    drop(source);
    let written = std::fs::read_to_string(folder.path().join("tests/cases.yaml")).unwrap();
    assert!(["/list", "/element/1", "/element/2"].iter().all(|path| written.contains(path)), "{written}");
    let (code, printed, error) = cli(folder.path(), &["test"]);
    assert!(code == Some(0) && printed.contains("1 passed, 0 failed"), "{printed}{error}{written}");
    // A case may be about one element that fails later.
    let more = written.trim_end().to_owned()
        + "\n    then:\n      - after: 1m\n        replies: [ { request: \"GET */element/1\", status: 500 } ]\n        expect: { parameters: [ { number: \"1\", digest: digest-1 } ] }\n";
    std::fs::write(folder.path().join("tests/cases.yaml"), &more).unwrap();
    let (code, printed, error) = cli(folder.path(), &["test"]);
    assert_eq!(code, Some(0), "{printed}{error}{more}");
}

/// The same with images in a folder, which needs no reply.
#[tokio::test(flavor = "multi_thread")]
async fn a_case_with_digests_from_a_folder_is_recorded_and_played() {
    let source = Source::start(&[(1, Says::Present), (2, Says::Present)]).await;
    let list = json!({"http": {"url": format!("http://{}/list", source.upstream.address)}});
    let each =
        json!({"key": ["number"], "digests": {"images": {"app": {"image": "oci:images:app:pr-{{ item.number }}"}}}});
    let route = json!({"name": "previews", "backend": {"pipeline": [list, {"each": each}]},
        "output": {"number": "{{ item.number }}", "digest": "{{ app.digest }}"}});
    let folder = folder(&format!("{}routes: {}\n", TestApp::auth(), json!([route])));
    let layout = folder.path().join("images");
    images::create(&layout);
    let image = images::image(&layout, &json!({"os": "linux", "architecture": "amd64"}), &json!({}), &json!({}));
    let digest = images::name(&layout, "app:pr-1", image);
    let (code, _, error) = cli(folder.path(), &["record", "previews", "--to", "tests/cases.yaml"]);
    assert_eq!(code, Some(0), "{error}");
    let written = std::fs::read_to_string(folder.path().join("tests/cases.yaml")).unwrap();
    assert!(written.contains(digest.as_str()), "{written}");
    drop(source);
    let (code, printed, error) = cli(folder.path(), &["test"]);
    assert!(code == Some(0) && printed.contains("1 passed, 0 failed"), "{printed}{error}{written}");
}
