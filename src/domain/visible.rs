//! Texts from outside as a person sees them: characters that would deceive an eye or steer a terminal are shown by their code.

/// Whether a person would not see this character, or would see others in another order because of it.
pub(crate) fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// `text` with the code of each hidden character, such as `\u{202e}`, in its place.
pub(crate) fn visible(text: &str) -> String {
    replaced(text, |hidden| hidden.escape_default().to_string())
}

/// `json`, a document with line breaks between its tokens, with the same values and without hidden characters.
pub(crate) fn visible_json(json: &str) -> String {
    replaced(json, |hidden| {
        let in_utf16 = |unit: &u16| format!("\\u{unit:04x}");
        if hidden == '\n' { "\n".to_owned() } else { hidden.encode_utf16(&mut [0; 2]).iter().map(in_utf16).collect() }
    })
}

fn replaced(text: &str, code: impl Fn(char) -> String) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, character| {
        if is_hidden(character) {
            shown += &code(character);
        } else {
            shown.push(character);
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Steers a terminal in two ways, turns text round, hides text, and is hidden itself.
    const HOSTILE: &str = "a\u{1b}[31m\u{9b}31m\u{202e}gnp.exe\u{200b}\u{e0041}\t\u{0}\u{7f}";

    #[test]
    fn hidden_characters_are_shown_by_their_code() {
        let shown = visible(HOSTILE);
        assert_eq!(shown, r"a\u{1b}[31m\u{9b}31m\u{202e}gnp.exe\u{200b}\u{e0041}\t\u{0}\u{7f}");
        assert_eq!(visible("grün 日本 👍🏽 \"a\\b\""), "grün 日本 👍🏽 \"a\\b\"");
    }

    #[test]
    fn json_keeps_its_values() {
        let value = json!({HOSTILE: [HOSTILE, "grün", {"n": 1}]});
        let shown = visible_json(&format!("{value:#}"));
        assert!(!shown.replace('\n', "").contains(is_hidden), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }
}
