//! The name of the key that made the records, and records as they are in the store.

use super::*;

async fn names_its_key(store: &dyn Store) {
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    let epoch = recovered(store).await;
    assert_eq!(store.name_key(&[]).await, Ok(None), "none is named");
    assert_eq!(store.name_key(&ids(&["old"])).await, Ok(None));
    for wrong in [&[][..], &["new"], &["new", "newer"]] {
        assert_eq!(store.name_key(&ids(wrong)).await, Ok(Some("old".to_owned())), "{wrong:?}");
    }
    assert_eq!(store.name_key(&ids(&["new", "old"])).await, Ok(None), "the new one is named");
    assert_eq!(store.name_key(&ids(&["old"])).await, Ok(Some("new".to_owned())));

    let keys: Vec<RecordKey> = (0..70).map(|number| [number; 32]).collect();
    for key in &keys {
        stored(store, &epoch, &commit(*key, 0, Some("x"))).await;
    }
    let (mut after, mut found) = (0, Vec::new());
    loop {
        let page = store.page(&epoch, after).await.unwrap();
        after = page.end;
        found.extend(page.records);
        if page.is_last {
            break;
        }
    }
    assert_eq!(found.iter().map(|(key, _)| *key).collect::<Vec<_>>(), keys);
    let (key, version) = (keys[3], found[3].1.version);
    let fields = [(Field::Answer, Bytes::from_static(b"y")), (Field::Held, Bytes::from_static(b"z"))];
    assert_eq!(store.replace(&epoch, key, version - 1, &fields).await, Ok(false));
    assert_eq!(store.replace(&epoch, key, version, &fields).await, Ok(true));
    assert_eq!(store.replace("none", key, version, &fields).await, Err(StoreError::OtherEpoch));
    let page = store.page(&epoch, version - 1).await.unwrap();
    let (_, record) = &page.records[0];
    assert_eq!((record.version, record.get(Field::Answer)), (version, Some(&fields[0].1)));
    assert_eq!((record.get(Field::Baseline), record.get(Field::Held)), (None, Some(&fields[1].1)));
}

#[tokio::test]
async fn the_memory_store_names_its_key_and_has_pages() {
    names_its_key(&MemoryStore::new(Arc::new(SystemClock))).await;
}

#[tokio::test]
async fn a_real_server_names_its_key_and_has_pages() {
    let server = Server::start().await;
    names_its_key(&*server.store()).await;
    // Something else in the place of the name counts as none.
    server.run(&["del", "{appset-gateway}:key"]);
    server.run(&["rpush", "{appset-gateway}:key", "x"]);
    assert_eq!(server.store().name_key(&["new".to_owned()]).await, Ok(None));
    assert_eq!(server.store().name_key(&["old".to_owned()]).await, Ok(Some("new".to_owned())));
}
