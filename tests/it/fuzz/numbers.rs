//! The library that the properties are checked with writes exponents its own way: `1e23` as `1e+23`. The gateway keeps what was written.

use serde_json::{Map, Value};

/// `object` with its exponents as the library writes them.
pub(super) fn as_the_library_writes(object: &Map<String, Value>) -> Value {
    let text = serde_json::to_vec(object).expect("it can be written");
    serde_json::from_slice(&text).expect("it can be read again")
}
