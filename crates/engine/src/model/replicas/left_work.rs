//! Refreshes that an ended replica has left.

use super::*;
use crate::replication::refreshes::{LeftRefresh, SeenNotes};

/// One replica takes a refresh. If it does not say that it is made, as one that is killed, another one takes it over.
#[test]
fn a_left_refresh_is_taken_over_from_a_replica_that_is_gone() {
    Replicas::play(3, async |replicas: Replicas| {
        let mut seen = [SeenNotes::new(), SeenNotes::new()];
        let mut takes = async |replica: usize| {
            let left = replicas.all[replica].left_refreshes(&mut seen[replica - 1]).await;
            let mut left: Vec<_> = left.into_iter().map(|LeftRefresh { name, receipt }| (name, receipt)).collect();
            left.sort();
            left
        };
        let names = |left: &[(Arc<str>, String)]| left.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
        assert!(replicas.all[0].leave_refreshes(&["a".into(), "b".into()]).await);
        let first = takes(1).await;
        assert_eq!(names(&first), ["a", "b"]);
        assert_eq!((takes(2).await.len(), takes(1).await.len()), (0, 0));
        // It makes the first one, and is killed.
        replicas.all[1].note_refreshed(&first[0].1).await;
        replicas.pass(50).await;
        assert_eq!(takes(2).await.len(), 0, "the first one still has it");
        replicas.pass(20).await;
        let second = takes(2).await;
        assert_eq!(names(&second), ["b"]);
        replicas.all[2].note_refreshed(&second[0].1).await;
        for _ in 0..3 {
            replicas.pass(70).await;
            assert_eq!((takes(1).await.len(), takes(2).await.len()), (0, 0), "all are made");
        }
        // A later request is another one.
        assert!(replicas.all[0].leave_refreshes(&["a".into()]).await);
        assert_eq!(names(&takes(2).await), ["a"]);
    });
}

/// A delivery that was taken may come again if its replica is gone before the work is done, and counts as seen afterwards.
#[test]
fn a_delivery_counts_as_seen_when_its_work_is_done() {
    const TAKEN_FOR: Duration = Duration::from_mins(2);
    const SEEN_FOR: Duration = Duration::from_hours(24);
    Replicas::play(3, async |replicas: Replicas| {
        let is_first = async |replica: usize| replicas.all[replica].is_first("delivery:github:1", TAKEN_FOR).await;
        assert_eq!((is_first(0).await, is_first(1).await), (true, false));
        // The first replica is killed.
        replicas.pass(121).await;
        assert_eq!((is_first(1).await, is_first(2).await), (true, false));
        assert!(replicas.all[1].note_done("delivery:github:1", SEEN_FOR).await);
        for _ in 0..3 {
            replicas.pass(121).await;
            assert!(!is_first(2).await);
        }
    });
}
