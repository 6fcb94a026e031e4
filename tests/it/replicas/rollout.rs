//! A new configuration, and its rollback, on a fleet of replicas under load.

use nix::sys::signal::Signal;

use super::*;

/// The same route with a template, so that an answer tells which configuration made it.
fn revision(options: &Options, name: &str) -> Options {
    let mut options = options.clone();
    let output = json!({"name": "{{ name }}", "run": "{{ run }}", "revision": name});
    options.route["output"] = output;
    options
}

/// Calls in turn, and the revisions that they saw.
async fn watched(replicas: &[Replica], until: impl AsyncFnOnce()) -> Vec<(Duration, String)> {
    let began = Instant::now();
    let is_over = AtomicBool::new(false);
    let seen_once = tokio::sync::Notify::new();
    let watch = async {
        let mut seen = Vec::new();
        while !is_over.load(Ordering::SeqCst) {
            for replica in replicas {
                let reply = replica.ask("x").await;
                assert_eq!(sets(&reply), 3);
                let revision = reply.json()["output"]["parameters"][0]["revision"].as_str().unwrap().to_owned();
                seen.push((began.elapsed(), revision));
            }
            seen_once.notify_one();
            sleep(Duration::from_millis(5)).await;
        }
        seen
    };
    let change = async {
        seen_once.notified().await;
        until().await;
        is_over.store(true, Ordering::SeqCst);
    };
    tokio::join!(watch, change).0
}

/// The calls changed from one revision to another once, within a second.
fn assert_one_change(seen: &[(Duration, String)], from: &str, to: &str) {
    assert!(seen.iter().all(|(_, revision)| revision == from || revision == to));
    let first = seen.iter().find(|(_, revision)| revision == to).expect("it changes").0;
    let last = seen.iter().rfind(|(_, revision)| revision == from).expect("it was another before").0;
    assert!(last < first + Duration::from_secs(1), "{from} until {last:?}, {to} since {first:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_configuration_and_its_rollback_change_all_answers_once() {
    let (store, source) = (StoreServer::start(&[]).await, Source::of(3).await);
    let options = Options::new(store_at(&store.url()), &source, "500ms");
    let (first, second) = (revision(&options, "one"), revision(&options, "two"));
    let replicas = three(&first).await;
    assert_eq!(sets(&replicas[0].ask("x").await), 3);
    for (from, to, config) in [("one", "two", &second), ("two", "one", &first)] {
        let seen = watched(&replicas, async || {
            // A ConfigMap reaches the pods one after the other.
            for replica in &replicas {
                std::fs::write(replica.config(), config.text()).unwrap();
                replica.gateway.signal(Signal::SIGHUP);
                sleep(Duration::from_secs(2)).await;
            }
        })
        .await;
        assert_one_change(&seen, from, to);
    }
}

/// As a Deployment rolls: a new pod joins before an old one ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_fails_no_call() {
    let (store, source) = (StoreServer::start(&[]).await, Source::of(3).await);
    let options = Options::new(store_at(&store.url()), &source, "500ms");
    let mut replicas = three(&options).await;
    assert_eq!(sets(&replicas[0].ask("x").await), 3);
    let mut latest = 0;
    for _ in 0..3 {
        let new = Replica::begin(tempfile::tempdir().unwrap(), &options);
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until || new.probe("/startupz").await != 200 {
            for replica in &replicas {
                let reply = replica.ask("x").await;
                assert_eq!(sets(&reply), 3);
                assert!(run_of(&reply) >= latest, "an answer older than the one before");
                latest = run_of(&reply);
            }
            sleep(Duration::from_millis(5)).await;
        }
        replicas.push(new);
        let mut old = replicas.remove(0);
        old.gateway.signal(Signal::SIGTERM);
        old.gateway.wait(Duration::from_secs(10));
    }
}
