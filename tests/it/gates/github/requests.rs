//! Which requests the gate spares, and with which token it sends the others.

use super::*;

#[tokio::test]
async fn unchanged_lists_are_revalidated_by_etag() {
    let forge = Forge::start().await;
    forge.change(|state| state.runs = vec![run(7, "build", HEAD, "in_progress")]);
    let gate = build_gate(&forge);
    for has_tag in [false, true] {
        is(ask(&gate).await, CiState::Pending);
        let requests = forge.requests();
        assert_eq!(
            requests.iter().map(|request| request.header("if-none-match").is_some()).collect::<Vec<_>>(),
            [has_tag]
        );
    }
    forge.change(|state| state.runs = vec![run(7, "build", HEAD, "completed success")]);
    is(ask(&gate).await, CiState::Passed);
}

#[tokio::test]
async fn a_token_is_read_at_each_use_and_never_shown() {
    let (forge, context) = (Forge::start().await, GateContext::new());
    context.write("token", "ghp_first\n");
    let gate = gate(&context, &forge, &json!({"workflows": ["build.yml"], "token": {"file": "token"}}));
    for token in ["ghp_first", "ghp_second"] {
        context.write("token", token);
        forge.change(|state| state.authorization = Some(format!("Bearer {token}")));
        is(ask(&gate).await, CiState::Pending);
    }
    forge.answer_first_with(|request| {
        let message = format!("{} is wrong", request.header("authorization").unwrap());
        Some(error(request, 403, &message))
    });
    let failure = unknown(ask(&gate).await, "denied", "[redacted] is wrong");
    assert!(!format!("{failure:?}").contains("ghp_"), "{failure:?}");
    std::fs::remove_file(context.folder.path().join("token")).unwrap();
    unknown(ask(&gate).await, "unavailable", "cannot read the secret file");
}

#[tokio::test]
async fn verdicts_are_cached_for_their_lifetime() {
    let (forge, context) = (Forge::start().await, GateContext::new());
    let gate = gate(&context, &forge, &json!({"workflows": ["build.yml"]}));
    let reuse = async || ask_with(&gate, json!({"head_sha": HEAD}), true).await.unwrap().state;
    for (words, lasts) in [("in_progress", 0), ("completed failure", 60), ("completed success", 600)] {
        forge.change(|state| state.runs = vec![run(7, "build", HEAD, words)]);
        gate.forget();
        reuse().await;
        assert_eq!(forge.asked().len(), 1, "{words}");
        for (age, expected) in [(lasts, 0), (1, 1)] {
            // Just before the lifetime ends, and after it.
            context.clock.advance(Duration::from_secs(age).saturating_sub(Duration::from_millis(1)));
            reuse().await;
            let expected = if lasts == 0 { 1 } else { expected };
            assert_eq!(forge.asked().len(), expected, "{words}");
        }
    }
    reuse().await;
    assert_eq!(forge.asked().len(), 0);
    is(ask(&gate).await, CiState::Passed);
    assert_eq!(forge.asked().len(), 1, "who may not reuse asks");
    gate.forget();
    assert_eq!((reuse().await, forge.asked().len()), (CiState::Passed, 1));
}

#[tokio::test]
async fn concurrent_equal_questions_share_one_request() {
    let forge = Forge::start().await;
    forge.change(|state| state.runs = vec![run(7, "build", HEAD, "in_progress")]);
    let gate = build_gate(&forge);
    let callers = (0..20).map(|_| ask_with(&gate, json!({"head_sha": HEAD}), true));
    for said in futures_util::future::join_all(callers).await {
        is(said, CiState::Pending);
    }
    assert_eq!(forge.asked().len(), 1);
}
