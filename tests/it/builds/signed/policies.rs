//! Which commit an image is of: each `revision.policy` with each label and each proof.

use serde_json::{Value, json};

use super::{
    super::fake::{Fake, Image, sha},
    ask, evidence, folder, signed, start,
};
use crate::support::signing::{BUNDLE, Key};

/// The commit of the answer about `a`, or `nothing`, if the label names `label` and the proof `proven`; and the evidence.
async fn served(policy: &str, label: Option<char>, proven: char, provenance: Value) -> (String, String) {
    let (fake, key) = (Fake::start().await, Key::new());
    let image = Image { revision: label.map(sha).unwrap_or_default() };
    fake.push("feat-1", &image);
    fake.attach(&image.digest(), BUNDLE, &key.provenance(image.digest().as_str(), &sha(proven)));
    let mut backend = signed(&fake, Some(provenance));
    backend["revision"]["policy"] = policy.into();
    let app = start(folder(&key), &fake, &backend).await;
    let sets: Value = serde_json::from_str(&ask(&app, 'a').await.sets()).unwrap();
    let commit = match &sets.as_array().unwrap()[..] {
        [] => "nothing".to_owned(),
        [set] => {
            assert_eq!(set["digest"], image.digest().as_str(), "{set}");
            set["revision"].as_str().unwrap().to_owned()
        }
        more => panic!("{more:?}"),
    };
    (commit, evidence(&app).await)
}

/// `a` is asked about.
#[tokio::test]
async fn the_proof_takes_the_place_of_the_label() {
    for policy in ["require", "prefer", "ignore"] {
        let is_compared = policy != "ignore";
        for (label, proven, expected, says) in [
            (None, 'a', Some('a'), "by its signed provenance; it has no label"),
            (Some('a'), 'a', Some('a'), "by its signed provenance; its label agrees"),
            (Some('e'), 'a', None, "one of them is wrong"),
            (
                None,
                'e',
                Some('e').filter(|_| !is_compared),
                if is_compared { "its provenance names" } else { "no label" },
            ),
            (Some('a'), 'e', None, if is_compared { "its provenance names" } else { "one of them is wrong" }),
            (Some('e'), 'e', Some('e').filter(|_| !is_compared), "eeee"),
        ] {
            let (commit, said) = served(policy, label, proven, json!({})).await;
            let expected = expected.map_or("nothing".to_owned(), sha);
            assert!(commit == expected && said.contains(says), "{policy}, {label:?}, {proven}: {commit}: {said}");
            let is_refused = said.contains("\"refused\"");
            assert_eq!(is_refused, says.contains("wrong"), "{policy}, {label:?}, {proven}: {said}");
        }
    }
    // The provenance itself names the commit, whatever the policy for labels is.
    let provenance = || json!({"commit": "{{ params.head_sha }}"});
    assert_eq!(served("ignore", None, 'e', provenance()).await.0, "nothing");
    assert_eq!(served("ignore", None, 'a', provenance()).await.0, sha('a'));
}
