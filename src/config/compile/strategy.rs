//! `strategy` and `mode`: what becomes of requests that a limit does not admit.

use super::server::{SOME_TIME, secs};
use super::told::Told;
use crate::config::file::Section;
use crate::limit::{Mode, Strategy};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reject,
    Queue,
    Degrade,
}

const KINDS: [(&str, Kind); 3] =
    [("reject", Kind::Reject), ("queue", Kind::Queue), ("degrade", Kind::Degrade)];

const MODES: [(&str, Mode); 2] = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow)];

pub(super) fn strategy(section: &mut Section<'_>) -> (Strategy, Mode) {
    let kind = Told::of(section.get("strategy"), |it| it.choice(&KINDS));
    let max_wait = Told::of(section.get("max_wait"), |it| it.duration(SOME_TIME));
    let max_queue = Told::of(section.get("max_queue"), |it| it.integer(1..=1_000_000));
    let mode = Told::of(section.get("mode"), |it| it.choice(&MODES));
    if kind.or(Kind::Reject).is_some_and(|it| it != Kind::Queue) {
        let why = "only the strategy `queue` lets requests wait";
        let help = "remove it, or write `strategy = \"queue\"`";
        max_wait.without_effect(why, help);
        max_queue.without_effect(why, help);
    }
    if mode.it == Some(Mode::Shadow) && kind.it.is_some_and(|it| it != Kind::Reject) {
        kind.without_effect(
            "a limit in the mode `shadow` only counts",
            "remove it, or write `mode = \"enforce\"`",
        );
    }
    let strategy = match kind.it.unwrap_or(Kind::Reject) {
        Kind::Reject => Strategy::Reject,
        Kind::Queue => Strategy::Queue {
            max_wait: max_wait.it.unwrap_or(secs(3)),
            max_queue: max_queue.it.unwrap_or(100) as usize,
        },
        Kind::Degrade => Strategy::Degrade,
    };
    (strategy, mode.it.unwrap_or_default())
}
