//! `Link` headers: the next page of a list.

use std::collections::HashSet;

use backend::http::paging::{Paging, PagingConfig};
use domain::problem::{Path, Problems};
use http::{HeaderMap, HeaderValue, Uri, header, uri::Authority};
use lang::scope::NameScope;
use outbound::link;
use url::Url;

/// A next page is never lost among other links: it is found, or the header is unreadable. It is never on another host.
pub(super) fn link(data: &[u8]) {
    let next = |parts: &[&[u8]]| {
        let value = HeaderValue::from_bytes(&parts.concat()).ok()?;
        Some(link::next(&HeaderMap::from_iter([(header::LINK, value)])))
    };
    let Some(found) = next(&[data]) else { return };
    let real = "</items?page=2>; rel=\"next\"".as_bytes();
    let beside = next(&[real, b", ", data]).unwrap();
    assert!(beside.is_err() || beside == Ok(Some("/items?page=2".to_owned())), "what follows hides it: {beside:?}");
    assert_ne!(next(&[data, b", ", real]), Some(Ok(None)), "what comes before hides it");
    assert_ne!(next(&[data, b"\", ", real]), Some(Ok(None)), "what comes before hides it by a quote");
    let mut unescaped = data.to_ascii_lowercase();
    unescaped.retain(|byte| *byte != b'\\');
    let names_next = unescaped.windows(4).any(|word| word == b"next");
    let Ok(Some(target)) = found else { return };
    assert!(names_next, "a next page that nobody named: {target}");
    let here = Url::parse("https://api.example.com:8443/v1/items?page=1").unwrap();
    let config = PagingConfig { link: true, next: None, parameter: None, max_pages: 10 };
    let paging =
        Paging::build(&config, &NameScope::of(&["body", "headers"]), &Path::root(), &mut Problems::default()).unwrap();
    let Ok(next) = paging.next_url(&here, &target, &mut HashSet::new()) else { return };
    assert!(next.username().is_empty() && next.password().is_none(), "{next}");
    // By another parser.
    let uri = Uri::try_from(next.as_str()).unwrap();
    assert_eq!(uri.scheme_str(), Some("https"), "{next}");
    assert_eq!(uri.authority().map(Authority::as_str), Some("api.example.com:8443"), "{next}");
}
