//! Archives as Go writes them, and hostile ones.

mod hostile;
mod made;

use std::{os::unix::fs::PermissionsExt, path::Path};

use bytes::Bytes;

use self::made::{Made, checksum};
use super::{
    ArchiveError,
    digest::{digest, digest_without_git},
    extract::extract,
    index::Entry,
    intake::{Archive, Intake, Wanted},
    walk::ArchiveLimits,
    write::repack,
};

fn wanted(spool: &Path) -> Wanted {
    Wanted { limits: ArchiveLimits::default(), has_git: false, spool: Some(spool.to_owned()) }
}

/// Reads `bytes` in pieces of `size`.
async fn read_in(bytes: &[u8], size: usize, wanted: Wanted) -> Result<Archive, ArchiveError> {
    let intake = Intake::begin(wanted, checksum(bytes));
    for piece in bytes.chunks(size) {
        if !intake.add(Bytes::copy_from_slice(piece)).await {
            break;
        }
    }
    intake.finish().await
}

async fn read(bytes: &[u8]) -> Result<Archive, ArchiveError> {
    let folder = tempfile::tempdir().unwrap();
    read_in(bytes, 1024, wanted(folder.path())).await
}

fn usual() -> Made {
    let mut made = Made::default();
    made.folder(".").folder("a").file("a/f", b"one", 0o644).file("a/run", b"two", 0o755).link("a/l", "../a/f");
    made.folder(".git").file(".git/HEAD", b"x", 0o644).file("b/c/deep", &[7; 3000], 0o600);
    made
}

#[tokio::test]
async fn an_archive_is_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    for (has_modes, mode) in [(false, 0o644), (true, 0o755)] {
        let archive = read_in(&usual().gzip(), 7, wanted(folder.path())).await.unwrap();
        let paths: Vec<_> = archive.entries.keys().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        assert_eq!(paths, ["a", "a/f", "a/l", "a/run", "b", "b/c", "b/c/deep"]);
        assert_eq!(archive.size, 3006);
        let to = folder.path().join(has_modes.to_string());
        extract(archive, &to, has_modes).unwrap();
        assert_eq!(std::fs::read(to.join("a/l")).unwrap(), b"one");
        assert_eq!(std::fs::read(to.join("b/c/deep")).unwrap(), [7; 3000]);
        let permissions = to.join("a/run").metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(permissions & 0o755, mode, "{permissions:o}");
        assert!(!to.join(".git").exists());
    }
    let names: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "spooled bytes have no name: {names:?}");
}

#[tokio::test]
async fn many_bytes_go_to_a_file() {
    let mut made = Made::default();
    // Bytes that do not compress.
    let random: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(3_000_000).collect();
    made.file("f", &random, 0o644);
    let folder = tempfile::tempdir().unwrap();
    let archive = read_in(&made.gzip(), 100_000, wanted(folder.path())).await.unwrap();
    assert!(archive.bytes > 2_900_000);
    extract(archive, &folder.path().join("to"), false).unwrap();
    assert!(std::fs::read(folder.path().join("to/f")).unwrap() == random);
}

#[tokio::test]
async fn the_digest_is_that_of_the_tree() {
    let of = async |made: &Made, has_modes| digest(&read(&made.gzip()).await.unwrap().entries, has_modes);
    let first = of(&usual(), true).await;
    // Another order, times, an owner, a `.git`, and folders that are not written.
    let mut other = Made { mtime: 1_700_000_000, ..Made::default() };
    other.file("b/c/deep", &[7; 3000], 0o644).file(".git/HEAD", b"y", 0o644).link("a/l", "../a/f");
    other.file("a/run", b"two", 0o711).file("a/f", b"one", 0o600);
    assert_eq!(of(&other, true).await, first);
    let mut mode = usual();
    mode.entries.retain(|entry| entry.name != "a/run");
    mode.file("a/run", b"two", 0o644);
    assert!(of(&mode, true).await != first && of(&mode, false).await == of(&usual(), false).await);
    for change in [&["a/f", "a/g"], &["a/l", "a/f2"]] {
        let mut changed = usual();
        changed
            .entries
            .iter_mut()
            .filter(|entry| entry.name == change[0])
            .for_each(|entry| entry.name = change[1].into());
        assert!(of(&changed, true).await != first, "{change:?}");
    }
}

#[tokio::test]
async fn long_names_and_links_come_as_pax_records() {
    let long = format!("{}/{}", "d".repeat(150), "ä".repeat(100));
    let mut made = Made::default();
    made.pax(&[("path", &long), ("mtime", "1.5")]).file("short", b"x", 0o644);
    made.pax(&[("linkpath", &long)]).link("l", "short");
    let entries = read(&made.gzip()).await.unwrap().entries;
    assert!(matches!(entries[long.as_bytes()], Entry::File { .. }));
    assert_eq!(entries[&b"l"[..]], Entry::Link(long.into_bytes()));
}

#[tokio::test]
async fn names_alone_need_no_contents() {
    let wanted = Wanted { limits: ArchiveLimits::default(), has_git: true, spool: None };
    let archive = read_in(&usual().gzip(), 100, wanted).await.unwrap();
    assert!(archive.entries.contains_key(&b".git/HEAD"[..]));
    assert!(matches!(archive.entries[&b"a/f"[..]], Entry::File { content: [0, ..], .. }));
}

/// A relay sends an archive on as another one: what a plugin sees of it is the same.
#[tokio::test]
async fn an_archive_that_is_packed_again_has_the_same_digest() {
    let folder = tempfile::tempdir().unwrap();
    let mut made = usual();
    let long = format!("{}/{}", "d".repeat(150), "ä".repeat(100));
    made.pax(&[("path", &long)]).file("short", &[1; 1024], 0o644);
    made.pax(&[("linkpath", &long)]).link("link", "short");
    let wanted = Wanted { has_git: true, ..wanted(folder.path()) };
    let archive = read_in(&made.gzip(), 1000, wanted.clone()).await.unwrap();
    for has_git in [true, false] {
        let mut zstd = zstd::Encoder::new(Vec::new(), 1).unwrap();
        repack(&archive, has_git, &mut zstd).unwrap();
        let intake = Intake::begin_relayed(wanted.clone());
        for piece in zstd.finish().unwrap().chunks(10) {
            assert!(intake.add(Bytes::copy_from_slice(piece)).await);
        }
        let again = intake.finish().await.unwrap();
        let of = if has_git { digest } else { digest_without_git };
        assert_eq!(digest(&again.entries, true), of(&archive.entries, true));
        assert_eq!(again.entries.contains_key(&b".git/HEAD"[..]), has_git);
        let to = folder.path().join(format!("to-{has_git}"));
        extract(again, &to, true).unwrap();
        assert_eq!(std::fs::read(to.join("link")).unwrap(), [1; 1024]);
    }
}
