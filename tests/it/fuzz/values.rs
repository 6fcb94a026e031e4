//! A parameter's value, such as the branch of a hostile pull request. It is data in every context.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use backend::request::{Method, Parts, Request};
use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};
use futures_util::FutureExt as _;
use http::Uri;
use lang::{
    evaluator::Context,
    scope::NameScope,
    template::{Template, ValueContext},
};
use minijinja::{Value, context};
use oci::Reference;
use percent_encoding::percent_decode_str;
use regex::Regex;
use tokio::time::Instant;
use url::Url;

/// In a URL, a value is one segment or one value of the query, and part of a host only as `allowedHosts` permits. In a
/// reference, it changes neither the registry nor the repository. A tag and a slug contain only their own characters.
pub(super) fn parameter_value(data: &[u8]) {
    let Ok(value) = str::from_utf8(data) else { return };
    let context = context! { params => context! { value } };
    in_a_path(value, &context);
    in_a_host(&context);
    in_a_reference(value, &context);
    as_a_name(&context);
}

fn in_a_path(value: &str, context: &Value) {
    static PATH: LazyLock<Request> = LazyLock::new(|| {
        request("https://api.example.com/v1/{{ params.value }}/items?q={{ params.value }}&x={{ params.value }}", &[])
    });
    let Some(url) = ask(&PATH, context) else { return };
    assert_eq!(url.origin().ascii_serialization(), "https://api.example.com", "{value:?}");
    let segments: Vec<&str> = url.path_segments().unwrap().collect();
    let [first, middle, last] = segments[..] else { panic!("{value:?} makes the path {}", url.path()) };
    assert_eq!((first, last), ("v1", "items"), "{value:?}");
    assert_eq!(percent_decode_str(middle).decode_utf8().as_deref(), Ok(value));
    let query: Vec<_> = url.query_pairs().collect();
    assert_eq!(query, [("q".into(), value.into()), ("x".into(), value.into())], "{value:?}");
    assert_eq!(url.fragment(), None);
}

fn in_a_host(context: &Value) {
    static HOSTS: LazyLock<[Request; 2]> = LazyLock::new(|| {
        let allowed = ["*.clusters.example.com".to_owned(), "exact.example.com".to_owned()];
        ["https://{{ params.value }}/v1", "https://{{ params.value }}.clusters.example.com/v1"]
            .map(|url| request(url, &allowed))
    });
    for request in &*HOSTS {
        let Some(url) = ask(request, context) else { continue };
        // By another parser.
        let uri = Uri::try_from(url.as_str()).unwrap();
        let authority = uri.authority().unwrap().as_str();
        assert!(authority == "exact.example.com" || authority.ends_with(".clusters.example.com"), "{url}");
        assert!(!authority.contains(['@', ':']) && uri.path() == "/v1" && uri.query().is_none(), "{url}");
    }
}

fn in_a_reference(value: &str, context: &Value) {
    static TEMPLATES: LazyLock<[Template; 3]> = LazyLock::new(|| {
        let sources = ["front:{{ params.value | tag }}", "front:{{ params.value }}", "{{ params.value }}/front:1"];
        sources.map(|rest| {
            Template::parse(&format!("registry.example.com/org/{rest}"), ValueContext::Reference, &NameScope::input())
                .unwrap()
        })
    });
    for (template, repository) in TEMPLATES.iter().zip(["org/front", "org/front", &format!("org/{value}/front")]) {
        let Some(reference) = template.render(context).ok().and_then(|text| Reference::parse(&text).ok()) else {
            continue;
        };
        let Reference { registry, repository: found, digest, .. } = &reference;
        assert_eq!((&**registry, &**found, digest), ("registry.example.com", repository, &None), "{value:?}");
    }
}

fn as_a_name(context: &Value) {
    static NAMES: LazyLock<[(Template, Regex); 6]> = LazyLock::new(|| {
        [
            ("tag", "^[a-zA-Z0-9._-]{1,128}$"),
            ("ref_slug", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"),
            // The library leaves the underscores of a few characters.
            ("slug", "^[a-z0-9][a-z0-9_]*(-[a-z0-9_]+)*$"),
            ("sha8", "^[0-9a-f]{8}$"),
            ("name", "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"),
            ("name(20)", "^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$"),
        ]
        .map(|(filter, pattern)| {
            let source = format!("{{{{ params.value | {filter} }}}}");
            (Template::parse(&source, ValueContext::Text, &NameScope::input()).unwrap(), Regex::new(pattern).unwrap())
        })
    });
    for (template, pattern) in &*NAMES {
        let Ok(name) = template.render(context) else { continue };
        assert!(pattern.is_match(&name), "{}: {name:?}", template.source());
        assert!(name.len() <= 128);
        if name.contains('_') && template.source().ends_with("| slug }}") {
            continue;
        }
        let again = template.render(&context! { params => context! { value => &*name } });
        assert_eq!(again.as_deref(), Ok(&*name), "{}", template.source());
    }
}

fn request(url: &str, allowed_hosts: &[String]) -> Request {
    let headers = BTreeMap::new();
    let parts =
        Parts { method: Method::Get, url, allowed_hosts, headers: &headers, body: None, scope: &NameScope::input() };
    Request::build(parts, &BaseDir::default(), &Path::root(), &mut Problems::default()).unwrap()
}

fn ask(request: &Request, context: &Value) -> Option<Url> {
    let call = request
        .call(&Context::here(context.clone()), 1024, Instant::now() + Duration::from_secs(1))
        .now_or_never()
        .unwrap();
    call.ok().map(|call| call.url)
}
