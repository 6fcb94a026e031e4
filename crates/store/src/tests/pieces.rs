//! A store in pieces: keys and fields that somebody removed, or wrote in another form. Whatever is missing, replicas never ask in circles.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream};

use super::*;

/// Somebody removes a record, or writes another value in its place. Its content is unknown then, and never nothing.
#[tokio::test]
async fn a_record_that_others_damaged_cannot_be_read() {
    let server = Server::start().await;
    let store = server.store();
    let epoch = recovered(&*store).await;
    let name = |key: RecordKey| [b"{appset-gateway}:r:", &key[..]].concat();
    let damage = |command: &[&[u8]]| {
        use std::os::unix::ffi::OsStrExt as _;
        let command = command.iter().map(|part| std::ffi::OsStr::from_bytes(part));
        let output = Command::new("redis-cli").args(["-p", &server.port.to_string()]).args(command).output().unwrap();
        assert!(output.status.success() && !output.stdout.starts_with(b"ERR"), "{output:?}");
    };
    for (at, what) in ["gone", "a text", "no version"].into_iter().enumerate() {
        let key = [u8::try_from(at).unwrap() + 1; 32];
        let version = stored(&*store, &epoch, &commit(key, 0, Some("x"))).await;
        match what {
            "gone" => damage(&[b"DEL", &name(key)]),
            "a text" => damage(&[b"SET", &name(key), b"text"]),
            _ => damage(&[b"HSET", &name(key), b"v", b"nonsense"]),
        }
        // For a new replica, and for one that knew it.
        for known in [0, version] {
            let mut sync = request("new", Some(&epoch));
            sync.version = known.saturating_sub(1);
            let record = loop {
                let reply = store.sync(&sync).await.unwrap();
                if let Some((_, record)) = reply.changed.iter().find(|(of, _)| *of == key) {
                    break record.clone();
                }
                assert!(!reply.is_all, "{what}: it is left out");
            };
            assert!(record.version > version, "{what}");
            assert_eq!(record.get(Field::Answer), Some(&Bytes::new()), "{what}: unreadable");
        }
        assert_eq!(store.begin(&epoch, "a", key, version).await, Ok(Lease::Behind), "{what}");
        assert_eq!(store.commit(&epoch, &commit(key, version, Some("y"))).await, Ok(Committed::Conflict), "{what}");
    }
    // Without its list, the server cannot say what there was.
    damage(&[b"DEL", b"{appset-gateway}:index"]);
    let reply = store.sync(&request("a", Some(&epoch))).await.unwrap();
    assert!(reply.is_recovering && reply.epoch != epoch, "{reply:?}");
}

/// How many stores are damaged at once.
const AT_ONCE: usize = 120;

/// Follows a store, as a replica does: it has versions, and offers its records.
struct Follower {
    store: Arc<dyn Store>,
    request: SyncRequest,
    known: BTreeMap<RecordKey, Record>,
    epochs: usize,
}

impl Follower {
    fn new(server: &Server, prefix: &str, name: &str) -> Self {
        let request = SyncRequest { has_offered: false, ..request(name, None) };
        Self { store: server.store_at(prefix), request, known: BTreeMap::new(), epochs: 0 }
    }

    /// Reads what has changed. Returns whether it is in contact.
    async fn follow(&mut self) -> bool {
        for _ in 0..20 {
            // What somebody damaged a moment ago may fail once.
            let Ok(reply) = self.store.sync(&self.request).await else { return false };
            if self.request.epoch.as_ref() != Some(&reply.epoch) {
                self.epochs += 1;
                let request = self.request.clone();
                self.request = SyncRequest {
                    epoch: Some(reply.epoch.clone()),
                    has_offered: false,
                    version: 0,
                    invalidation: 0,
                    ..request
                };
            }
            if !self.request.has_offered {
                let records = self.known.clone().into_iter().collect();
                if self.store.offer(&reply.epoch, &Offer { is_alone: false, records }).await.is_ok() {
                    self.request.has_offered = true;
                }
                continue;
            }
            if reply.is_recovering {
                return false;
            }
            if let Some((_, last)) = reply.changed.last() {
                self.request.version = last.version;
            }
            self.known.extend(reply.changed);
            (self.request.invalidation, self.request.copy) = (reply.invalidation, CopyState::Complete);
            self.request.highest = self.request.highest.max(reply.highest);
            if reply.is_all {
                self.request.is_serving = true;
                return true;
            }
        }
        panic!("a sync does not end: {:?}", self.request);
    }

