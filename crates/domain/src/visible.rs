//! Texts from outside as a person sees them: characters that would deceive an eye or steer a terminal are shown by their code.

/// Whether a person would not see this character, or would see others in another order because of it.
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}')
}

/// `text` with the code of each hidden character, such as `\u{202e}`, in its place.
pub fn visible(text: &str) -> String {
    replaced(text, |hidden| hidden.escape_default().to_string())
}

/// `text` in one line: a space in place of each control character, and the code of each other hidden character.
pub fn one_line(text: &str) -> String {
    replaced(text, |hidden| if hidden.is_control() { " ".to_owned() } else { hidden.escape_default().to_string() })
}

/// `json`, a document with line breaks between its tokens, with the same values and without hidden characters.
pub fn visible_json(json: &str) -> String {
    replaced(json, |hidden| if hidden == '\n' { "\n".to_owned() } else { json_code(hidden) })
}

/// `character` as JSON writes it by its code.
pub fn json_code(character: char) -> String {
    let in_utf16 = |unit: &u16| format!("\\u{unit:04x}");
    character.encode_utf16(&mut [0; 2]).iter().map(in_utf16).collect()
}

/// Whether `byte` may begin a hidden character in UTF-8.
pub const fn may_begin_hidden(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, 0x7f | 0xc2 | 0xcd | 0xd8 | 0xe1 | 0xe2 | 0xe3 | 0xef | 0xf3)
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

    /// Steers a terminal in two ways, reverses text, hides text, and is hidden itself.
    const HOSTILE: &str = "a\u{1b}[31m\u{9b}31m\u{202e}gnp.exe\u{200b}\u{e0041}\t\u{0}\u{7f}";

    #[test]
    fn hidden_characters_are_shown_by_their_code() {
        let shown = visible(HOSTILE);
        assert_eq!(shown, r"a\u{1b}[31m\u{9b}31m\u{202e}gnp.exe\u{200b}\u{e0041}\t\u{0}\u{7f}");
        assert_eq!(one_line(HOSTILE), r"a [31m 31m\u{202e}gnp.exe\u{200b}\u{e0041}   ");
        assert_eq!(visible("grün 日本 👍🏽 \"a\\b\""), "grün 日本 👍🏽 \"a\\b\"");
    }

    #[test]
    fn the_bytes_that_begin_hidden_characters_are_known() {
        for character in (0..=u32::from(char::MAX)).filter_map(char::from_u32).filter(|character| is_hidden(*character))
        {
            assert!(may_begin_hidden(character.encode_utf8(&mut [0; 4]).as_bytes()[0]), "{character:?}");
        }
    }

    #[test]
    fn json_keeps_its_values() {
        let value = json!({HOSTILE: [HOSTILE, "grün", {"n": 1}]});
        let shown = visible_json(&format!("{value:#}"));
        assert!(!shown.replace('\n', "").contains(is_hidden), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }
}
