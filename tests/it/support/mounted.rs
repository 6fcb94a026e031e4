//! Files as Kubernetes mounts a Secret or a ConfigMap.

use std::{os::unix::fs::symlink, path::Path};

/// Puts `files` into `folder` as the version `version`, all at once: a link to the folder with the files replaces the link
/// before.
pub(crate) fn mount(folder: &Path, version: &str, files: &[(&str, &str)]) {
    let data = folder.join(format!("..{version}"));
    std::fs::create_dir_all(&data).unwrap();
    for (name, content) in files {
        std::fs::write(data.join(name), content).unwrap();
        let link = folder.join(name);
        if !link.exists() {
            symlink(Path::new("..data").join(name), link).unwrap();
        }
    }
    symlink(format!("..{version}"), folder.join("..data_tmp")).unwrap();
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
}
