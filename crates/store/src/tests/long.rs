//! Long fields, which the real server has in chunks.

use super::*;

/// A content of about 200 KiB. The line with this number is another one.
fn long(changed: usize) -> Bytes {
    let line = |n: usize| format!("{:x} {n}\n", (n + usize::from(n == changed)).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    (0..10_000).map(line).collect::<String>().into()
}

fn commit_of(key: RecordKey, version: u64, fields: &[(Field, Option<Bytes>)]) -> Commit {
    let write = |(field, content): &(Field, Option<Bytes>)| Write { key, field: *field, content: content.clone() };
    Commit { writes: fields.iter().map(write).collect(), ..commit(key, version, None) }
}

/// What the store has under `key`, for a replica that has nothing yet.
async fn read(store: &dyn Store, epoch: &str, key: RecordKey) -> Record {
    let reply = store.sync(&request("new", Some(epoch))).await.unwrap();
    reply.changed.into_iter().find(|(of, _)| *of == key).unwrap().1
}

async fn has_long_fields(store: &dyn Store, other: &dyn Store) {
    let epoch = recovered(store).await;
    let both = [(Field::Answer, Some(long(0))), (Field::Baseline, Some(long(1)))];
    let mut version = stored(store, &epoch, &commit_of(A, 0, &both)).await;
    for changed in [5000, 5001, 2] {
        // By turns: what one replica wrote last is not what the store has.
        for (of, at) in [(store, changed), (store, changed + 1000), (other, changed + 2000)] {
            version = stored(of, &epoch, &commit_of(A, version, &[(Field::Answer, Some(long(at)))])).await;
            for reader in [store, other] {
                let record = read(reader, &epoch, A).await;
                assert_eq!((record.get(Field::Answer), record.get(Field::Baseline)), (Some(&long(at)), Some(&long(1))));
            }
        }
    }
    let page = other.page(&epoch, 0).await.unwrap();
    assert_eq!(page.records[0].1.get(Field::Baseline), Some(&long(1)));
    assert_eq!(other.replace(&epoch, A, version, &[(Field::Baseline, long(9))]).await, Ok(true));
    assert_eq!(read(store, &epoch, A).await.get(Field::Baseline), Some(&long(9)));
    let short = [(Field::Answer, Some(Bytes::from_static(b"short"))), (Field::Baseline, None)];
    version = stored(store, &epoch, &commit_of(A, version, &short)).await;
    let record = read(other, &epoch, A).await;
    assert_eq!(
        (record.get(Field::Answer).map(|content| &content[..]), record.get(Field::Baseline)),
        (Some(&b"short"[..]), None)
    );
    stored(store, &epoch, &commit_of(A, version, &[(Field::Answer, Some(long(3)))])).await;
    assert_eq!(read(other, &epoch, A).await.get(Field::Answer), Some(&long(3)));
}

#[tokio::test]
async fn the_memory_store_has_long_fields() {
    let store = MemoryStore::new(Arc::new(SystemClock));
    has_long_fields(&store, &store.clone()).await;
}

#[tokio::test]
async fn a_real_server_has_long_fields_in_chunks() {
    let server = Server::start().await;
    has_long_fields(&*server.store(), &*server.store()).await;
}

/// Somebody removes chunks: what the field held is unknown then, until the next commit.
#[tokio::test]
async fn a_long_field_without_a_chunk_cannot_be_read() {
    let server = Server::start().await;
    let (store, other) = (server.store(), server.store());
    let epoch = recovered(&*store).await;
    let mut version = stored(&*store, &epoch, &commit_of(A, 0, &[(Field::Answer, Some(long(0)))])).await;
    stored(&*store, &epoch, &commit_of(B, 0, &[(Field::Answer, Some(long(4)))])).await;
    let chunks = "local k = '{appset-gateway}:c:' .. string.rep(string.char(1), 32) .. '0'";
    for damage in [
        "redis.call('DEL', k)",
        "redis.call('DEL', k) redis.call('SET', k, 'x')",
        "redis.call('HDEL', k, redis.call('HKEYS', k)[3])",
        "redis.call('HSET', k, redis.call('HKEYS', k)[3], 'x')",
    ] {
        server.run(&["EVAL", &format!("{chunks} {damage} return 1"), "0"]);
        // Others read what is missing.
        let new = server.store();
        assert_eq!(read(&*new, &epoch, A).await.get(Field::Answer), Some(&Bytes::new()), "{damage}");
        assert_eq!(read(&*new, &epoch, B).await.get(Field::Answer), Some(&long(4)), "{damage}: another record");
        // Whoever had read it needs no chunks, and a commit of whoever has not sends all.
        assert_eq!(read(&*store, &epoch, A).await.get(Field::Answer), Some(&long(0)), "{damage}");
        let writer = if damage.contains("HSET") { &server.store() } else { &store };
        version = stored(&**writer, &epoch, &commit_of(A, version, &[(Field::Answer, Some(long(0)))])).await;
        assert_eq!(read(&*other, &epoch, A).await.get(Field::Answer), Some(&long(0)), "{damage}");
        assert_eq!(read(&*server.store(), &epoch, A).await.get(Field::Answer), Some(&long(0)), "{damage}");
    }
}

/// The chunks of a record leave with it, and come back with an offer.
#[tokio::test]
async fn chunks_come_and_go_with_their_record() {
    let server = Server::start().await;
    let store = server.store();
    let epoch = recovered(&*store).await;
    let version = stored(&*store, &epoch, &commit_of(A, 0, &[(Field::Answer, Some(long(0)))])).await;
    let count = |kind: &str| {
        let script = format!("return #redis.call('KEYS', '*:{kind}:*')");
        let output = Command::new("redis-cli").args(["-p", &server.port.to_string(), "EVAL", &script, "0"]).output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
    };
    assert_eq!(count("c"), "1");
    // What nobody wrote for a month leaves.
    let key = "string.rep(string.char(1), 32)";
    server.run(&["EVAL", &format!("return redis.call('ZADD', '{{appset-gateway}}:written', 1, {key})"), "0"]);
    store.sync(&request("a", Some(&epoch))).await.unwrap();
    assert_eq!((count("r"), count("c")), ("0".to_owned(), "0".to_owned()));
    let mut record = Record::new(version);
    record.set(Field::Answer, Some(long(7)));
    store.offer(&epoch, &Offer { is_alone: false, records: vec![(B, record)] }).await.unwrap();
    assert_eq!(read(&*server.store(), &epoch, B).await.get(Field::Answer), Some(&long(7)));
}
