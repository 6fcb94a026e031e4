//! What a plugin printed, as an answer. Argo CD deletes whatever is missing from it.

use crate::grpc::status::Status;

/// The manifests in `stdout`: one text, which Argo CD splits, or none for `[]`.
///
/// # Errors
/// When it is not text, or blank though the plugin may not be blank.
pub(crate) fn manifests(stdout: Vec<u8>, allow_blank: bool) -> Result<Vec<String>, Status> {
    let text = String::from_utf8(stdout).map_err(|error| {
        Status::unknown(format!("its output is not UTF-8, from byte {}", error.utf8_error().valid_up_to()))
    })?;
    match content(&text) {
        Content::Some => Ok(vec![text]),
        Content::EmptyList => Ok(Vec::new()),
        Content::Blank if allow_blank => Ok(Vec::new()),
        Content::Blank => Err(Status::unknown(
            "its output has no manifest, which Argo CD would take for an order to delete everything; print `[]` if there is nothing, or set \
             `allowBlank`",
        )),
    }
}

/// Whether Argo CD finds no manifest in `text`.
pub(crate) fn is_blank(text: &str) -> bool {
    content(text) != Content::Some
}

/// What a text has for Argo CD.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    Some,
    /// `[]`: nothing, on purpose.
    EmptyList,
    /// Blanks, comments and empty documents only.
    Blank,
}

fn content(text: &str) -> Content {
    let mut empty = Content::Blank;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let line = line.trim();
        let line = line.strip_prefix("---").map_or(line, str::trim);
        match line {
            "" | "..." | "null" | "~" | "{}" => {}
            "[]" => empty = Content::EmptyList,
            _ if line.starts_with('#') => {}
            _ => return Content::Some,
        }
    }
    empty
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_output_is_an_error_and_an_empty_list_is_nothing() {
        for blank in ["", "\n \n", "---\n", "# nothing\n---\n...\n", "null", "{}\n---\n~\n", "--- # x\n", "\u{feff}"] {
            let error = manifests(blank.into(), false).unwrap_err();
            assert!(error.message.contains("no manifest"), "{blank:?}");
            assert_eq!(manifests(blank.into(), true).unwrap(), Vec::<String>::new());
        }
        for nothing in ["[]", " []\n", "---\n[]\n", "--- []", "# none\n[]\n"] {
            assert_eq!(manifests(nothing.into(), false).unwrap(), Vec::<String>::new(), "{nothing:?}");
        }
        for text in ["a: b\n", "---\n# x\na: b", "- []\n", "[] # x", "{\"a\": 1}"] {
            assert_eq!(manifests(text.into(), false).unwrap(), [text.to_owned()]);
        }
        assert!(manifests(vec![b'a', 0xff], false).unwrap_err().message.contains("from byte 1"));
    }
}
