//! The compressed bytes of an archive: in memory while they are few, then in a file without a name.

use std::{
    fs::{File, OpenOptions},
    io::{self, Cursor, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// More bytes go to a file.
const IN_MEMORY: usize = 1024 * 1024;

/// Compressed bytes that can be read again.
#[derive(Debug, Default)]
pub(crate) struct Spool {
    memory: Vec<u8>,
    file: Option<File>,
}

impl Spool {
    /// Adds `bytes`. A file is made in `folder`.
    pub(super) fn write(&mut self, bytes: &[u8], folder: &Path) -> io::Result<()> {
        if self.file.is_none() && self.memory.len() + bytes.len() > IN_MEMORY {
            let mut file = nameless(folder)?;
            file.write_all(&std::mem::take(&mut self.memory))?;
            self.file = Some(file);
        }
        if let Some(file) = &mut self.file {
            return file.write_all(bytes);
        }
        self.memory.extend_from_slice(bytes);
        Ok(())
    }

    /// All bytes, from the first.
    pub(super) fn into_reader(self) -> io::Result<Box<dyn Read>> {
        Ok(match self.file {
            Some(mut file) => {
                file.rewind()?;
                Box::new(file)
            }
            None => Box::new(Cursor::new(self.memory)),
        })
    }
}

/// A new file in `folder` that nobody else finds, and that goes with this process.
fn nameless(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!("spool-{:016x}", fastrand::u64(..)));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}
