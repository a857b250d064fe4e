//! What the log has said of something that fails, so that it is said once, and again when it comes to
//! hold for everybody.
//!
//! It is kept under the lock of what it tells of: else the last line of the log might not be what holds.

use tokio::time::Instant;

use super::failing_clients::FailingClients;
use crate::clock::millis;

#[derive(Debug, Default)]
pub(super) struct FailureLog {
    /// When it was last said, in milliseconds; and when last of a few clients.
    last: Option<u64>,
    last_for_few: Option<u64>,
    /// What the log says now.
    said: Option<Scope>,
}

/// One client can have something fail for itself, and answers to others end that, as often as it likes:
/// the log says so once a minute, in milliseconds.
const FEW_CLIENTS_INTERVAL: u64 = 60_000;

/// For whom something fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    FewClients,
    Everybody,
}

impl FailureLog {
    /// Whether the caller is to log that it has failed, for these clients: unless the log says so
    /// already, or did within `interval` milliseconds.
    pub(super) fn begin(&mut self, now: Instant, interval: u64, clients: &FailingClients) -> bool {
        let for_all = clients.are_everybody();
        let is_due = self.said.is_none()
            && is_older(self.last, now, interval)
            && (for_all || is_older(self.last_for_few, now, FEW_CLIENTS_INTERVAL));
        if is_due {
            self.say(now, if for_all { Scope::Everybody } else { Scope::FewClients });
        }
        is_due
    }

    /// The same for what holds for everybody, and is said again while it lasts, once in `interval`.
    pub(super) fn repeat(&mut self, now: Instant, interval: u64) -> bool {
        let is_due = self.said != Some(Scope::Everybody) || is_older(self.last, now, interval);
        if is_due {
            self.say(now, Scope::Everybody);
        }
        is_due
    }

    /// Whether the caller is to log that it has come to hold for everybody.
    pub(super) fn widen(&mut self, clients: &FailingClients) -> bool {
        let is_news = self.said == Some(Scope::FewClients) && clients.are_everybody();
        if is_news {
            self.said = Some(Scope::Everybody);
        }
        is_news
    }

    /// It is over. Whether the caller is to log that.
    pub(super) fn end(&mut self) -> bool {
        self.said.take().is_some()
    }

    fn say(&mut self, now: Instant, scope: Scope) {
        self.last = Some(millis(now));
        if scope == Scope::FewClients {
            self.last_for_few = self.last;
        }
        self.said = Some(scope);
    }
}

fn is_older(last: Option<u64>, now: Instant, interval: u64) -> bool {
    last.is_none_or(|last| millis(now).saturating_sub(last) > interval)
}

#[cfg(test)]
impl FailureLog {
    pub(super) fn has_said(&self) -> bool {
        self.said.is_some()
    }

    pub(super) fn has_said_for_few(&self) -> bool {
        self.said == Some(Scope::FewClients)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_is_said_once_until_it_is_over_and_then_once_in_each_interval() {
        let (mut log, start) = (FailureLog::default(), Instant::now());
        let clients = FailingClients::default();
        clients.note_everybody();
        let mut begin = |millis, ends| {
            let said = log.begin(start + Duration::from_millis(millis), 1000, &clients);
            (said, ends && log.end())
        };
        assert_eq!(begin(0, false), (true, false));
        assert_eq!(begin(5000, true), (false, true), "the log says so already");
        assert_eq!(begin(5001, true), (true, true));
        assert_eq!(begin(6001, true), (false, false), "too soon");
        assert_eq!(begin(6002, true), (true, true));
    }

    #[test]
    fn what_one_client_has_fail_is_said_once_a_minute_and_what_all_do_at_once() {
        let (mut log, start) = (FailureLog::default(), Instant::now());
        let clients = FailingClients::default();
        clients.note(IpAddr::from([192, 0, 2, 1]));
        let mut begin = |millis| {
            let said = log.begin(start + Duration::from_millis(millis), 1000, &clients);
            log.end();
            said
        };
        assert_eq!(
            [0, 2000, 30_000, 60_000, 60_001].map(&mut begin),
            [true, false, false, false, true]
        );
        clients.note_everybody();
        assert!(!begin(60_900) && begin(62_000));
    }

    #[test]
    fn what_lasts_is_said_again_once_in_each_interval() {
        let (mut log, start) = (FailureLog::default(), Instant::now());
        let mut repeat = |millis| log.repeat(start + Duration::from_millis(millis), 1000);
        assert_eq!([0, 500, 1000, 1001, 1002].map(&mut repeat), [true, false, false, true, false]);
        assert!(log.end() && log.repeat(start, 1000), "at once after its end");
    }

    #[test]
    fn what_comes_to_hold_for_everybody_is_said_again() {
        let (mut log, now) = (FailureLog::default(), Instant::now());
        let clients = FailingClients::default();
        clients.note(IpAddr::from([192, 0, 2, 1]));
        assert!(log.begin(now, 1000, &clients) && !log.widen(&clients));
        clients.note_everybody();
        assert!(log.widen(&clients) && !log.widen(&clients));
        assert!(log.end() && !log.widen(&clients));
    }
}
