//! Somebody who can write to the store, and a change of the key that prevents it.

use std::path::Path;

use super::*;

const OLD: &str = "an-old-key-of-more-than-thirty-two-characters";
const NEW: &str = "a-new-key-of-more-than-thirty-two-characters";

fn keyed(store: &StoreServer, key: &Path) -> Value {
    json!({"url": store.url(), "timeout": "800ms", "key": {"file": key}})
}

/// Puts the answer of the record that was written first into the one that was written last.
const MOVE: &str = "local base = '{appset-gateway}:' \
    local names = redis.call('ZRANGE', base .. 'index', 0, -1) \
    local version = redis.call('HINCRBY', base .. 'meta', 'highest', 1) \
    local answer = redis.call('HGET', base .. 'r:' .. names[1], '0') \
    redis.call('HSET', base .. 'r:' .. names[#names], '0', answer, 'v', version) \
    redis.call('ZADD', base .. 'index', version, names[#names]) \
    return #names";

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_somebody_moves_is_never_served() {
    let (store, source) = (StoreServer::start(&[]).await, Source::of(1).await);
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("store.key");
    std::fs::write(&key, OLD).unwrap();
    let replica = Replica::start(&Options::new(keyed(&store, &key), &source, "1h")).await;
    assert_eq!(sets(&replica.ask("small").await), 1);
    source.set(5);
    assert_eq!(sets(&replica.ask("large").await), 5);
    assert_eq!(store.run(&["EVAL", MOVE, "0"]), "2");
    // Nobody knows what was there, so the next answer is held.
    let ask = async || {
        let reply = replica.ask("large").await;
        assert!(reply.status == 503 || sets(&reply) == 5, "{}", reply.text());
        reply
    };
    within(Duration::from_secs(5), "the replica notices it", async || {
        ask().await;
        replica.metric("appset_gateway_store_unreadable_total").await == 1
    })
    .await;
    assert_eq!(ask().await.code(), "held");
    // A replica that never read the right one has nothing to answer.
    source.fail(true);
    let other = Replica::start(&Options::new(keyed(&store, &key), &source, "1h")).await;
    assert_eq!((sets(&other.ask("small").await), other.ask("large").await.status), (1, 502));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_changes_without_a_pause_and_a_wrong_one_answers_nothing() {
    let (store, source) = (StoreServer::start(&[]).await, Source::of(3).await);
    let folder = tempfile::tempdir().unwrap();
    let (key, wrong) = (folder.path().join("store.key"), folder.path().join("wrong.key"));
    std::fs::write(&key, OLD).unwrap();
    std::fs::write(&wrong, NEW).unwrap();
    let options = Options::new(keyed(&store, &key), &source, "1h");
    let replicas = three(&options).await;
    assert_eq!(sets(&replicas[0].ask("x").await), 3);
    source.fail(true);

    let mut options_of_wrong = Options::new(keyed(&store, &wrong), &source, "1h");
    options_of_wrong.route["deadline"] = json!("2s");
    let misconfigured = Replica::begin(tempfile::tempdir().unwrap(), &options_of_wrong);
    let reply = misconfigured.ask("x").await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "unavailable"));
    assert!(reply.message().contains("is not in `cache.shared.key`"), "{}", reply.message());
    let output = command().args(["check", "--connect", "-c"]).arg(misconfigured.config()).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("is not in `cache.shared.key`"), "{said}");

    for keys in [format!("{OLD}\n{NEW}\n"), format!("{NEW}\n{OLD}\n"), NEW.to_owned()] {
        std::fs::write(&key, &keys).unwrap();
        // Replicas read the file again every five seconds.
        let until = Instant::now() + Duration::from_millis(5500);
        while Instant::now() < until {
            for replica in &replicas {
                assert_eq!(sets(&replica.ask("x").await), 3, "{keys:?}");
            }
            sleep(Duration::from_millis(50)).await;
        }
        for replica in &replicas {
            within(Duration::from_secs(3), "its records are under the first key", async || {
                replica.metric("appset_gateway_store_old_key_records").await == 0
            })
            .await;
        }
    }
    // A new replica has the new key only, and nothing but the store to learn from.
    let new = Replica::start(&options).await;
    assert_eq!(sets(&new.ask("x").await), 3);
    for replica in replicas.iter().chain([&new]) {
        assert_eq!(replica.metric("appset_gateway_store_unreadable_total").await, 0);
    }
}
