//! The store is away while the keys of two replicas differ. Each serves only what its own keys vouch for.

use super::*;
use crate::support::store::Network;

/// The tags in a success; `None` for an error.
fn tags(reply: &Reply) -> Option<Vec<String>> {
    if reply.status != 200 {
        assert!(matches!(reply.status, 502 | 503), "{}: {}", reply.status, reply.text());
        return None;
    }
    let reply = reply.json();
    let sets = reply["output"]["parameters"].as_array().unwrap();
    Some(sets.iter().map(|set| set["tag"].as_str().unwrap().to_owned()).collect())
}

/// Two replicas. The old key vouches for both tags, the new one for one of them, so that a list tells whose it is.
struct Pair {
    fleet: Fleet,
    old: Key,
    new: Key,
    /// Never learns that the old key was removed, until the end.
    outdated: Replica,
    /// Has the new key.
    current: Replica,
}

impl Pair {
    /// Both have answered `x`, and one has answered `y`, under the old key. Then `current` gets the new one, and answers `z`.
    async fn new(ttl: &str) -> Self {
        let (fleet, old, new) = (Fleet::new(ttl).await, Key::new(), Key::new());
        fleet.sign(&old, &['a', 'b']);
        fleet.sign(&new, &['b']);
        let (outdated, current) = (fleet.join(&old).await, fleet.join(&old).await);
        for (replica, question) in [(&outdated, "x"), (&current, "x"), (&current, "y")] {
            assert_eq!(sets(&replica.ask(question).await), 2, "{question}");
        }
        replace(current.folder.path(), &new);
        noticed().await;
        assert_eq!(sets(&current.ask("z").await), 1);
        Self { fleet, old, new, outdated, current }
    }

    /// Asks both replicas about all questions, for `time`. Questions that begin with `new` were never asked before.
    async fn watch(&self, when: &str, time: Duration) {
        let began = Instant::now();
        for round in 0.. {
            let new = format!("new-{when}-{round}");
            for question in ["x", "y", "z", &new] {
                let (one, other) = (self.outdated.ask(question).await, self.current.ask(question).await);
                let (one, other) = (tags(&one), tags(&other));
                assert!(
                    one.as_ref().is_none_or(|tags| *tags == ["1.1.0", "1.0.0"]),
                    "{when}, {question}: the old key vouches for both: {one:?}"
                );
                assert!(
                    other.as_ref().is_none_or(|tags| *tags == ["1.1.0"]),
                    "{when}, {question}: the new key vouches for one: {other:?}"
                );
                // What a replica's own key vouches for is served, whatever the store does.
                assert!(one.is_some() || !matches!(question, "x" | "y"), "{when}, {question}: its own answer is lost");
                assert!(other.is_some() || question != "z", "{when}, {question}: its own answer is lost");
                // A list that lost a tag because of a key is an error.
                assert!(other.is_none() || !matches!(question, "x" | "y"), "{when}, {question}: {other:?}");
            }
            if began.elapsed() > time {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn while_the_store_is(away: Network, ttl: &str) {
    let pair = Pair::new(ttl).await;
    pair.fleet.network.set(away);
    // Longer than it takes to notice.
    pair.watch("away", Duration::from_secs(4)).await;
    for replica in [&pair.outdated, &pair.current] {
        assert_eq!(replica.metric("appset_gateway_store_in_contact").await, 0);
    }
    // The registry fails too: no reason to serve another key's answer either.
    pair.fleet.fake.fail(Endpoint::List, |request| request.answer(200, "Content-Type: application/json", "{"));
    pair.watch("both fail", Duration::ZERO).await;
    pair.fleet.list();
    // The old key comes back to the second replica, and is removed again.
    replace(pair.current.folder.path(), &pair.old);
    noticed().await;
    assert_eq!(sets(&pair.current.ask("y").await), 2, "its answer of before is still there");
    assert_eq!(tags(&pair.current.ask("z").await), None);
    replace(pair.current.folder.path(), &pair.new);
    noticed().await;
    pair.watch("away again", Duration::ZERO).await;
    // Back, with the same keys.
    pair.fleet.network.set(Network::Works);
    for replica in [&pair.outdated, &pair.current] {
        replica.joined().await;
    }
    assert_eq!(tags(&pair.current.ask("x").await), None, "nothing of the old key");
    // The old key is removed from the other replica as well. Nobody serves what it alone vouched for.
    replace(pair.outdated.folder.path(), &pair.new);
    noticed().await;
    for replica in [&pair.outdated, &pair.current] {
        assert_eq!(tags(&replica.ask("x").await), None);
        assert_eq!(tags(&replica.ask("y").await), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_connections_and_different_keys() {
    while_the_store_is(Network::Refuses, "1m").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_and_different_keys() {
    while_the_store_is(Network::Cuts, "300ms").await;
}
