//! Archives that must be refused, each for its reason.

use super::{
    super::index::Entries,
    made::{Made, gzip, record},
    *,
};
use domain::units::ByteSize;

/// The reason for which `bytes` are refused.
async fn refused(bytes: &[u8]) -> String {
    read(bytes).await.map(|archive| archive.entries).unwrap_err().to_string()
}

fn made(fill: impl FnOnce(&mut Made) -> &mut Made) -> Vec<u8> {
    let mut archive = Made::default();
    fill(&mut archive);
    archive.gzip()
}

#[tokio::test]
async fn entries_that_lead_out_are_refused() {
    for (bytes, expected) in [
        (made(|made| made.file("../out", b"", 0o644)), "`../out` leads out of the archive by `..`"),
        (made(|made| made.file("a/../../out", b"", 0o644)), "by `..`"),
        (made(|made| made.folder("/etc")), "has an absolute path"),
        (made(|made| made.pax(&[("path", "/etc/passwd")]).file("x", b"", 0o644)), "has an absolute path"),
        (
            made(|made| made.link("l", "/etc/passwd")),
            "`l` is a symbolic link that leads out of the repository, to `/etc/passwd`",
        ),
        (made(|made| made.link("a/l", "../../x")), "to `../../x`"),
        (made(|made| made.link("l", "")), "leads out"),
        // Each link is inside by its text; one through the other is not.
        (made(|made| made.folder("d").link("d/up", "..").link("l", "d/up/../x")), "to `d/up/../x`"),
        (made(|made| made.link("here", ".").link("l", "here/../x")), "to `here/../x`"),
        // Link, then write through it, or in its place.
        (made(|made| made.folder("d").link("l", "d").file("l/x", b"", 0o644)), "`l/x` is below a file or a link"),
        (made(|made| made.link("l", "x").file("l", b"", 0o644)), "`l` is there twice"),
        (made(|made| made.file("f", b"", 0o644).link("f", "x")), "`f` is there twice"),
        (made(|made| made.file("f", b"", 0o644).file("f/x", b"", 0o644)), "below a file"),
        (made(|made| made.file("f", b"", 0o644).folder("f")), "twice"),
    ] {
        let error = refused(&bytes).await;
        assert!(error.contains(expected), "{error}: {expected}");
    }
}

#[tokio::test]
async fn other_kinds_of_entries_are_refused() {
    for (kind, expected) in [
        (b'1', "hard link"),
        (b'3', "type `3`"),
        (b'4', "type `4`"),
        (b'6', "type `6`"),
        (b'7', "type `7`"),
        (b'g', "type `g`"),
        (b'L', "type `L`"),
        (b'S', "type `S`"),
    ] {
        let error = refused(&made(|made| made.entry("x", kind, "y", 0o644, b""))).await;
        assert!(error.contains(expected), "{error}");
    }
    for record in [
        record("GNU.sparse.size", "9"),
        record("SCHILY.xattr.user.x", "y"),
        record("path", "a\0b"),
        record("size", "-1"),
        record("size", "0x9"),
        record("uid", "x"),
        record("mtime", "1.x"),
        record("atime", "."),
        "9 path\n".to_owned(),
        "99 path=x\n".to_owned(),
        "x".to_owned(),
        format!("{0}{0}", record("path", "x")),
    ] {
        let error = refused(&made(|made| made.entry("p", b'x', "", 0, record.as_bytes()).file("f", b"", 0o644))).await;
        assert!(error.contains("PAX"), "{record:?}: {error}");
    }
}

#[tokio::test]
async fn lies_about_sizes_are_found() {
    // A size that hides the next entry (TARmageddon): header and record differ, and the record counts, as in Go.
    let mut inner = Made::default();
    inner.file("hidden", b"", 0o644);
    let content = inner.tar();
    let mut outer = Made::default();
    outer.pax(&[("size", &content.len().to_string())]).file("shown", &content, 0o644);
    outer.entries.last_mut().unwrap().size = Some(0);
    let entries: std::sync::Arc<Entries> = read(&outer.gzip()).await.unwrap().entries;
    assert_eq!(entries.keys().collect::<Vec<_>>(), [b"shown"]);
    let mut long = Made::default();
    long.file("f", b"short", 0o644).entries[0].size = Some(9_999_999);
    assert!(refused(&long.gzip()).await.contains("cannot be read"));
    let error = refused(&made(|made| made.pax(&[("size", "18446744073709551615")]).file("f", b"x", 0o644))).await;
    assert!(error.contains("cannot be read"), "{error}");
}

