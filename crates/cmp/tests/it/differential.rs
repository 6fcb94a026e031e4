//! The reader of archives against Go's `archive/tar`: `tests/client/differential.go` makes the archives.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    process::Command,
};

use cmp::probe::{Unpacked, unpack};
use serde::Deserialize;

use crate::support::client;

/// What `archive/tar` makes of an archive.
#[derive(Debug, Deserialize)]
struct Reading {
    file: String,
    unchanged: bool,
    refused: Option<String>,
    entries: Option<HashMap<String, String>>,
}

/// What is accepted is what Go reads, and what Go writes is accepted. What Go reads and Argo CD does not write may be refused.
#[tokio::test]
async fn archives_are_read_as_go_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut go = Command::new(client());
    let output = go.arg(folder.path()).args(["Differential", "-n", "4000", "-seed", "7"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (mut equal, mut both, mut stricter, mut differences) = (0, 0, 0, Vec::new());
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let go: Reading = serde_json::from_str(line).unwrap();
        let archive = fs::read(folder.path().join(&go.file)).unwrap();
        let to = folder.path().join("to");
        let own = unpack(&[&archive], folder.path(), &to).await;
        let _ = fs::remove_dir_all(&to);
        match (own, go.refused) {
            (Err(_), Some(_)) => both += 1,
            (Err(why), None) if go.unchanged => differences.push(format!("{}: refused: {why}", go.file)),
            (Err(_), None) => stricter += 1,
            (Ok(_), Some(why)) => differences.push(format!("{}: accepted, and Go says: {why}", go.file)),
            (Ok(own), None) => {
                let own: BTreeMap<_, _> = own.iter().map(|(path, entry)| (hex(path), kind(entry))).collect();
                let theirs: BTreeMap<_, _> = go.entries.unwrap().into_iter().collect();
                if own == theirs {
                    equal += 1;
                } else {
                    differences.push(format!("{}: {own:?} and {theirs:?}", go.file));
                }
            }
        }
    }
    assert!(differences.is_empty(), "{}: {:#?}", differences.len(), &differences[..differences.len().min(10)]);
    assert!(
        equal >= 1000 && both >= 200 && stricter >= 200,
        "{equal} equal, {both} refused by both, {stricter} by one"
    );
}

/// An entry as the client prints it.
fn kind(entry: &Unpacked) -> String {
    match entry {
        Unpacked::Folder => "d".to_owned(),
        Unpacked::File(content) => format!("f{}", hex(content)),
        Unpacked::Link(target) => format!("l{}", hex(target)),
    }
}

fn hex(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(bytes)
}
