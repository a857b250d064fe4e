//! What limits say: a row each, and below it what is for people, for some callers, or tried out.

use std::time::Duration;

use http::StatusCode;

use super::lines;
use crate::config::compile::is_always_present;
use crate::config::settings::Settings;
use crate::config::units::{show_duration, show_rate};
use crate::limit::fixed_window::Windows;
use crate::limit::{
    Condition, Cost, CostSource, Limit, Missing, Mode, OnError, Outcomes, Policy, Strategy, What,
};

pub(super) fn limits(settings: &Settings) -> String {
    let on_error = settings.store.on_error;
    let rows: Vec<Vec<String>> = settings.limits.iter().map(|limit| row(limit, on_error)).collect();
    let mut text = String::new();
    for (limit, line) in settings.limits.iter().zip(lines(&rows)) {
        text.extend([line.as_str(), "\n"]);
        if let Some(description) = &limit.description {
            text.extend(["    ", description, "\n"]);
        }
        if !limit.when.is_empty() {
            let conditions: Vec<String> = limit.when.iter().map(condition).collect();
            text.extend(["    when ", &conditions.join(", "), "\n"]);
        }
        for (name, policy) in &limit.plans {
            let (rate, burst) = numbers(policy);
            let words = format!("    plan {name}: {rate} {burst}");
            text.extend([words.trim_end(), "\n"]);
        }
        if let Some(candidate) = &limit.candidate {
            let (rate, burst) = numbers(candidate);
            let words = ["    candidate:", candidate.algorithm(), &rate, &burst].join(" ");
            text.extend([words.trim_end(), "\n"]);
        }
    }
    text
}

pub(super) fn condition(condition: &Condition) -> String {
    let what = match &condition.what {
        What::Method => "method".to_owned(),
        What::Source(source) => source.to_string(),
    };
    let values: Vec<String> = condition.values.iter().map(ToString::to_string).collect();
    format!("{what} is {}", values.join(" or "))
}

fn row(limit: &Limit, on_error: OnError) -> Vec<String> {
    let (rate, burst) = numbers(&limit.policy);
    let missing = match limit.missing {
        _ if is_always_present(&limit.key) => "",
        Missing::Ip => "missing ip",
        Missing::Skip => "missing skip",
        Missing::Deny => "missing deny",
        Missing::Shared => "missing shared",
    };
    vec![
        limit.name.clone(),
        limit.key.to_string(),
        limit.policy.algorithm().to_owned(),
        rate,
        burst,
        match &limit.cost {
            Cost::Fixed(cost) => format!("cost {cost}"),
            Cost::Dynamic { max: Some(max), .. } => format!("cost up to {max}"),
            Cost::Dynamic { max: None, .. } => "cost up to all".to_owned(),
        },
        missing.to_owned(),
        remarks(limit, on_error).join("; "),
    ]
}

/// Whatever is not as usual. `on_error` is told only where it is not the store's.
fn remarks(limit: &Limit, on_error: OnError) -> Vec<String> {
    let mut remarks = Vec::new();
    if !limit.enabled {
        remarks.push("disabled".to_owned());
    }
    if limit.mode == Mode::Shadow {
        remarks.push("shadow".to_owned());
    }
    if limit.adaptive {
        remarks.push("adaptive".to_owned());
    }
    if let Cost::Dynamic { from, default, .. } = &limit.cost {
        remarks.push(format!("cost by {}, else {default}", source(from)));
    }
    if let Some(count) = &limit.count {
        remarks.push(format!("counts {}", outcomes(count)));
    }
    match &limit.strategy {
        Strategy::Reject => {}
        Strategy::Queue { max_wait, max_queue } => {
            let max_wait = show_duration(*max_wait);
            remarks.push(format!("queue up to {max_wait}, {max_queue} waiting"));
        }
        Strategy::Degrade => remarks.push("degrade".to_owned()),
    }
    if limit.refusal.status != StatusCode::TOO_MANY_REQUESTS {
        remarks.push(format!("status {}", limit.refusal.status.as_u16()));
    }
    if limit.on_error != on_error {
        remarks.push(format!("on error {}", limit.on_error.name()));
    }
    if !limit.response_headers {
        remarks.push("hidden".to_owned());
    }
    remarks
}

/// How often, and how much at once.
pub(super) fn numbers(policy: &Policy) -> (String, String) {
    match policy {
        Policy::TokenBucket(it) => (show_rate(it.rate()), format!("burst {}", it.burst())),
        Policy::LeakyBucket(it) => (show_rate(it.rate()), format!("burst {}", it.burst())),
        Policy::RefillBucket(it) => {
            let every = show_duration(Duration::from_micros(it.every_us()));
            (format!("{} every {every}", it.amount()), format!("burst {}", it.burst()))
        }
        Policy::SlidingWindow(it) => (show_rate(it.rate()), String::new()),
        Policy::SlidingLog(it) => (show_rate(it.rate()), String::new()),
        Policy::FixedWindow(it) => match it.windows() {
            Windows::Every(rate) => (show_rate(rate), String::new()),
            Windows::Calendar(calendar) => (format!("{}/{calendar}", it.count()), String::new()),
        },
        Policy::Concurrency(it) => (format!("{} at a time", it.limit()), String::new()),
    }
}

pub(super) fn source(from: &CostSource) -> String {
    match from {
        CostSource::Header(name) => format!("header:{name}"),
        CostSource::Query(name) => format!("query:{name}"),
        CostSource::Response(name) => format!("response:{name}"),
    }
}

fn outcomes(outcomes: &Outcomes) -> String {
    let shown = |(first, last): &(u16, u16)| {
        if first == last { first.to_string() } else { format!("{}xx", first / 100) }
    };
    outcomes.0.iter().map(shown).collect::<Vec<_>>().join(" ")
}
