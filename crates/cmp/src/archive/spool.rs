//! The compressed bytes of an archive: in memory while they are few, then in a file without a name.

use std::{
    fs::{File, OpenOptions},
    io::{self, Cursor, Read, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

/// More bytes go to a file.
const IN_MEMORY: usize = 1024 * 1024;

/// Compressed bytes that can be read again.
#[derive(Debug, Default)]
pub(crate) struct Spool {
    memory: Vec<u8>,
    file: Option<Arc<File>>,
}

/// The bytes of a file that others read too.
#[derive(Debug)]
struct FromStart {
    file: Arc<File>,
    at: u64,
}

impl Read for FromStart {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(buffer, self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

impl Spool {
    /// Adds `bytes`. A file is made in `folder`.
    pub(super) fn write(&mut self, bytes: &[u8], folder: &Path) -> io::Result<()> {
        if self.file.is_none() && self.memory.len() + bytes.len() > IN_MEMORY {
            let mut file = nameless(folder)?;
            file.write_all(&std::mem::take(&mut self.memory))?;
            self.file = Some(Arc::new(file));
        }
        if let Some(file) = &self.file {
            return (&**file).write_all(bytes);
        }
        self.memory.extend_from_slice(bytes);
        Ok(())
    }

    /// All bytes, from the first. They may be read several times, also at once.
    pub(super) fn reader(&self) -> Box<dyn Read + Send> {
        match &self.file {
            Some(file) => Box::new(FromStart { file: Arc::clone(file), at: 0 }),
            None => Box::new(Cursor::new(self.memory.clone())),
        }
    }
}

/// A new file in `folder` that nobody else finds, and that goes with this process.
fn nameless(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!("spool-{:016x}", fastrand::u64(..)));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}
