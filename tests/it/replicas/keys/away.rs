//! The store is away while the keys of two replicas differ. Nobody answers, and afterwards each serves only what its own keys vouch for.

use futures_util::future::join_all;

use super::*;
use crate::support::store::Network;

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
        let (mut fleet, old, new) = (Fleet::new(ttl).await, Key::new(), Key::new());
        fleet.options.route["deadline"] = json!("2s");
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

    /// Nobody answers any question, known or new.
    async fn is_mute(&self, when: &str) {
        let new = format!("new-{when}");
        let questions = ["x", "y", "z", &new];
        let asking = questions.iter().flat_map(|question| {
            [&self.outdated, &self.current].map(|replica| async move { (question, replica.ask(question).await) })
        });
        for (question, reply) in join_all(asking).await {
            assert!(matches!(reply.status, 502 | 503), "{when}, {question}: {}", reply.text());
        }
    }
}

async fn while_the_store_is(away: Network, ttl: &str) {
    let pair = Pair::new(ttl).await;
    pair.fleet.network.set(away);
    // Longer than it takes to notice.
    sleep(Duration::from_secs(2)).await;
    for replica in [&pair.outdated, &pair.current] {
        assert_eq!(replica.metric("appset_gateway_store_in_contact").await, 0);
    }
    pair.is_mute("away").await;
    // The registry fails too.
    pair.fleet.fake.fail(Endpoint::List, |request| request.answer(200, "Content-Type: application/json", "{"));
    pair.is_mute("both fail").await;
    pair.fleet.list();
    // The old key comes back to the second replica, and is removed again.
    for key in [&pair.old, &pair.new] {
        replace(pair.current.folder.path(), key);
        noticed().await;
        pair.is_mute("another key").await;
    }
    // Back, with the same keys.
    pair.fleet.network.set(Network::Works);
    for replica in [&pair.outdated, &pair.current] {
        replica.joined().await;
    }
    for reply in [pair.current.ask("x").await, pair.current.ask("y").await] {
        assert!(matches!(reply.status, 502 | 503), "nothing of the old key: {}", reply.text());
    }
    // The old key is removed from the other replica as well. Nobody serves what it alone vouched for.
    replace(pair.outdated.folder.path(), &pair.new);
    noticed().await;
    for replica in [&pair.outdated, &pair.current] {
        for question in ["x", "y"] {
            let reply = replica.ask(question).await;
            assert!(matches!(reply.status, 502 | 503), "{question}: {}", reply.text());
        }
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
