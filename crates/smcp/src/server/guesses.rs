//! Delays the answers to wrong tokens, so that guessing takes time.
//!
//! Answers to one address wait for each other. Right tokens wait for nothing: who shares an address with a guesser is
//! not held up.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use budao_core::Timestamp;

/// Wrong tokens of one address that are answered at once: a person may mistype.
const FREE: u32 = 3;

/// Time without a wrong token after which an address starts anew.
const FORGET: Duration = Duration::from_secs(300);

/// Longest delay of an answer. Connections outside of the namespace live only a little longer.
const DELAY_MAX: Duration = Duration::from_secs(30);

/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 10_000;

/// The wrong tokens of each address.
#[derive(Debug, Default)]
pub(super) struct WrongTokens(BTreeMap<Option<IpAddr>, WrongTokenCount>);

#[derive(Debug)]
struct WrongTokenCount {
    count: u32,
    last: Timestamp,
    /// The time of the latest answer that has been promised.
    answered: Timestamp,
}

impl WrongTokens {
    /// Notes a wrong token and returns the delay of its answer. `pause` is the time between two answers.
    pub(super) fn delay(
        &mut self,
        address: Option<IpAddr>,
        now: Timestamp,
        pause: Duration,
    ) -> Duration {
        let address = address.map(network);
        if self.0.len() >= ADDRESSES_MAX && !self.0.contains_key(&address) {
            self.forget(now);
        }
        let fresh = WrongTokenCount { count: 0, last: now, answered: now };
        let seen = self.0.entry(address).or_insert(fresh);
        if now.since(seen.last) >= FORGET {
            seen.count = 0;
        }
        seen.count = seen.count.saturating_add(1);
        seen.last = now;
        if seen.count <= FREE {
            return Duration::ZERO;
        }
        let answered = seen.answered.max(now).after(pause).min(now.after(DELAY_MAX));
        seen.answered = answered;
        answered.since(now)
    }

    /// Makes room: forgets what is old, and everything if nothing is.
    fn forget(&mut self, now: Timestamp) {
        self.0.retain(|_, seen| now.since(seen.last) < FORGET);
        if self.0.len() >= ADDRESSES_MAX {
            self.0.clear();
        }
    }
}

/// The address for IPv4, the /64 network for IPv6: who has one address there has all of it.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(500);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::default().after(Duration::from_secs(1000 + seconds))
    }

    #[test]
    fn guesses_of_one_address_wait_for_each_other() {
        let mut tokens = WrongTokens::default();
        let (one, other) = ("10.0.0.1".parse().ok(), "10.0.0.2".parse().ok());
        for _ in 0..FREE {
            assert_eq!(tokens.delay(one, at(0), PAUSE), Duration::ZERO);
        }
        for number in 1..=5 {
            assert_eq!(tokens.delay(one, at(0), PAUSE), PAUSE * number);
        }
        assert_eq!(tokens.delay(other, at(0), PAUSE), Duration::ZERO, "another address");
        assert_eq!(tokens.delay(one, at(60), PAUSE), PAUSE, "nothing waits any more");
        for _ in 0..1000 {
            assert!(tokens.delay(one, at(61), PAUSE) <= DELAY_MAX);
        }
        assert_eq!(tokens.delay(one, at(900), PAUSE), Duration::ZERO, "forgotten");
    }

    #[test]
    fn a_guesser_with_a_whole_network_is_one_address_and_the_table_is_bounded() {
        let mut tokens = WrongTokens::default();
        for number in 0..=FREE {
            let address = format!("2001:db8::{number:x}").parse().ok();
            let delay = tokens.delay(address, at(0), PAUSE);
            assert_eq!(delay.is_zero(), number < FREE);
        }
        for number in 0..3 * ADDRESSES_MAX {
            let number = u32::try_from(number).expect("small");
            tokens.delay(Some(IpAddr::from(number.to_be_bytes())), at(1), PAUSE);
        }
        assert!(tokens.0.len() <= ADDRESSES_MAX);
    }
}
