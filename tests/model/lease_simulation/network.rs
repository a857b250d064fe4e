//! What goes wrong between gateways and Redis, and with both.

use super::Random;

/// One in so many, or zero for never; times in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Faults {
    /// A message takes up to this long each way.
    pub(crate) delay: u64,
    /// One message in so many takes up to a hundred times as long.
    pub(crate) slow: u64,
    pub(crate) lost: u64,
    /// At each tick of a gateway.
    pub(crate) crash: u64,
    pub(crate) stop: u64,
    pub(crate) partition: u64,
    /// By so much do the gateways' clocks run fast or slow, in millionths.
    pub(crate) drift: u64,
    /// Redis's clock is set back by up to a second, once in so many ticks.
    pub(crate) set_back: u64,
}

impl Faults {
    pub(crate) fn none() -> Self {
        Faults {
            delay: 300,
            slow: 0,
            lost: 0,
            crash: 0,
            stop: 0,
            partition: 0,
            drift: 0,
            set_back: 0,
        }
    }

    pub(crate) fn random(random: &mut Random) -> Self {
        let mut sometimes = |rate: u64| if random.below(2) == 0 { 0 } else { rate };
        let (slow, lost) = (sometimes(20), sometimes(30));
        let (crash, stop) = (sometimes(60), sometimes(40));
        let (partition, drift, set_back) = (sometimes(50), sometimes(500), sometimes(80));
        let delay = [100, 500, 3_000][random.below(3) as usize];
        Faults { delay, slow, lost, crash, stop, partition, drift, set_back }
    }

    /// The same with one kind of fault less.
    pub(crate) fn fewer(&self) -> Vec<Faults> {
        let all = [
            Faults { slow: 0, ..self.clone() },
            Faults { lost: 0, ..self.clone() },
            Faults { crash: 0, ..self.clone() },
            Faults { stop: 0, ..self.clone() },
            Faults { partition: 0, ..self.clone() },
            Faults { drift: 0, ..self.clone() },
            Faults { set_back: 0, ..self.clone() },
        ];
        all.into_iter().filter(|it| it != self).collect()
    }

    /// How long a message is on its way; `None` if it gets lost.
    pub(crate) fn way(&self, random: &mut Random) -> Option<u64> {
        if random.is_one_in(self.lost) {
            return None;
        }
        let most = if random.is_one_in(self.slow) { self.delay * 100 } else { self.delay };
        Some(1 + random.below(most))
    }
}
