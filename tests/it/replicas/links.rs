//! Each replica has a link of its own to the store, which is cut or falls silent by itself: what was seen with the real controller, whose
//! Service meets all replicas in turn.

use futures_util::future::join_all;

use super::*;
use crate::support::store::{Network, StoreProxy};

/// Three replicas on one store, each behind a network of its own.
struct Linked {
    store: StoreServer,
    links: Vec<StoreProxy>,
    source: Source,
    options: Vec<Options>,
    replicas: Vec<Replica>,
}

impl Linked {
    /// Replicas that know an answer with so many sets. Their calls wait for two seconds.
    async fn with(sets_known: usize) -> Self {
        let (store, source) = (StoreServer::start(&[]).await, Source::of(sets_known).await);
        let (mut links, mut options) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let link = StoreProxy::start(store.address()).await;
            let mut own = Options::new(store_at(&link.url()), &source, "200ms");
            own.route["deadline"] = json!("2s");
            links.push(link);
            options.push(own);
        }
        let mut replicas = Vec::new();
        for own in &options {
            replicas.push(Replica::start(own).await);
        }
        for replica in &replicas {
            within(Duration::from_secs(10), "it is known", async || {
                let reply = replica.ask("x").await;
                reply.status == 200 && sets(&reply) == sets_known
            })
            .await;
        }
        Self { store, links, source, options, replicas }
    }

    /// Asks all replicas at once, as a Service does. Returns how many sets each answer has; `None` for 503 `unavailable`.
    async fn ask(&self) -> Vec<Option<usize>> {
        let replies = join_all(self.replicas.iter().map(|replica| replica.ask("x"))).await;
        let got = |reply: &Reply| {
            if reply.status == 200 {
                return Some(sets(reply));
            }
            assert_eq!((reply.status, reply.code().as_str()), (503, "unavailable"), "{}", reply.text());
            None
        };
        replies.iter().map(got).collect()
    }

    /// Asks for so long. Nobody gets fewer sets than somebody got before. Returns the last answers.
    async fn watch(&self, time: Duration) -> Vec<Option<usize>> {
        let (began, mut most) = (Instant::now(), 0);
        loop {
            let seen = self.ask().await;
            assert!(seen.iter().flatten().all(|sets| *sets >= most), "{seen:?} after {most}");
            most = seen.iter().flatten().copied().max().unwrap_or(most);
            if began.elapsed() > time {
                return seen;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A is killed with 3 sets, the source grows to 5, B serves 5; the store goes; A starts from its file.
#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_file_answers_nothing() {
    let mut linked = Linked::with(3).await;
    // What was written is on disk by then.
    sleep(Duration::from_secs(2)).await;
    let Replica { gateway, folder } = linked.replicas.remove(0);
    drop(gateway);
    linked.source.set(5);
    within(Duration::from_secs(10), "B and C serve 5", async || linked.ask().await == [Some(5), Some(5)]).await;
    linked.store.kill();
    linked.replicas.insert(0, Replica::begin(folder, &linked.options[0]));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(linked.replicas[0].probe("/startupz").await, 503, "no calls are sent to it");
    for _ in 0..2 {
        assert_eq!(linked.ask().await, [None; 3], "nobody knows what the others say");
    }
    linked.store.restart().await;
    for replica in &linked.replicas {
        replica.joined().await;
    }
    within(Duration::from_secs(10), "agreement", async || {
        let seen = linked.ask().await;
        assert!(!seen.contains(&Some(3)), "{seen:?}");
        seen == [Some(5); 3]
    })
    .await;
}

/// One of three is cut off while the source grows.
async fn one_of_three(network: Network) {
    let linked = Linked::with(20).await;
    linked.links[2].set(network);
    linked.source.set(24);
    let seen = linked.watch(Duration::from_secs(8)).await;
    assert_eq!(seen, [Some(24), Some(24), None], "{network:?}");
    linked.links[2].set(Network::Works);
    linked.replicas[2].joined().await;
    let seen = linked.watch(Duration::from_secs(1)).await;
    assert_eq!(seen, [Some(24); 3], "{network:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_whose_connections_are_refused() {
    one_of_three(Network::Refuses).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_whose_link_is_silent() {
    one_of_three(Network::Swallows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_whose_replies_are_lost() {
    one_of_three(Network::Cuts).await;
}

/// A call that waits for the store is answered as soon as there is contact.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_fault_is_not_seen() {
    let mut linked = Linked::with(3).await;
    let mut patient = linked.options[0].clone();
    patient.route["deadline"] = json!("20s");
    linked.replicas[0] = Replica::start(&patient).await;
    linked.links[0].set(Network::Swallows);
    sleep(Duration::from_millis(1500)).await;
    let began = Instant::now();
    let back = async {
        sleep(Duration::from_secs(2)).await;
        linked.links[0].set(Network::Works);
    };
    let (reply, ()) = tokio::join!(linked.replicas[0].ask("x"), back);
    assert_eq!(sets(&reply), 3);
    assert!(began.elapsed() > Duration::from_secs(1), "it waited: {:?}", began.elapsed());
}

/// Some of the store's keys are removed, and a list has one entry: a replica that starts then does not read the record that is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_pieces_is_restored() {
    let linked = Linked::with(3).await;
    let damage = "local p = '{appset-gateway}:' local left = redis.call('ZRANGE', p .. 'index', 0, 0) redis.call('DEL', p .. 'index') \
                  redis.call('ZADD', p .. 'index', 1, left[1] or 'x') return 1";
    linked.store.run(&["EVAL", damage, "0"]);
    let new = Replica::begin(tempfile::tempdir().unwrap(), &linked.options[0]);
    within(Duration::from_mins(1), "all answer", async || {
        let reply = new.ask("x").await;
        reply.status == 200 && sets(&reply) == 3 && linked.ask().await == [Some(3); 3]
    })
    .await;
    let commands = || -> u64 {
        let info = linked.store.run(&["INFO", "stats"]);
        let line = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap();
        line.trim().parse().unwrap()
    };
    let before = commands();
    sleep(Duration::from_secs(3)).await;
    // Four replicas sync four times a second. Each request runs a script, whose commands count.
    let rate = (commands() - before) / 3;
    assert!(rate < 2_000, "{rate} commands in a second");
}
