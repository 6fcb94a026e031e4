//! Cached lookups are not repeated, and one request serves all callers who wait.

use std::sync::Mutex;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::*;
use crate::support::upstream::Step;

fn patience(max_age: u64) -> Patience {
    Patience { deadline: deadline(), max_age: Duration::from_secs(max_age), joins: true }
}

/// A slow registry.
async fn slow(pause: Duration) -> Upstream {
    Upstream::start(move |request| {
        let Step::Send(bytes) = found(request).remove(0) else { unreachable!() };
        // One pause before the first byte.
        vec![Step::Drip(bytes[..1].to_vec(), pause), Step::Send(bytes[1..].to_vec())]
    })
    .await
}

#[tokio::test]
async fn concurrent_lookups_of_a_tag_share_one_request() {
    let registry = slow(Duration::from_millis(200)).await;
    let registries = registries(&plain(&registry.address));
    let reference = format!("{}/org/app:1", registry.address);
    for found in join_all((0..20).map(|_| look_up(&registries, &reference))).await {
        assert_eq!(expect_digest(found), manifest_digest());
    }
    assert_eq!(registry.requests().len(), 1);
}

#[tokio::test]
async fn a_short_deadline_ends_only_its_own_wait() {
    let registry = slow(Duration::from_millis(400)).await;
    let registries = registries(&plain(&registry.address));
    let reference = Reference::parse(&format!("{}/org/app:1", registry.address)).unwrap();
    let ask = |millis: u64| {
        let deadline = Instant::now() + Duration::from_millis(millis);
        registries.look_up(&reference, Patience { deadline, max_age: Duration::ZERO, joins: true })
    };
    // The first caller has less time than the registry needs, the second has enough.
    let (hasty, patient) = tokio::join!(ask(150), ask(3000));
    refused(hasty, ErrorKind::Timeout, &registry.address.to_string());
    assert_eq!(expect_digest(patient), manifest_digest());
    // The first caller has enough time, the second joins it and is cancelled.
    let (patient, hasty) = tokio::join!(ask(3000), timeout(Duration::from_millis(300), ask(150)));
    assert_eq!(expect_digest(patient), manifest_digest());
    refused(hasty.expect("it waits beyond its deadline"), ErrorKind::Timeout, "registry ");
}

#[tokio::test]
async fn a_tag_is_cached_for_the_callers_max_age() {
    let registry = Upstream::start(found).await;
    let (registries, clock) = build(Path::new("/nonexistent"), &plain(&registry.address));
    let reference = Reference::parse(&format!("{}/org/app:1", registry.address)).unwrap();
    let mut requests = 0;
    for (wait, max_age, is_asked) in
        [(0, 60, true), (0, 60, false), (59, 60, false), (0, 30, true), (29, 30, false), (0, 0, true), (60, 60, true)]
    {
        clock.advance(Duration::from_secs(wait));
        expect_digest(registries.look_up(&reference, patience(max_age)).await);
        requests += usize::from(is_asked);
        assert_eq!(registry.requests().len(), requests, "{wait} {max_age}");
    }
    registries.forget_tags();
    expect_digest(registries.look_up(&reference, patience(60)).await);
    assert_eq!(registry.requests().len(), requests + 1);
}

#[tokio::test]
async fn a_low_rate_limit_extends_tag_caching_and_skips_contents() {
    for (limits, is_low) in [
        ("RateLimit-Limit: 100;w=21600\r\nRateLimit-Remaining: 9;w=21600", true),
        ("RateLimit-Limit: 100;w=21600\r\nRateLimit-Remaining: 50;w=21600", false),
        ("X: y", false),
    ] {
        let headers = format!("{OCI}\r\nDocker-Content-Digest: {}\r\n{limits}", manifest_digest());
        let registry = Upstream::start(move |request| request.answer(200, &headers, MANIFEST)).await;
        let (registries, clock) = build(Path::new("/nonexistent"), &plain(&registry.address));
        let reference = Reference::parse(&format!("{}/org/app:1", registry.address)).unwrap();
        expect_digest(registries.look_up(&reference, patience(60)).await);
        clock.advance(Duration::from_secs(239));
        expect_digest(registries.look_up(&reference, patience(60)).await);
        assert_eq!(registry.requests().len(), if is_low { 1 } else { 2 }, "{limits}");
        let contents = registries.contents(&reference.registry, "org/app", &manifest_digest(), deadline()).await;
        if is_low {
            refused(contents, ErrorKind::Throttled { retry_after: None }, "little is left");
        } else {
            contents.unwrap();
        }
        // Not forever, and not for callers who want a current answer.
        for max_age in [0, 59] {
            let before = registry.requests().len();
            clock.advance(Duration::from_secs(if max_age == 0 { 0 } else { 240 }));
            expect_digest(registries.look_up(&reference, patience(max_age)).await);
            assert_eq!(registry.requests().len(), before + 1, "{limits} {max_age}");
        }
    }
}

