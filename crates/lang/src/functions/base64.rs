//! Base64 of texts, for both languages.

use base64::{
    Engine as _,
    alphabet::{STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// Why a text cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Base64Error {
    /// It is not base64. The text itself may be a secret.
    #[error("it is not base64: {0}")]
    NotBase64(#[from] base64::DecodeError),
    /// It encodes bytes that are no text.
    #[error("it is base64 of bytes that are not UTF-8")]
    NotText(#[from] std::string::FromUtf8Error),
}

const CONFIG: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// `text` in base64 (RFC 4648, section 4), with padding.
pub(crate) fn encode(text: &str) -> String {
    GeneralPurpose::new(&STANDARD, CONFIG).encode(text)
}

/// The text that `encoded` encodes, in either alphabet (RFC 4648, sections 4 and 5), with or without padding. Forges break lines.
///
/// # Errors
/// When it is not base64 of a text.
pub(crate) fn decode(encoded: &str) -> Result<String, Base64Error> {
    let encoded: String = encoded.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let alphabet = if encoded.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    Ok(String::from_utf8(GeneralPurpose::new(alphabet, CONFIG).decode(encoded)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_encoded_and_decoded() {
        for (text, encoded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("ä🚀?>", "w6Twn5qAPz4=")]
        {
            assert_eq!(encode(text), encoded);
            for written in [encoded, encoded.trim_end_matches('='), &encoded.replace('/', "_").replace('+', "-")] {
                assert_eq!(decode(written).unwrap(), text, "{written}");
            }
        }
        assert_eq!(decode("Zm\n9v\r\n YmFy\n").unwrap(), "foobar");
        for (bad, says) in [("Zg=x", "not base64"), ("%", "not base64"), ("Z", "not base64"), ("/w==", "not UTF-8")] {
            assert!(decode(bad).unwrap_err().to_string().contains(says), "{bad}");
        }
    }
}
