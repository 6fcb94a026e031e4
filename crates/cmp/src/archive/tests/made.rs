//! Makes archives, also ones that no honest program makes.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use sha2::{Digest as _, Sha256};

/// An archive.
#[derive(Debug, Clone, Default)]
pub(super) struct Made {
    pub(super) entries: Vec<MadeEntry>,
    pub(super) mtime: u64,
}

#[derive(Debug, Clone)]
pub(super) struct MadeEntry {
    pub(super) name: String,
    kind: u8,
    link: String,
    mode: u32,
    content: Vec<u8>,
    /// What the header says, if not the length of the content.
    pub(super) size: Option<u64>,
}

impl Made {
    pub(super) fn entry(&mut self, name: &str, kind: u8, link: &str, mode: u32, content: &[u8]) -> &mut Self {
        let (name, link, content) = (name.to_owned(), link.to_owned(), content.to_vec());
        self.entries.push(MadeEntry { name, kind, link, mode, content, size: None });
        self
    }

    pub(super) fn folder(&mut self, name: &str) -> &mut Self {
        self.entry(name, b'5', "", 0o755, b"")
    }

    pub(super) fn file(&mut self, name: &str, content: &[u8], mode: u32) -> &mut Self {
        self.entry(name, b'0', "", mode, content)
    }

    pub(super) fn link(&mut self, name: &str, target: &str) -> &mut Self {
        self.entry(name, b'2', target, 0o777, b"")
    }

    pub(super) fn pax(&mut self, records: &[(&str, &str)]) -> &mut Self {
        let records: Vec<String> = records.iter().map(|(key, value)| record(key, value)).collect();
        self.entry("PaxHeaders.0/x", b'x', "", 0o644, records.concat().as_bytes())
    }

    /// The tar, with its end.
    pub(super) fn tar(&self) -> Vec<u8> {
        let mut tar = Vec::new();
        for entry in &self.entries {
            tar.extend(entry.header(self.mtime));
            tar.extend(&entry.content);
            tar.resize(tar.len().next_multiple_of(512), 0);
        }
        tar.extend([0; 1024]);
        tar
    }

    pub(super) fn gzip(&self) -> Vec<u8> {
        gzip(&self.tar())
    }
}

impl MadeEntry {
    fn header(&self, mtime: u64) -> [u8; 512] {
        let mut block = [0; 512];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, self.name.as_bytes());
        put(100, format!("{:07o}", self.mode).as_bytes());
        put(124, format!("{:011o}", self.size.unwrap_or(self.content.len() as u64)).as_bytes());
        put(136, format!("{mtime:011o}").as_bytes());
        put(148, b"        ");
        put(156, &[self.kind]);
        put(157, self.link.as_bytes());
        put(257, b"ustar\x0000");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }
}

/// A record with its own length (pax(1)).
pub(super) fn record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len();
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    format!("{length}{rest}")
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

pub(super) fn checksum(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(&Sha256::digest(bytes))
}
