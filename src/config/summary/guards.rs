//! What guards say: a row each.

use super::limits::condition;
use super::lines;
use crate::config::settings::Settings;
use crate::config::units::show_duration;
use crate::limit::guard::Guard;
use crate::limit::{Mode, OnError};

pub(super) fn guards(settings: &Settings) -> String {
    let rows: Vec<Vec<String>> = settings.guards.iter().map(row).collect();
    let mut text = String::new();
    for (guard, line) in settings.guards.iter().zip(lines(&rows)) {
        text.extend([line.as_str(), "\n"]);
        if !guard.when.is_empty() {
            let conditions: Vec<String> = guard.when.iter().map(condition).collect();
            text.extend(["    when ", &conditions.join(", "), "\n"]);
        }
    }
    text
}

fn row(guard: &Guard) -> Vec<String> {
    let (warning, block) = (guard.penalty, guard.penalty * 2);
    let mode = if guard.mode == Mode::Shadow { "shadow" } else { "" };
    let on_error = match guard.on_error {
        OnError::Local => String::new(),
        other => format!("on_error {}", other.name()),
    };
    vec![
        guard.name.clone(),
        format!("by {}", guard.key),
        format!("more than {} in {}", guard.threshold, show_duration(guard.window)),
        format!("warned for {}, blocked for {}", show_duration(warning), show_duration(block)),
        [mode, &on_error].join(" ").trim().to_owned(),
    ]
}
