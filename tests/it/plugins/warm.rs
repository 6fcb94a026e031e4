//! A plugin with a worker.

use super::*;

const WORKER: &str = r#"#!/usr/bin/env python3
import json, os, sys

for count, line in enumerate(sys.stdin, 1):
    question = json.loads(line)
    region = question["request"]["input"]["parameters"]["region"]
    prepared = open(os.environ["TMPDIR"] + "/prepared").read().strip()
    one = {"pid": str(os.getpid()), "n": str(count), "zone": region + prepared + open("suffix").read()}
    print(json.dumps({"id": question["id"], "output": [one]}), flush=True)
"#;

#[tokio::test]
async fn a_plugin_can_be_a_worker() {
    let spec = "init: { command: [sh, -c, 'echo - > $TMPDIR/prepared'] }, generate: { command: [zones] }, \
                parameters: { static: [ { name: region, required: true } ] }, cache: { ttl: 0s }, \
                discover: { command: [sh, -c, 'echo $PARAM_REGION'] }, mode: worker, worker: { recycleAfter: 3 }";
    let folder = folder(&[
        ("plugins/warm/plugin.yaml", &generator("warm", "", spec)),
        ("plugins/warm/bin/zones", WORKER),
        ("plugins/warm/suffix", "!"),
    ]);
    let app = serve(folder, "").await;
    let mut pids = Vec::new();
    for (n, region) in ["eu", "us", "ap", "sa"].iter().enumerate() {
        // By name, and by its match command.
        let reply = match n % 2 {
            0 => app.ask("warm", json!({ "region": region })).await,
            _ => call(&app, "set", json!({ "region": region })).await,
        };
        let one = sets(&reply).parse::<Value>().unwrap()[0].clone();
        assert_eq!(one["zone"], format!("{region}-!"));
        assert_eq!(one["n"], (n % 3 + 1).to_string());
        pids.push(one["pid"].clone());
    }
    assert!(pids[0] == pids[1] && pids[1] == pids[2] && pids[2] != pids[3], "{pids:?}");
}

#[test]
fn a_plugin_with_a_copied_source_cannot_be_a_worker() {
    let folder = folder(&[
        ("plugins/a/plugin.yaml", &generator("a", "", "generate: { command: [cat] }, worker: { ahead: 1 }")),
        (
            "plugins/b/plugin.yaml",
            "apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nmetadata: { name: b }\n\
             spec: { generate: { command: [cat] } }\n",
        ),
        ("work/file", ""),
    ]);
    let sources = "sources: { b: { folder: work, mode: worker, worker: { ahead: 1 } } }";
    let found = problems(&folder, &format!("plugins: {{ path: plugins, {sources} }}\n"));
    let stays = "a ConfigManagementPlugin gets a fresh copy of its folder for each run, so it cannot have workers";
    let help = "(leave it out; a GeneratorPlugin can have workers)";
    let expected = [
        format!("test.yaml:2:57: plugins.sources.b.mode: {stays} {help}"),
        format!("test.yaml:2:71: plugins.sources.b.worker: {stays} {help}"),
        "plugins/a/plugin.yaml:4:39: spec.worker: this script has no workers (write `mode: worker`)".to_owned(),
    ];
    assert_eq!(found, expected);
}
