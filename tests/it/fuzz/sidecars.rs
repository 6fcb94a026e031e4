//! What comes to `cmp-gateway`: archives of repositories, and messages of gRPC.

use std::{collections::BTreeMap, fs, io::Write, os::unix::ffi::OsStrExt, path::Path, sync::LazyLock};

use cmp::probe::{Unpacked, compressed, described, exchanged_again, messages, named, put, unpack, written_again};
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest as _, Sha256};
use tokio::runtime::{Builder, Runtime};

use super::messages::is_one_line;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Builder::new_current_thread().build().unwrap());

/// A block of tar, and where its checksum and its magic are.
const BLOCK: usize = 512;
const SUM: std::ops::Range<usize> = 148..156;
const MAGIC: std::ops::Range<usize> = 257..262;

/// An archive is refused with one line, or is written as it was read: nothing outside of the folder changes, and no link leads out of it. `data`
/// is a tar, whose checksums are repaired, since no fuzzer finds them.
pub(super) fn archive(data: &[u8]) {
    let compressed = gzip(&repaired(data));
    let outer = tempfile::tempdir().unwrap();
    let read = |name: &str, size: usize| {
        let pieces: Vec<&[u8]> = compressed.chunks(size).collect();
        RUNTIME.block_on(unpack(&pieces, outer.path(), &outer.path().join(name)))
    };
    let (whole, by_pieces) = (read("whole", compressed.len()), read("pieces", 700));
    assert_eq!(whole, by_pieces, "it depends on the pieces");
    let names: Vec<_> = fs::read_dir(outer.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let entries = match whole {
        Ok(entries) => entries,
        Err(message) => {
            is_one_line(&message);
            assert!(names.is_empty(), "it is refused, and was written: {names:?}");
            return;
        }
    };
    assert_eq!(names.len(), 2, "something is beside the folders: {names:?}");
    let mut found = BTreeMap::new();
    list(&outer.path().join("whole"), &mut Vec::new(), &mut found);
    let expected: BTreeMap<_, _> = entries.iter().map(|(path, entry)| (path.clone(), kind(entry))).collect();
    assert_eq!(found, expected, "it is not written as it was read");
    // By the kernel's own following of links: what exists is in the folder.
    let root = outer.path().join("whole").canonicalize().unwrap();
    for path in entries.keys() {
        if let Ok(target) = root.join(std::ffi::OsStr::from_bytes(path)).canonicalize() {
            assert!(target.starts_with(&root), "{path:?} leads out, to {}", target.display());
        }
    }
}

/// A tar whose blocks have the checksums that they should have.
fn repaired(data: &[u8]) -> Vec<u8> {
    let mut tar = data.to_vec();
    for block in tar.chunks_exact_mut(BLOCK).filter(|block| block[MAGIC] == *b"ustar") {
        block[SUM].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    tar
}

fn gzip(tar: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::none());
    gzip.write_all(tar).unwrap();
    gzip.finish().unwrap()
}

/// What a relay and a service send each other; the first byte says what the others are. A tree is refused with one line, or is the tree that Argo CD's
/// archive of the same tar is. Messages are read in one way only, and rules that a service describes decide, or say why not.
pub(super) fn relay_exchange(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind {
        b't' => {
            let tar = repaired(rest);
            if let Ok((_, entries)) = put_whole(&compressed(&tar).unwrap()) {
                let outer = tempfile::tempdir().unwrap();
                let archive = RUNTIME.block_on(unpack(&[&gzip(&tar)], outer.path(), &outer.path().join("whole")));
                assert_eq!(archive, Ok(entries), "another tree than that of the archive");
            }
        }
        b'z' => _ = put_whole(rest),
        b'n' => match named(rest) {
            Some(Ok(digest)) => assert_eq!(digest.len(), 64, "{digest}"),
            Some(Err(message)) => is_one_line(&message),
            None => {}
        },
        kind => {
            if let Some(again) = exchanged_again(*kind, rest) {
                assert_eq!(exchanged_again(*kind, &again), Some(again.clone()), "it is read in two ways");
            }
            if *kind == b'd'
                && let Some(Err(message)) = described(rest, "Kptfile")
            {
                is_one_line(&message);
            }
        }
    }
}

/// The tree in `zstd`, which does not depend on the pieces in which it comes.
fn put_whole(zstd: &[u8]) -> Result<(String, BTreeMap<Vec<u8>, Unpacked>), String> {
    let spool = tempfile::tempdir().unwrap();
    let read = |size: usize| {
        let pieces: Vec<&[u8]> = zstd.chunks(size).collect();
        RUNTIME.block_on(put(&pieces, spool.path()))
    };
    let whole = read(zstd.len().max(1));
    assert_eq!(read(7), whole, "it depends on the pieces");
    if let Err(message) = &whole {
        is_one_line(message);
    }
    whole
}

/// An entry by a letter, and its content or target.
fn kind(entry: &Unpacked) -> (char, Vec<u8>) {
    match entry {
        Unpacked::Folder => ('d', Vec::new()),
        Unpacked::File(content) => ('f', content.to_vec()),
        Unpacked::Link(target) => ('l', target.clone()),
    }
}

/// All that is in `folder`, whose path from the root is `path`.
fn list(folder: &Path, path: &mut Vec<u8>, found: &mut BTreeMap<Vec<u8>, (char, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let length = path.len();
        if length > 0 {
            path.push(b'/');
        }
        path.extend(entry.file_name().as_bytes());
        let kind = entry.file_type().unwrap();
        let content = if kind.is_dir() {
            ('d', Vec::new())
        } else if kind.is_symlink() {
            ('l', fs::read_link(entry.path()).unwrap().as_os_str().as_bytes().to_vec())
        } else {
            ('f', Sha256::digest(fs::read(entry.path()).unwrap()).to_vec())
        };
        found.insert(path.clone(), content);
        if kind.is_dir() {
            list(&entry.path(), path, found);
        }
        path.truncate(length);
    }
}

/// Messages are the same however the bytes come, and together with their heads they are all bytes up to the error.
pub(super) fn grpc_messages(data: &[u8]) {
    let (whole, error) = messages(&[data]);
    let by_pieces: Vec<&[u8]> = data.chunks(3).collect();
    assert_eq!(messages(&by_pieces), (whole.clone(), error.clone()), "they depend on the pieces");
    let mut rest = data;
    for message in &whole {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let head = [&[0][..], &length].concat();
        rest = rest
            .strip_prefix(&*head)
            .and_then(|rest| rest.strip_prefix(&**message))
            .expect("a message that nobody sent");
        if let Some(again) = written_again(message) {
            assert_eq!(written_again(&again), Some(again.clone()), "it is read in two ways");
        }
    }
    match error {
        None => assert!(rest.is_empty(), "bytes are lost: {rest:?}"),
        Some(message) => {
            is_one_line(&message);
            assert!(!rest.is_empty(), "an error without a byte: {message}");
        }
    }
}