    /// Follows until it has committed an answer to `key`. Returns how often it was refused because of changes that it could not read.
    async fn commits(&mut self, key: RecordKey) -> usize {
        let (began, mut behind) = (std::time::Instant::now(), 0);
        while began.elapsed() < Duration::from_mins(1) {
            tokio::time::sleep(Duration::from_millis(200)).await;
            if !self.follow().await {
                continue;
            }
            let version = self.known.get(&key).map_or(0, |record| record.version);
            let epoch = self.request.epoch.clone().unwrap();
            match self.store.begin(&epoch, &self.request.replica, key, version).await {
                Ok(Lease::Ours(_)) => {}
                Ok(Lease::Behind) => {
                    behind += 1;
                    continue;
                }
                Ok(Lease::Theirs(_)) | Err(_) => continue,
            }
            let lease = Some((self.request.replica.clone(), key));
            let commit = Commit { lease, invalidation: self.request.invalidation, ..commit(key, version, Some("new")) };
            if let Ok(Committed::Stored(_)) = self.store.commit(&epoch, &commit).await {
                return behind;
            }
        }
        panic!("it gets nowhere: refused {behind} times, in {} epochs", self.epochs);
    }
}

/// Damage, as the body of a script in which `p` is the prefix of all keys, `a` and `b` are the keys of records.
fn damages() -> Vec<String> {
    let keys = [
        "meta",
        "index",
        "written",
        "replicas",
        "revisions",
        "invalidations",
        "wake",
        "r:' .. a .. '",
        "lease:' .. a .. '",
    ];
    let fields = [
        "epoch",
        "run",
        "highest",
        "recovering",
        "lost_at",
        "since",
        "invalidation",
        "sizes",
        "settled",
        "members",
        "hushed",
    ];
    let remove = |key: &str| format!("redis.call('DEL', p .. '{key}')");
    let spoil = |key: &str| {
        let write = if key.starts_with("lease") || key == "wake" { "'RPUSH', k, 'x'" } else { "'SET', k, 'x'" };
        format!("local k = p .. '{key}' redis.call('DEL', k) redis.call({write})")
    };
    let mut all: Vec<String> = keys.iter().map(|key| remove(key)).chain(keys.iter().map(|key| spoil(key))).collect();
    all.extend(fields.iter().map(|field| format!("redis.call('HDEL', p .. 'meta', '{field}')")));
    all.extend(fields.iter().map(|field| format!("redis.call('HSET', p .. 'meta', '{field}', '7x')")));
    let one_left = "redis.call('DEL', p .. 'index') redis.call('ZADD', p .. 'index', 1, b)";
    all.extend([
        one_left.to_owned(),
        "redis.call('ZREM', p .. 'index', a)".to_owned(),
        "redis.call('ZREM', p .. 'written', a)".to_owned(),
        "redis.call('ZREM', p .. 'index', a) redis.call('ZREM', p .. 'written', a)".to_owned(),
        "redis.call('ZADD', p .. 'index', 999999, a)".to_owned(),
        "redis.call('ZADD', p .. 'index', 1, a)".to_owned(),
        "redis.call('ZADD', p .. 'index', 2, 'nobody')".to_owned(),
        "redis.call('HDEL', p .. 'r:' .. a, 'v')".to_owned(),
        "redis.call('HSET', p .. 'r:' .. a, 'v', 'x')".to_owned(),
        "redis.call('HSET', p .. 'r:' .. a, 'v', '1')".to_owned(),
        "redis.call('HSET', p .. 'replicas', 'x', 'y')".to_owned(),
        "redis.call('SET', p .. 'lease:' .. a, 'x')".to_owned(),
    ]);
    // Two at once, and each after a restart of the server.
    for (at, one) in keys.iter().enumerate() {
        all.extend(keys[at + 1..].iter().map(|other| format!("{} {}", remove(one), remove(other))));
        all.push(format!("redis.call('HSET', p .. 'meta', 'run', '0') {}", remove(one)));
        all.push(format!("{one_left} {}", remove(one)));
    }
    all
}

