//! Long records, which are stored in chunks.

use redb::ReadableTableMetadata;

use super::*;
use crate::cache::disk::long::cut;

const MIB: u64 = 1 << 20;
const WAIT: Duration = Duration::from_secs(10);

/// An answer with so many parameter sets, the one at `changed` with another value.
fn long_entry(count: usize, changed: Option<usize>) -> Entry {
    let set = |n: usize| {
        let digest = format!("{:x}", Key::of_bytes([u8::try_from(n % 251).unwrap(); 32]).number() ^ n as u64);
        let digest = if changed == Some(n) { "another".to_owned() } else { digest.repeat(8) };
        ParameterSet(json!({ "number": n, "digest": digest }).as_object().unwrap().clone())
    };
    Entry { encoded: Encoded::encode(&(0..count).map(set).collect::<Vec<_>>()).unwrap(), ..entry("long") }
}

/// How many chunks the file has.
fn chunks(disk: &Disk) -> u64 {
    disk.flush(WAIT);
    let count = |database: &Database| {
        let transaction = database.begin_read()?;
        Ok(records(&transaction, RecordKind::Chunk)?.map_or(0, |table| table.len().unwrap()))
    };
    disk.file.with(count).unwrap()
}

/// Removes a chunk from the file, as a bad disk might.
fn remove_chunk(disk: &Disk) {
    let remove = |database: &Database| {
        let transaction = database.begin_write()?;
        transaction.open_table(RecordKind::Chunk.table())?.pop_first()?;
        transaction.commit()?;
        Ok(())
    };
    disk.file.with(remove).unwrap();
}

/// How many bytes are written for `entry`.
fn written(known: &KnownChunks, id: (RecordKind, Key), entry: &Entry) -> usize {
    let draft = encode(entry).unwrap();
    let cut = cut(&draft);
    known.drafts(id, Some(draft), cut).length()
}

#[test]
fn a_change_of_one_set_writes_few_bytes() {
    let known = KnownChunks::default();
    let id = (RecordKind::Answer, key(1));
    let whole = written(&known, id, &long_entry(5000, None));
    let change = written(&known, id, &long_entry(5000, Some(2500)));
    assert!(whole > 500_000 && change * 8 < whole, "{change} of {whole}");
    known.forget(&id);
    assert!(written(&known, id, &long_entry(5000, Some(2500))) > 500_000, "what is not there is written");
}

#[test]
fn a_long_record_survives_changes_and_a_restart_and_leaves_no_chunk_behind() {
    let (_folder, path) = new_store_path();
    let mut disk = open(&path, 64 * MIB);
    disk.put(key(2), &entry("short"));
    assert_eq!(chunks(&disk), 0);
    for changed in [None, Some(7), Some(1999), None] {
        let long = long_entry(2000, changed);
        disk.put(key(1), &long);
        disk.flush(WAIT);
        assert_eq!(body(&disk, &key(1)).unwrap(), &long.encoded.body()[..]);
        let index = disk.file.with(|database| {
            let table = records(&database.begin_read()?, RecordKind::Answer)?.unwrap();
            Ok(table.get(key(1).as_bytes())?.and_then(|record| record::index(record.value())))
        });
        assert_eq!(chunks(&disk), index.unwrap().unwrap().1.ids.len() as u64);
        close(disk, &path);
        disk = open(&path, 64 * MIB);
        assert_eq!(body(&disk, &key(1)).unwrap(), &long.encoded.body()[..]);
    }
    let listed = disk.list().into_iter().map(|(key, listed)| (key, listed.question.route)).collect::<Vec<_>>();
    assert_eq!(listed.len(), 2);
    // A baseline and a held answer may be long too, and have chunks of their own.
    let numbers: Vec<u64> = (0..20_000).map(|n| n * n).collect();
    disk.put_baseline(key(1), &numbers);
    disk.hold(key(1), Some(&numbers));
    disk.flush(WAIT);
    assert_eq!(disk.baseline::<Vec<u64>>(&key(1)).unwrap(), Some(numbers.clone()));
    assert_eq!(disk.held::<Vec<u64>>(), [(key(1), numbers)]);
    disk.hold::<()>(key(1), None);
    disk.put_baseline(key(1), &1);
    disk.put(key(1), &entry("short"));
    assert_eq!(chunks(&disk), 0);
}

#[test]
fn without_a_chunk_a_record_is_unreadable_until_it_is_written_again() {
    let (_folder, path) = new_store_path();
    let disk = open(&path, 64 * MIB);
    disk.put(key(1), &long_entry(2000, None));
    disk.flush(WAIT);
    remove_chunk(&disk);
    assert!(disk.get(&key(1)).is_err());
    assert_eq!(disk.list().len(), 0);
    disk.put(key(1), &long_entry(2000, None));
    disk.flush(WAIT);
    assert!(body(&disk, &key(1)).is_some());
}

