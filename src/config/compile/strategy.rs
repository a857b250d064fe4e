//! `strategy` and `mode`: what becomes of requests that a limit does not admit.

use super::parsed_key::ParsedKey;
use super::server::{SOME_TIME, secs};
use crate::config::file::Section;
use crate::limit::{Mode, Strategy};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StrategyKind {
    Reject,
    Queue,
    Degrade,
}

const KINDS: [(&str, StrategyKind); 3] = [
    ("reject", StrategyKind::Reject),
    ("queue", StrategyKind::Queue),
    ("degrade", StrategyKind::Degrade),
];

pub(super) const MODES: [(&str, Mode); 2] = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow)];

pub(super) fn strategy(section: &mut Section<'_>) -> (Strategy, Mode) {
    let kind = ParsedKey::of(section.get("strategy"), |it| it.choice(&KINDS));
    let max_wait = ParsedKey::of(section.get("max_wait"), |it| it.duration(SOME_TIME));
    let max_queue = ParsedKey::of(section.get("max_queue"), |it| it.integer(1..=1_000_000));
    let mode = ParsedKey::of(section.get("mode"), |it| it.choice(&MODES));
    if kind.or(StrategyKind::Reject).is_some_and(|it| it != StrategyKind::Queue) {
        let why = "only the strategy `queue` lets requests wait";
        let help = "remove it, or write `strategy = \"queue\"`";
        max_wait.warn_without_effect(why, help);
        max_queue.warn_without_effect(why, help);
    }
    if mode.it == Some(Mode::Shadow) && kind.it.is_some_and(|it| it != StrategyKind::Reject) {
        kind.warn_without_effect(
            "a limit in the mode `shadow` only counts",
            "remove it, or write `mode = \"enforce\"`",
        );
    }
    let strategy = match kind.it.unwrap_or(StrategyKind::Reject) {
        StrategyKind::Reject => Strategy::Reject,
        StrategyKind::Queue => Strategy::Queue {
            max_wait: max_wait.it.unwrap_or(secs(3)),
            max_queue: max_queue.it.unwrap_or(100) as usize,
        },
        StrategyKind::Degrade => Strategy::Degrade,
    };
    (strategy, mode.it.unwrap_or_default())
}
