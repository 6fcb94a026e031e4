//! Compares the total that an API names with the number of items that were read.

use http::HeaderMap;

use domain::error::BackendError;

/// The total in the header `name`; `None` without that header.
///
/// # Errors
/// When the header is not a number.
pub(crate) fn in_header(headers: &HeaderMap, name: &str) -> Result<Option<u64>, BackendError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let total = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    let wrong = || {
        BackendError::invalid_output(format!(
            "its `{name}` is not a number, so it is not known whether the list is whole"
        ))
    };
    total.map(Some).ok_or_else(wrong)
}

/// Checks that a list is complete. `totals` are the totals that its pages name, and `read` is the number of items that were read.
///
/// # Errors
/// When the totals differ from each other or from `read`.
pub(crate) fn check(totals: &[u64], read: usize) -> Result<(), BackendError> {
    let Some(total) = totals.first() else { return Ok(()) };
    if totals.iter().any(|other| other != total) {
        let why =
            "the list changed while its pages were read, so something may be missing; the next call reads it again";
        return Err(BackendError::invalid_output(why));
    }
    if usize::try_from(*total) != Ok(read) {
        let why = "it counts another number of things than its pages hold, so it is not whole";
        return Err(BackendError::invalid_output(why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_list_is_whole_when_all_totals_are_what_was_read() {
        for (totals, read, is_whole) in [
            (&[][..], 7, true),
            (&[0], 0, true),
            (&[7, 7], 7, true),
            (&[7], 6, false),
            (&[7], 8, false),
            (&[6, 7], 7, false),
            (&[7, 6], 7, false),
            (&[u64::MAX], 7, false),
        ] {
            assert_eq!(check(totals, read).is_ok(), is_whole, "{totals:?}, {read}");
        }
    }

    #[test]
    fn a_header_that_is_not_a_number_is_an_error() {
        for (text, total) in
            [("7", Some(7)), (" 0 ", Some(0)), ("", None), ("-1", None), ("many", None), ("7, 8", None)]
        {
            let mut headers = HeaderMap::new();
            headers.insert("x-total", HeaderValue::from_static(text));
            assert_eq!(in_header(&headers, "x-total").ok(), total.map(Some), "{text}");
        }
        assert_eq!(in_header(&HeaderMap::new(), "x-total").ok(), Some(None));
    }
}
