//! A budget per address for failed attempts, and for reviews of unknown tokens. It slows down guessing and protects the log and the API server.
//! A token that is known to be good is accepted whatever others at its address do.

use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter, clock::Clock as _};

/// After how many spent units idle addresses are forgotten.
const SWEEP: u32 = 1024;
/// The prefix length of IPv6 addresses that count as one: a network gives one customer such a block.
const IPV6_PREFIX: u32 = 64;

/// The budget of each address.
#[derive(Debug)]
pub(crate) struct Budget {
    by_peer: DefaultKeyedRateLimiter<IpAddr>,
    count: AtomicU32,
}

impl Budget {
    /// Each address has `at_once` units, and gets `per_second` back.
    pub(crate) fn new(at_once: NonZeroU32, per_second: NonZeroU32) -> Self {
        let by_peer = RateLimiter::keyed(Quota::per_second(per_second).allow_burst(at_once));
        Self { by_peer, count: AtomicU32::new(0) }
    }

    /// Spends one unit of `peer`.
    ///
    /// # Errors
    /// When it has none left: the time until it has.
    pub(crate) fn spend(&self, peer: IpAddr) -> Result<(), Duration> {
        if self.count.fetch_add(1, Ordering::Relaxed) % SWEEP == SWEEP - 1 {
            self.by_peer.retain_recent();
        }
        self.by_peer.check_key(&address_group(peer)).map_err(|not| not.wait_time_from(self.by_peer.clock().now()))
    }
}

/// The address or prefix that counts as one.
pub(crate) fn address_group(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - IPV6_PREFIX))).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(at_once: u32) -> Budget {
        Budget::new(NonZeroU32::new(at_once).unwrap(), NonZeroU32::MIN)
    }

    #[test]
    fn an_exhausted_budget_affects_one_address_only() {
        let budget = budget(100);
        let [one, same, other]: [IpAddr; 3] =
            ["2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:3::1"].map(|ip| ip.parse().unwrap());
        for _ in 0..100 {
            assert_eq!(budget.spend(one), Ok(()));
        }
        assert!(budget.spend(same).is_err_and(|wait| wait <= Duration::from_secs(1)));
        assert_eq!(budget.spend(other), Ok(()));
        assert_eq!(address_group("::ffff:10.0.0.1".parse().unwrap()), "10.0.0.1".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn addresses_that_did_nothing_of_late_are_forgotten() {
        let budget = budget(1000);
        for n in 0..4 * SWEEP {
            budget.spend(IpAddr::from((0x0a00_0000_u32 + n).to_be_bytes())).unwrap();
        }
        assert!(budget.by_peer.len() <= 4 * SWEEP as usize);
    }
}
