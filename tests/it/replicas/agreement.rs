//! All replicas give the same answer, ask the source once, and follow the decision of any operator.

use futures_util::future::join_all;
use nix::sys::signal::Signal;

use super::*;
use crate::support::TestApp;

/// The measured case from which this feature comes. A source shrinks, and one replica starts again and again without a memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_shrinking_source_never_makes_answers_alternate() {
    let (store, source) = (StoreServer::start(&[]).await, Source::of(23).await);
    let guard = json!({"identity": ["name"], "confirmAfter": 3, "confirmFor": "3s"});
    let options = Options::new(store_at(&store.url()), &source, "200ms").guard(guard);
    let mut replicas = three(&options).await;
    assert_eq!(sets(&replicas[0].ask("x").await), 23);
    source.set(5);

    let (began, mut restarted) = (Instant::now(), Instant::now());
    let mut answers = Vec::new();
    while began.elapsed() < Duration::from_secs(16) {
        if restarted.elapsed() > Duration::from_secs(2) {
            replicas[2] = Replica::begin(tempfile::tempdir().unwrap(), &options);
            restarted = Instant::now();
        }
        for (index, replica) in replicas.iter().enumerate() {
            let reply = replica.ask("x").await;
            // A replica that has not been in contact yet knows nothing, and says so.
            if reply.status == 503 && index == 2 {
                continue;
            }
            answers.push((began.elapsed(), sets(&reply)));
        }
        sleep(Duration::from_millis(20)).await;
    }
    let first = answers.iter().find(|(_, sets)| *sets == 5).expect("the smaller answer is accepted at last").0;
    let last = answers.iter().rfind(|(_, sets)| *sets == 23).unwrap().0;
    assert!(answers.iter().all(|(_, sets)| *sets == 23 || *sets == 5));
    assert!(first >= Duration::from_secs(9), "three runs agreed, 3 s apart: {first:?}");
    assert!(last < first + Duration::from_secs(1), "all replicas changed: {first:?}, {last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_callers_of_three_replicas_cause_one_run() {
    let (store, source) = (StoreServer::start(&[]).await, Source::of(3).await);
    let replicas = three(&Options::new(store_at(&store.url()), &source, "1m")).await;
    source.delay(Duration::from_millis(300));
    for fails in [false, true] {
        source.fail(fails);
        let (before, question, began) = (source.runs(), format!("fails-{fails}"), Instant::now());
        let calls = (0..1000).map(|n| replicas[n % 3].ask(&question));
        let replies = join_all(calls).await;
        let wanted = if fails { 502 } else { 200 };
        let other = replies.iter().find(|reply| reply.status != wanted);
        assert!(other.is_none(), "{}", other.unwrap().text());
        // A failure is remembered for a second. On a busy machine the last callers come later than that.
        let more = if fails { began.elapsed().as_secs() } else { 0 };
        let runs = source.runs() - before;
        assert!((1..=1 + more).contains(&runs), "fails: {fails}, runs: {runs}, {:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_decide_for_all_replicas_at_any_of_them() {
    let (store, source) = (StoreServer::start(&[]).await, Source::of(23).await);
    let replicas = three(&Options::new(store_at(&store.url()), &source, "0s")).await;
    assert_eq!(sets(&replicas[0].ask("x").await), 23);
    source.set(5);
    assert_eq!(sets(&replicas[1].ask("x").await), 23, "held");
    // C lists it, A rejects it, C releases it.
    let second = Duration::from_secs(1);
    within(second, "C knows it", async || {
        let list = replicas[2].operate("GET", "/admin/held", "").await.json();
        list["held"].as_array().unwrap().len() == 1
    })
    .await;
    let held = replicas[2].held().await;
    let (id, fingerprint) = (held["id"].as_str().unwrap(), held["fingerprint"].as_str().unwrap());
    let decide = |what: &str| format!("/admin/held/{id}/{what}?fingerprint={fingerprint}");
    assert_eq!(replicas[0].operate("POST", &decide("reject"), "{}").await.status, 200);
    within(second, "B knows the decision", async || replicas[1].held().await["decision"] == "rejected").await;
    assert_eq!(replicas[2].operate("POST", &decide("release"), "{}").await.status, 200);
    for replica in &replicas {
        within(second, "all serve it", async || sets(&replica.ask("x").await) == 5).await;
    }
    // The decision named another answer.
    source.set(1);
    assert_eq!(sets(&replicas[0].ask("x").await), 5);
    let late = replicas[0].operate("POST", &decide("release"), "{}").await;
    assert_eq!((late.status, late.code().as_str()), (409, "conflict"));
    // The command of the container decides, too.
    let (id, file) = (replicas[0].held().await["id"].as_str().unwrap().to_owned(), replicas[1].config());
    let admin = replicas[1].gateway.admin.to_string();
    within(second, "B knows it", async || replicas[1].operate("GET", "/admin/held", "").await.text().contains(&id))
        .await;
    let output = command().args(["held", "release", &id, "--admin", &admin, "-c"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    within(second, "C serves it", async || sets(&replicas[2].ask("x").await) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalidation_reaches_all_replicas() {
    let (store, source) = (StoreServer::start(&[]).await, Source::of(3).await);
    let replicas = three(&Options::new(store_at(&store.url()), &source, "1h")).await;
    let first = run_of(&replicas[0].ask("x").await);
    for replica in &replicas {
        assert_eq!(run_of(&replica.ask("x").await), first);
    }
    assert_eq!(source.runs(), 1);
    assert_eq!(replicas[1].operate("POST", "/admin/answers/invalidate", r#"{"route":"h"}"#).await.status, 200);
    for replica in &replicas {
        within(Duration::from_secs(1), "the new answer", async || run_of(&replica.ask("x").await) > first).await;
    }
    assert_eq!(source.runs(), 2, "one run for all");
}

/// The store keeps the latest invalidations. A replica that missed more of them than it keeps trusts no answer that it has.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_missed_many_invalidations_serves_nothing_old() {
    let (store, source) = (StoreServer::start(&[]).await, Source::of(3).await);
    let replicas = three(&Options::new(store_at(&store.url()), &source, "1h")).await;
    let first = run_of(&replicas[0].ask("x").await);
    assert_eq!(run_of(&replicas[1].ask("x").await), first);
    replicas[1].gateway.signal(Signal::SIGSTOP);
    assert_eq!(replicas[0].operate("POST", "/admin/answers/invalidate", r#"{"route":"h"}"#).await.status, 200);
    // The store keeps 1,000: this one is forgotten.
    let other = json!({"route": "h", "input": {"q": "nobody's"}}).to_string();
    for _ in 0..1100 {
        let reply = replicas[0].operate("POST", "/admin/answers/invalidate", &other).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    replicas[1].gateway.signal(Signal::SIGCONT);
    replicas[1].joined().await;
    assert!(run_of(&replicas[1].ask("x").await) > first, "an invalidated answer is served");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_takes_over_from_one_that_is_killed_in_a_run() {
    let (store, source) = (StoreServer::start(&[]).await, Source::of(3).await);
    let mut replicas = three(&Options::new(store_at(&store.url()), &source, "1m")).await;
    let run = Duration::from_secs(2);
    source.delay(run);
    let holder = replicas.remove(0);
    {
        let _ends_with_the_kill = tokio::time::timeout(Duration::from_millis(500), holder.ask("x")).await;
    }
    assert_eq!(source.runs(), 1, "its run has begun");
    drop(holder);
    let began = Instant::now();
    let replies = join_all(replicas.iter().map(|replica| replica.ask("x"))).await;
    assert!(replies.iter().all(|reply| sets(reply) == 3));
    let allowed = Duration::from_secs(3) + run + Duration::from_secs(1);
    assert!(began.elapsed() < allowed, "{:?}", began.elapsed());
    assert_eq!(source.runs(), 2);
}

/// The files of replicas are offered to an empty store. So is the file of a gateway that had none.
#[tokio::test(flavor = "multi_thread")]
async fn the_file_of_a_single_replica_is_offered_to_the_store() {
    let (store, source) = (StoreServer::start(&[]).await, Source::of(23).await);
    let with_store = Options::new(store_at(&store.url()), &source, "0s");
    let alone = Options { store: Value::Null, ..with_store.clone() };
    let single = Replica::begin(tempfile::tempdir().unwrap(), &alone);
    assert_eq!(sets(&single.ask("x").await), 23);
    assert_eq!(single.try_metric("appset_gateway_store_in_contact").await, None, "no alert without a store");
    let Replica { mut gateway, folder } = single;
    gateway.signal(nix::sys::signal::Signal::SIGTERM);
    gateway.wait(Duration::from_secs(10));
    source.set(5);
    let first = Replica::begin(folder, &with_store);
    first.joined().await;
    let second = Replica::start(&with_store).await;
    for replica in [&second, &first] {
        let reply = replica.ask("x").await;
        assert_eq!((reply.status, reply.code().as_str()), (503, "held"), "5 instead of 23: {}", reply.text());
    }
    source.set(23);
    within(Duration::from_secs(5), "both serve it", async || {
        let (one, other) = (first.ask("x").await, second.ask("x").await);
        one.status == 200 && other.status == 200 && sets(&one) == 23 && sets(&other) == 23
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_about_the_store() {
    let (mut store, source) = (StoreServer::start(&[]).await, Source::of(3).await);
    let replica = Replica::start(&Options::new(store_at(&store.url()), &source, "0s")).await;
    replica.ask("x").await;
    let metric = async |name: &str| replica.metric(&format!("appset_gateway_store_{name}")).await;
    assert_eq!(metric(r#"request_duration_seconds_count{request="commit"}"#).await, 1);
    assert_eq!((metric(r#"errors_total{request="commit"}"#).await, metric("recovering").await), (0, 0));
    store.run(&["FLUSHALL"]);
    within(Duration::from_secs(5), "a recovery", async || metric("recovering").await == 1).await;
    within(Duration::from_secs(30), "its end", async || metric("recovering").await == 0).await;
    assert_eq!(metric("has_lost_records").await, 0, "the replica had everything");
    store.kill();
    within(Duration::from_secs(5), "errors", async || metric(r#"errors_total{request="sync"}"#).await > 0).await;
}

/// All times are the store's: a replica whose clock is five minutes off serves and renews answers as the others do.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_off_does_no_harm() {
    let (store, source) = (StoreServer::start(&[]).await, Source::of(3).await);
    let options = Options::new(store_at(&store.url()), &source, "1m");
    let serve = async || {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("admin-token"), ADMIN_TOKEN).unwrap();
        let app = TestApp::start_in(folder, &options.text()).await;
        let following = Arc::clone(&app.app);
        tokio::spawn(async move { following.follow_store().await });
        app
    };
    let (exact, ahead, behind) = (serve().await, serve().await, serve().await);
    ahead.clock.advance(Duration::from_mins(5));
    behind.clock.put_back(Duration::from_mins(5));
    let apps = [&exact, &ahead, &behind];
    for app in apps {
        within(Duration::from_secs(20), "contact", async || app.metric("appset_gateway_store_in_contact").await == 1)
            .await;
    }
    for (asked, replica) in apps.into_iter().enumerate() {
        let question = json!({"q": format!("asked-at-{asked}")});
        let run = run_of(&replica.ask("h", question.clone()).await);
        for other in apps {
            let reply = other.ask("h", question.clone()).await;
            assert_eq!(run_of(&reply), run, "one run for all");
            let age: u64 = reply.header("age").unwrap().parse().unwrap();
            assert!(age < 5, "{age}");
        }
    }
    assert_eq!(source.runs(), 3);
}