/// Proof that a tag is missing takes a `GET`, which would use up the remaining rate limit.
#[tokio::test]
async fn a_low_rate_limit_prevents_proof_of_a_missing_tag() {
    let body = r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#;
    for (left, confirm, is_proven) in [(9, "get", false), (50, "get", true), (9, "head", true)] {
        let headers = format!(
            "{JSON}\r\nDocker-Distribution-Api-Version: registry/2.0\r\nRateLimit-Limit: 100;w=21600\r\n\
             RateLimit-Remaining: {left};w=21600"
        );
        let registry = Upstream::start(move |request| request.answer(404, &headers, body)).await;
        let entry = json!({"plainHttp": true, "confirm404": confirm});
        let (registries, clock) = build(Path::new("/nonexistent"), &json!({registry.address.to_string(): entry}));
        let reference = format!("{}/org/app:1", registry.address);
        let found = look_up(&registries, &reference).await;
        if is_proven {
            assert_eq!(missing(found), Missing::Tag);
        } else {
            refused(found, ErrorKind::Throttled { retry_after: None }, "only its `HEAD`s are accepted");
            assert_eq!(asked(&registry), ["HEAD /v2/org/app/manifests/1"]);
            // Once the registry's limit may have reset, a request reads the new limit.
            clock.advance(Duration::from_hours(6));
            refused(
                look_up(&registries, &reference).await,
                ErrorKind::Throttled { retry_after: None },
                "little is left",
            );
        }
    }
}

#[tokio::test]
async fn a_missing_tag_is_not_cached() {
    let body = r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#;
    let is_built = Arc::new(Mutex::new(false));
    let built = Arc::clone(&is_built);
    let registry =
        Upstream::start(
            move |request| {
                if *built.lock().unwrap() { found(request) } else { request.answer(404, JSON, body) }
            },
        )
        .await;
    let registries = registries(&plain(&registry.address));
    let reference = Reference::parse(&format!("{}/org/app:1", registry.address)).unwrap();
    assert_eq!(missing(registries.look_up(&reference, patience(60)).await), Missing::Tag);
    *is_built.lock().unwrap() = true;
    expect_digest(registries.look_up(&reference, patience(60)).await);
}

#[tokio::test]
async fn an_answer_from_before_the_tags_were_cleared_is_not_cached() {
    let registry = slow(Duration::from_millis(200)).await;
    let registries = registries(&plain(&registry.address));
    let reference = Reference::parse(&format!("{}/org/app:1", registry.address)).unwrap();
    let forget = async {
        sleep(Duration::from_millis(100)).await;
        registries.forget_tags();
    };
    let (before, ()) = tokio::join!(registries.look_up(&reference, patience(60)), forget);
    expect_digest(before);
    expect_digest(registries.look_up(&reference, patience(60)).await);
    assert_eq!(registry.requests().len(), 2);
}

/// Two judge at once what is beside images. Others wait, until their own deadline.
#[tokio::test(start_paused = true)]
async fn turns_to_judge_are_limited() {
    let registries = registries(&json!({}));
    let turns = [
        registries.verification_permit(deadline()).await.unwrap(),
        registries.verification_permit(deadline()).await.unwrap(),
    ];
    let late = registries.verification_permit(deadline()).await.unwrap_err();
    assert!(late.kind == ErrorKind::Timeout && late.message.contains("no time to verify"), "{late}");
    let next = registries.verification_permit(deadline());
    let give = async {
        tokio::task::yield_now().await;
        drop(turns);
    };
    assert!(tokio::join!(next, give).0.is_ok());
}
