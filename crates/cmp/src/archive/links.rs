//! Where symbolic links lead, found from the list of entries alone: nothing is followed on a disk.

use super::{
    ArchiveError,
    index::{Entries, Entry},
};

/// How many links are followed for one path, as Linux does.
const MAX_LINKS: usize = 40;

/// The longest target of a link, in bytes, as on Linux.
const MAX_TARGET: usize = 4095;
/// The most parts of a target. Each is looked up by its whole path.
const MAX_PARTS: usize = 256;

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// To this path in the archive, whether it is there or not. Empty for its root.
    Inside(Vec<u8>),
    /// Out of the archive.
    Outside,
    /// Nowhere: too many links.
    Loop,
}

/// Checks that no link leads out.
///
/// # Errors
/// Names the first link that does, and its target.
pub(super) fn check(entries: &Entries) -> Result<(), ArchiveError> {
    for (path, entry) in entries {
        let Entry::Link(target) = entry else { continue };
        if target.len() > MAX_TARGET || target.split(|byte| *byte == b'/').count() > MAX_PARTS {
            let why = format!("is a symbolic link to more than {MAX_TARGET} bytes or {MAX_PARTS} names");
            return Err(ArchiveError::entry(path, why));
        }
        let folder = path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |end| &path[..end]);
        if resolve(entries, folder, target) == Resolved::Outside || target.is_empty() || target.contains(&0) {
            let target = String::from_utf8_lossy(target);
            let why = format!(
                "is a symbolic link that leads out of the repository, to `{}`",
                domain::visible::one_line(&target)
            );
            return Err(ArchiveError::entry(path, why));
        }
    }
    Ok(())
}

/// Where `path` leads from `folder`, which has no links itself.
pub(crate) fn resolve(entries: &Entries, folder: &[u8], path: &[u8]) -> Resolved {
    if path.starts_with(b"/") {
        return Resolved::Outside;
    }
    let split = |path: &[u8]| path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let mut here: Vec<Vec<u8>> = split(folder).into_iter().filter(|part| !part.is_empty()).collect();
    let mut left: Vec<Vec<u8>> = split(path).into_iter().rev().collect();
    let mut links = 0;
    while let Some(part) = left.pop() {
        match part.as_slice() {
            b".." if here.pop().is_none() => return Resolved::Outside,
            b"" | b"." | b".." => {}
            _ => {
                here.push(part);
                let Some(Entry::Link(target)) = entries.get(&here.join(&b'/')) else { continue };
                links += 1;
                if links > MAX_LINKS {
                    return Resolved::Loop;
                }
                if target.starts_with(b"/") {
                    return Resolved::Outside;
                }
                here.pop();
                left.extend(split(target).into_iter().rev());
            }
        }
    }
    Resolved::Inside(here.join(&b'/'))
}