#[test]
fn an_expired_long_record_keeps_its_content() {
    let (_folder, path) = new_store_path();
    let disk = open(&path, 64 * MIB);
    let long = long_entry(2000, None);
    disk.put(key(1), &long);
    assert_eq!(disk.expire(vec![Selector::default()]).len(), 1);
    // The chunks that count as known are still there.
    let other = long_entry(2000, Some(3));
    for expected in [&long, &other] {
        let kept = disk.get(&key(1)).unwrap().unwrap();
        assert_eq!(kept.encoded.body(), expected.encoded.body());
        disk.put(key(1), &other);
        disk.flush(WAIT);
    }
    assert_eq!(disk.expire(vec![Selector::default()]).len(), 1);
    close(disk, &path);
    let disk = open(&path, 64 * MIB);
    let kept = disk.get(&key(1)).unwrap().unwrap();
    assert_eq!((kept.encoded.body(), kept.life), (other.encoded.body(), Life::For(Duration::ZERO)));
}

#[test]
fn a_change_in_the_batch_of_an_expiry_can_be_read_after_the_next_one() {
    let (_folder, path) = new_store_path();
    let disk = open(&path, 64 * MIB);
    // With a long question, the first chunk ends before what differs between two changes.
    let parameters: Parameters = (0..4000).map(|n| (format!("name-{n}"), json!(n * n))).collect();
    let with_question = |entry: Entry| {
        let question = Question { parameters: Arc::new(parameters.clone()), ..entry.question.open() };
        Entry { question: PackedQuestion::from(&question), ..entry }
    };
    let (long, other) = (with_question(long_entry(2000, None)), with_question(long_entry(2000, Some(3))));
    let (reply, expired) = sync_channel(1);
    disk.file
        .with(|database| {
            // The writer waits for the database.
            let _transaction = database.begin_write()?;
            disk.put(key(2), &entry("first"));
            thread::sleep(Duration::from_millis(50));
            disk.put(key(1), &long);
            disk.queue.send(Order::Expire(vec![Selector::default()], reply)).unwrap();
            Ok(())
        })
        .unwrap();
    assert_eq!(expired.recv().unwrap().len(), 2);
    disk.flush(WAIT);
    assert_eq!(body(&disk, &key(1)).unwrap(), &long.encoded.body()[..]);
    for next in [&long, &other, &long] {
        disk.put(key(1), next);
        disk.flush(WAIT);
        assert_eq!(body(&disk, &key(1)).unwrap(), &next.encoded.body()[..]);
    }
}

#[test]
fn an_evicted_long_record_is_lost_with_its_chunks() {
    let (_folder, path) = new_store_path();
    let disk = open(&path, 4 * MIB);
    for n in 0..20 {
        disk.put(key(n), &long_entry(2000, None));
        disk.flush(WAIT);
    }
    let there: Vec<u8> = (0..20).filter(|n| disk.get(&key(*n)).is_ok()).collect();
    assert!((1..8).contains(&there.len()) && there.ends_with(&[19]), "{there:?}");
    let of_one = chunks(&disk) / there.len() as u64;
    assert!(of_one > 10, "{of_one}");
    // What was evicted is written whole when it comes back.
    disk.put(key(0), &long_entry(2000, None));
    disk.flush(WAIT);
    assert!(body(&disk, &key(0)).is_some());
}

#[test]
fn chunks_of_an_interrupted_change_leave_at_the_next_start() {
    let (_folder, path) = new_store_path();
    let disk = open(&path, 64 * MIB);
    disk.put(key(1), &long_entry(2000, None));
    let before = chunks(&disk);
    let draft = encode(&long_entry(1500, None)).unwrap();
    let cut = cut(&draft);
    let drafts = KnownChunks::default().drafts((RecordKind::Answer, key(2)), Some(draft), cut);
    for (chunk, draft) in drafts.chunks {
        let change = Change::new(RecordKind::Chunk, chunk, Some(draft), disk.marks.next());
        disk.journal.lock().append(&change).unwrap();
        disk.queue.send(Order::Change(change)).unwrap();
    }
    assert!(chunks(&disk) > before + 10);
    close(disk, &path);
    let disk = open(&path, 64 * MIB);
    assert_eq!(chunks(&disk), before);
    assert!(body(&disk, &key(1)).is_some() && disk.get(&key(2)).unwrap().is_none());
}
