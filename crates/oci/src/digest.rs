//! Content digests: `sha256:` and 64 hexadecimal digits.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A digest in its canonical form, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Digest(String);

impl Digest {
    /// Reads `sha256:<64 lower-case hexadecimal digits>`.
    ///
    /// # Errors
    /// On anything else. Registries use no other algorithms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let hex = text.strip_prefix("sha256:").unwrap_or_default();
        let is_hex = hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if is_hex {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("`{}` is not a sha256 digest", text.chars().take(80).collect::<String>().escape_debug()))
        }
    }

    /// The digest of `content`.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        Self(format!("sha256:{}", base16ct::lower::encode_string(&Sha256::digest(content))))
    }

    /// `sha256:…`
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The 64 hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> &str {
        self.0.strip_prefix("sha256:").unwrap_or_default()
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_sha256_digests_are_accepted() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").as_str(), empty);
        assert_eq!(Digest::parse(empty).unwrap().hex().len(), 64);
        for bad in ["", "sha256:", "sha256:abc", &empty.to_uppercase(), &empty[..70], &format!("{empty}0")] {
            assert!(Digest::parse(bad).is_err(), "{bad}");
        }
    }
}