async fn damaged(server: &Server, case: usize, damage: &str) {
    let prefix = format!("case-{case}");
    let mut one = Follower::new(server, &prefix, "one");
    let mut other = Follower::new(server, &prefix, "other");
    while !(one.follow().await & other.follow().await) {
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let epoch = one.request.epoch.clone().unwrap();
    for key in [A, B] {
        let baseline = Write { key, field: Field::Baseline, content: Some(Bytes::from_static(b"baseline")) };
        let mut of = commit(key, 0, Some("old"));
        of.writes.push(baseline);
        // On a busy machine a reply may come late.
        while one.store.commit(&epoch, &of).await.is_err() {}
    }
    while one.store.invalidate(&epoch, Bytes::from_static(b"{}")).await.is_err() {}
    while !(one.follow().await & other.follow().await) {}
    let script = format!(
        "local p, a, b = '{{{prefix}}}:', string.rep(string.char(1), 32), string.rep(string.char(2), 32) {damage} return 1"
    );
    server.run(&["EVAL", &script, "0"]);
    // One that has just started, too.
    let mut new = Follower::new(server, &prefix, "new");
    let behind = tokio::join!(new.commits(A), one.commits(A), other.commits(B));
    let behind = [behind.0, behind.1, behind.2, new.commits(B).await];
    assert!(behind.iter().all(|times| *times <= 3), "{damage}: called again in vain {behind:?} times");
    for follower in [new, one, other] {
        assert!(follower.epochs <= 3, "{damage}: {} epochs", follower.epochs);
    }
    // Nothing that was there counts as nothing.
    let mut last = Follower::new(server, &prefix, "last");
    while !last.follow().await {
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    for key in [A, B] {
        let record = last.known.get(&key).unwrap_or_else(|| panic!("{damage}: a record is gone"));
        assert_eq!(record.get(Field::Answer), Some(&Bytes::from_static(b"new")), "{damage}");
        let baseline = record.get(Field::Baseline).map(|content| &content[..]);
        assert!(matches!(baseline, Some(b"baseline" | b"")), "{damage}: {baseline:?}");
    }
}

/// Each key and field that can be missing or damaged, alone and in pairs.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_asks_a_store_in_pieces_in_circles() {
    let server = Server::start().await;
    let damages = damages();
    let all = damages.iter().enumerate().map(|(case, damage)| damaged(&server, case, damage));
    stream::iter(all).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

/// Replicas whose requests are refused again and again report it, and the store begins another epoch.
#[tokio::test]
async fn a_suspected_store_begins_another_epoch() {
    let server = Server::start().await;
    for store in [server.store(), Arc::new(MemoryStore::new(Arc::new(SystemClock)))] {
        let epoch = recovered(&*store).await;
        let suspects = SyncRequest { suspects: true, ..request("a", Some("earlier")) };
        assert_eq!(store.sync(&suspects).await.unwrap().epoch, epoch, "it suspects another one");
        let suspects = SyncRequest { suspects: true, ..request("a", Some(&epoch)) };
        let reply = store.sync(&suspects).await.unwrap();
        assert!(reply.is_recovering && reply.epoch != epoch, "{reply:?}");
    }
}
