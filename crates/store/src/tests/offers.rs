//! What replicas offer to a store that has lost writes.

use super::*;

/// Offers one record.
async fn offer(store: &dyn Store, epoch: &str, is_alone: bool, key: RecordKey, record: &Record) {
    store.offer(epoch, &Offer { is_alone, records: vec![(key, record.clone())] }).await.unwrap();
}

/// A record with this content in `field`.
fn record(version: u64, field: Field, content: &'static str) -> Record {
    let mut record = Record::new(version);
    record.set(field, Some(Bytes::from_static(content.as_bytes())));
    record
}

/// An epoch begins with a recovery, in which nothing changes.
pub(super) async fn recovers(store: &dyn Store) {
    assert_eq!(store.begin("none", "a", A, 0).await, Err(StoreError::OtherEpoch));
    let first = store.sync(&request("a", None)).await.unwrap();
    assert!(first.is_recovering && !first.is_all && first.replicas == 1);
    assert_eq!(store.begin(&first.epoch, "a", A, 0).await, Err(StoreError::OtherEpoch));
    assert_eq!(store.commit(&first.epoch, &commit(A, 0, Some("x"))).await, Err(StoreError::OtherEpoch));
    // A replica that has not offered its copy keeps the recovery going.
    store.sync(&SyncRequest { copy: CopyState::Complete, ..request("b", None) }).await.unwrap();
    tokio::time::sleep(MIN_RECOVERY.checked_sub(Duration::from_millis(500)).unwrap()).await;
    store.sync(&SyncRequest { copy: CopyState::Complete, ..request("b", None) }).await.unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(store.sync(&request("a", Some(&first.epoch))).await.unwrap().is_recovering);
    let seven = record(7, Field::Baseline, "seven");
    offer(store, &first.epoch, false, A, &seven).await;
    offer(store, &first.epoch, false, A, &Record { version: 6, ..seven }).await;
    offer(store, &first.epoch, false, A, &record(8, Field::Held, "eight")).await;
    let done = SyncRequest { copy: CopyState::Complete, ..request("b", Some(&first.epoch)) };
    let reply = store.sync(&done).await.unwrap();
    assert!(!reply.is_recovering && reply.is_all && reply.highest > 8, "{reply:?}");
    let [(key, offered)] = &reply.changed[..] else { panic!("{reply:?}") };
    assert_eq!((*key, offered.get(Field::Baseline), offered.get(Field::Held)), (A, None, Some(&b"eight"[..].into())));
    // Afterwards absent records are filled, and earlier ones that nobody has changed are replaced.
    offer(store, &first.epoch, false, A, &record(7, Field::Held, "seven")).await;
    offer(store, &first.epoch, false, B, &record(9, Field::Held, "nine")).await;
    offer(store, &first.epoch, false, A, &record(9, Field::Held, "nine")).await;
    let reply = store.sync(&SyncRequest { version: offered.version, ..done.clone() }).await.unwrap();
    let held = |reply: &SyncReply| -> Vec<_> {
        reply.changed.iter().map(|(key, record)| (*key, record.get(Field::Held).cloned().unwrap())).collect()
    };
    assert_eq!(held(&reply), [(B, b"nine"[..].into()), (A, b"nine"[..].into())]);
    let known = reply.changed.last().unwrap().1.version;
    let version = stored(store, &first.epoch, &commit(A, known, Some("x"))).await;
    offer(store, &first.epoch, false, A, &record(1_000_000, Field::Held, "no")).await;
    let reply = store.sync(&SyncRequest { version, ..done }).await.unwrap();
    assert!(reply.changed.is_empty(), "a commit is later than what was offered: {reply:?}");
}