/// What one reader takes so, and another one otherwise.
#[tokio::test]
async fn headers_that_have_two_readings_are_refused() {
    let mut file = Made::default();
    file.file("f", b"", 0o644);
    for (at, bytes, expected) in [
        // Go skips a NUL before the digits, other readers stop there.
        (124, &b"\x0000000000001"[..], "not octal"),
        (124, b"0000000 0001", "not octal"),
        (124, b"\t00000000000", "not octal"),
        (124, b"\x80\0\0\0\0\0\0\0\0\0\0\0", "not octal"),
        (100, b"\x00000644", "not octal"),
        // For Go, a folder.
        (0, b"f/", "ends with a slash"),
        (155, b" \0", ""),
        (508, b"tar\0", "after its prefix"),
        (0, b"\0", "in the place of the whole archive"),
        (0, b"./", "ends with a slash"),
        (0, b".", "in the place of the whole archive"),
    ] {
        let mut tar = file.tar();
        tar[at..at + bytes.len()].copy_from_slice(bytes);
        tar[148..156].fill(b' ');
        let sum: u32 = tar[..512].iter().map(|byte| u32::from(*byte)).sum();
        tar[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        match read(&gzip(&tar)).await {
            Ok(archive) => assert!(expected.is_empty() && archive.entries.contains_key(&b"f"[..]), "{expected}"),
            Err(error) => assert!(!expected.is_empty() && error.to_string().contains(expected), "{error}: {expected}"),
        }
    }
    for record in [record("path", ""), record("linkpath", "")] {
        let error = refused(&made(|made| made.entry("p", b'x', "", 0, record.as_bytes()).file("f", b"", 0o644))).await;
        assert!(error.contains("a PAX record is empty"), "{record:?}: {error}");
    }
    let error = refused(&made(|made| made.link("./", "x"))).await;
    assert!(error.contains("in the place of the whole archive"), "{error}");
}

#[tokio::test]
async fn damaged_archives_are_refused() {
    let whole = usual().gzip();
    for cut in [0, 1, 10, whole.len() / 2, whole.len() - 1] {
        assert!(refused(&whole[..cut]).await.contains("cannot be read"), "{cut}");
    }
    assert!(refused(b"not gzip at all").await.contains("cannot be read"));
    let mut tar = usual().tar();
    tar[10] ^= 1;
    assert!(refused(&gzip(&tar)).await.contains("checksum of a block"));
    let after = [usual().tar(), usual().tar()].concat();
    assert!(refused(&gzip(&after)).await.contains("data after its end"));
    let folder = tempfile::tempdir().unwrap();
    let intake = Intake::begin(wanted(folder.path()), checksum(b"other"));
    assert!(intake.add(whole.into()).await);
    assert!(matches!(intake.finish().await, Err(ArchiveError::Checksum)));
}

#[tokio::test]
async fn limits_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let with = async |bytes: &[u8], change: fn(&mut ArchiveLimits)| {
        let mut wanted = wanted(folder.path());
        change(&mut wanted.limits);
        read_in(bytes, 1024, wanted).await.map(drop).unwrap_err().to_string()
    };
    let error = with(&usual().gzip(), |limits| limits.bytes = ByteSize(4096)).await;
    assert!(error.contains("`archive.bytes`"), "{error}");
    let error = with(&usual().gzip(), |limits| limits.files = 3).await;
    assert!(error.contains("more than 3 files (`archive.files`)"), "{error}");
    let error = with(&usual().gzip(), |limits| limits.depth = 1).await;
    assert!(error.contains("more than 1 folders (`archive.depth`)"), "{error}");
    // A bomb: a thousand times larger than its archive.
    let bomb = made(|made| made.file("zeros", &vec![0; 80_000_000], 0o644));
    assert!(bomb.len() < 1_000_000);
    assert!(refused(&bomb).await.contains("`archive.ratio`"));
    for name in ["n".repeat(256), vec!["d"; 102].join("/"), vec!["d".repeat(250); 17].join("/")] {
        let error = refused(&made(|made| made.pax(&[("path", &name)]).file("x", b"", 0o644))).await;
        assert!(
            error.contains("255 bytes") || error.contains("archive.depth") || error.contains("4095 bytes"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn nothing_is_written_outside() {
    // The second reading is safe by itself.
    let outer = tempfile::tempdir().unwrap();
    let archive = read(&usual().gzip()).await.unwrap();
    let to = outer.path().join("to");
    std::fs::create_dir(&to).unwrap();
    assert!(extract(archive, &to, false).unwrap_err().to_string().contains("cannot store"));
    assert!(to.read_dir().unwrap().next().is_none());
}
