//! Attempts that failed, by the address that they came from. Who guesses is slowed down and fills no log; whose token is good is let in
//! whatever others at the same address do.

use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter, clock::Clock as _};

/// How many attempts of an address may fail at once.
const AT_ONCE: NonZeroU32 = NonZeroU32::new(100).expect("it is not 0");
/// How many may then fail per second.
const PER_SECOND: NonZeroU32 = NonZeroU32::new(10).expect("it is not 0");
/// After how many failures addresses are forgotten that have done nothing for a while.
const SWEEP: u32 = 1024;
/// How much of an IPv6 address is one place: what a network gives to one customer.
const PLACE: u32 = 64;

/// Attempts that failed.
#[derive(Debug)]
pub struct Failures {
    by_peer: DefaultKeyedRateLimiter<IpAddr>,
    count: AtomicU32,
}

impl Default for Failures {
    fn default() -> Self {
        Self {
            by_peer: RateLimiter::keyed(Quota::per_second(PER_SECOND).allow_burst(AT_ONCE)),
            count: AtomicU32::new(0),
        }
    }
}

impl Failures {
    /// Notes one of `peer`. When that is too much: after what time it is not.
    pub fn note(&self, peer: IpAddr) -> Option<Duration> {
        if self.count.fetch_add(1, Ordering::Relaxed) % SWEEP == SWEEP - 1 {
            self.by_peer.retain_recent();
        }
        let too_much = self.by_peer.check_key(&place(peer)).err()?;
        Some(too_much.wait_time_from(self.by_peer.clock().now()))
    }
}

/// What counts as the same place.
fn place(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - PLACE))).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_too_often_waits_alone() {
        let failures = Failures::default();
        let [one, same, other]: [IpAddr; 3] =
            ["2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:3::1"].map(|ip| ip.parse().unwrap());
        for _ in 0..AT_ONCE.get() {
            assert_eq!(failures.note(one), None);
        }
        assert!(failures.note(same).is_some_and(|wait| wait <= Duration::from_secs(1)));
        assert_eq!(failures.note(other), None);
        assert_eq!(place("::ffff:10.0.0.1".parse().unwrap()), "10.0.0.1".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn addresses_that_did_nothing_of_late_are_forgotten() {
        let failures = Failures::default();
        for n in 0..4 * SWEEP {
            failures.note(IpAddr::from((0x0a00_0000_u32 + n).to_be_bytes()));
        }
        assert!(failures.by_peer.len() <= 4 * SWEEP as usize);
    }
}