/// A replica that syncs for a minute and offers nothing gets no replies: a recovery waits for it no longer, unless nobody else has a copy.
#[tokio::test]
async fn a_real_server_waits_for_a_replica_without_replies_for_a_minute() {
    let server = Server::start().await;
    for (other, ends) in [(CopyState::Complete, true), (CopyState::Empty, false)] {
        let prefix = format!("{other:?}");
        let store = server.store_at(&prefix);
        let mute = SyncRequest { copy: CopyState::Complete, ..request("b", None) };
        let epoch = store.sync(&mute).await.unwrap().epoch;
        // As if a minute had passed.
        server.run(&["hincrby", &format!("{{{prefix}}}:meta"), "recovering", "-60001"]);
        let of_a = SyncRequest { copy: other, ..request("a", Some(&epoch)) };
        assert!(store.sync(&of_a).await.unwrap().is_recovering, "b has just come");
        let before = "local of = string.match(redis.call('HGET', KEYS[1], 'b'), '^%d 0 .* ')";
        let script = format!("{before} return redis.call('HSET', KEYS[1], 'b', of .. '1')");
        server.run(&["eval", &script, "1", &format!("{{{prefix}}}:replicas")]);
        store.sync(&mute).await.unwrap();
        let reply = store.sync(&of_a).await.unwrap();
        assert_eq!((!reply.is_recovering, reply.replicas), (ends, 2), "{other:?}: {reply:?}");
    }
}

/// A recovery does not wait until a clock that was put back is where it was.
#[tokio::test]
async fn a_real_server_whose_clock_is_put_back_ends_its_recovery() {
    let server = Server::start().await;
    let (store, meta) = (server.store(), "{appset-gateway}:meta");
    let epoch = store.sync(&request("a", None)).await.unwrap().epoch;
    // As if the clock had been an hour ahead then.
    server.run(&["hincrby", meta, "recovering", "3600000"]);
    assert!(store.sync(&request("a", Some(&epoch))).await.unwrap().is_recovering, "it begins anew");
    let after = MIN_RECOVERY.as_millis() + 1;
    server.run(&["hincrby", meta, "recovering", &format!("-{after}")]);
    assert!(!store.sync(&request("a", Some(&epoch))).await.unwrap().is_recovering);
}

/// Where it is not known which of two baselines is later, the previous state is unknown.
pub(super) async fn offers(store: &dyn Store) {
    let baseline = |version, content| record(version, Field::Baseline, content);
    let epoch = recovered(store).await;
    let read = async |key: RecordKey| {
        let reply = store.sync(&request("a", Some(&epoch))).await.unwrap();
        let found = reply.changed.iter().find(|(of, _)| *of == key);
        found.map(|(_, record)| String::from_utf8(record.get(Field::Baseline).unwrap().to_vec()).unwrap())
    };
    let cases = [
        ((false, baseline(0, "same")), (false, baseline(0, "same")), "same"),
        ((false, baseline(0, "one")), (false, baseline(0, "other")), ""),
        ((false, baseline(0, "one")), (false, baseline(3, "three")), "three"),
        ((false, baseline(3, "three")), (false, baseline(0, "other")), "three"),
        ((false, baseline(3, "three")), (true, baseline(0, "alone")), ""),
        ((true, baseline(0, "alone")), (false, baseline(3, "three")), ""),
        ((true, baseline(0, "same")), (false, baseline(3, "same")), "same"),
    ];
    for (case, (first, second, expected)) in cases.into_iter().enumerate() {
        let key = [u8::try_from(case).unwrap() + 10; 32];
        offer(store, &epoch, first.0, key, &first.1).await;
        offer(store, &epoch, second.0, key, &second.1).await;
        assert_eq!(read(key).await.as_deref(), Some(expected), "{first:?}, {second:?}");
    }
    // A gateway that answered alone begins an epoch where there are records: what is there may be older.
    let alone = SyncRequest { copy: CopyState::Alone, ..request("alone", None) };
    let reply = store.sync(&alone).await.unwrap();
    assert!(reply.is_recovering && reply.epoch != epoch, "{reply:?}");
    let again = store.sync(&SyncRequest { epoch: Some(reply.epoch.clone()), ..alone }).await.unwrap();
    assert_eq!(again.epoch, reply.epoch);
}
