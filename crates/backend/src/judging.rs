//! The replies that an expression may judge: the `verdict` of an `http` gate, and `absent` of an `http` backend. A reply with one of the
//! statuses in [`NEVER`], and each 5xx, is about the caller or the server, never about the thing that was asked for. An expression does not see it.

use domain::error::BackendError;
use outbound::Reply;

/// The 4xx that are never about the thing that was asked for: a missing credential or right, a proxy, a timeout, a rate limit.
const NEVER: [u16; 5] = [401, 403, 407, 408, 429];

/// Whether an expression can see a reply with `status`.
pub(crate) fn is_judged(status: i64) -> bool {
    matches!(status, 200 | 201 | 400..=499) && !NEVER.iter().any(|never| i64::from(*never) == status)
}

/// Checks that an expression may judge `reply`. A proxy sends 404 too, so a 4xx counts only if the expression `looks_at_status`.
///
/// # Errors
/// When it may not: the meaning of the reply.
pub(crate) fn check_status(reply: &Reply, looks_at_status: bool) -> Result<(), BackendError> {
    match reply.status.as_u16() {
        200..=299 => reply.check_whole(),
        status if looks_at_status && is_judged(status.into()) => Ok(()),
        _ => Err(reply.refusal()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::*;
    use domain::secret::Secrets;

    #[test]
    fn only_a_4xx_about_the_thing_itself_is_judged() {
        let judged = |status: u16, looks_at_status| {
            let reply = Reply {
                status: StatusCode::from_u16(status).unwrap(),
                headers: HeaderMap::new(),
                body: Bytes::new(),
                secrets: Secrets::default(),
                retry_after: None,
                attempts: 1,
            };
            check_status(&reply, looks_at_status).is_ok()
        };
        let all = |looks_at_status| (200..600).filter(|status| judged(*status, looks_at_status)).collect::<Vec<u16>>();
        assert_eq!(all(false), [200, 201]);
        let mut expected: Vec<u16> = (400..500).filter(|status| !NEVER.contains(status)).collect();
        expected.splice(..0, [200, 201]);
        assert_eq!(all(true), expected);
        assert!(all(true).iter().all(|status| is_judged((*status).into())));
        assert_eq!((0..1000).filter(|status| is_judged(*status)).count(), expected.len());
    }
}
