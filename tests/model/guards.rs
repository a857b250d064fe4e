//! Guards: Lua adds up what gateways report as Rust counts it, step by step, and notices what it
//! notices.

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::guard::{GuardNumbers, GuardStage, GuardState};
use weir::store::redis::script::{GUARD, Script};

use crate::lua::Redis;
use crate::strategies::cases;

/// A request or several, some time after those before.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// In 2^-8 of a window.
    gap: u64,
    requests: u64,
    event: Event,
}

/// What comes before the requests.
#[derive(Debug, Clone, Copy)]
enum Event {
    None,
    /// An operator lifts penalties.
    Lift,
    /// The clock is set back by that many gaps of the largest kind.
    SetBack(u64),
    /// The guard is given a window, in eighths of the first one, and a penalty likewise.
    Change(u64, u64),
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => Just(Event::None),
        1 => Just(Event::Lift),
        1 => (0..5_000_u64).prop_map(Event::SetBack),
        1 => (1..20_u64, 1..20_u64).prop_map(|(window, penalty)| Event::Change(window, penalty)),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![4 => Just(0), 4 => 0..100_u64, 2 => 0..600_u64, 1 => 0..5_000_u64];
    let step = (gap, 0..6_u64, events());
    let step = step.prop_map(|(gap, requests, event)| Step { gap, requests, event });
    prop::collection::vec(step, 1..60)
}

fn numbers() -> impl Strategy<Value = GuardNumbers> {
    (1_000_000..100_000_000_u64, 1..8_u64, 1_000_000..1_000_000_000_u64).prop_map(
        |(window_us, threshold, penalty_us)| GuardNumbers { window_us, threshold, penalty_us },
    )
}

/// The script with its time from further arguments.
fn timed_script() -> Script {
    let text = GUARD.text();
    assert_eq!(text.matches("redis.call('TIME')").count(), 1);
    let text = text.replace("redis.call('TIME')", "{ ARGV[2], ARGV[3] }");
    Script::new(text.replace("local MARGIN = 1000\n", "local MARGIN = 1000000000000000\n"))
}

/// One report of a gateway that has noticed `known` by itself.
fn report(
    redis: &Redis,
    script: &Script,
    numbers: GuardNumbers,
    now: Micros,
    window_end: Micros,
    requests: u64,
    known: GuardState,
) -> (GuardState, bool) {
    let mut argument = Vec::new();
    rmp::encode::write_array_len(&mut argument, 1).expect("memory");
    rmp::encode::write_array_len(&mut argument, 10).expect("memory");
    let GuardNumbers { window_us, threshold, penalty_us } = numbers;
    let stage = known.stage as u64;
    for number in [
        window_us,
        threshold,
        penalty_us,
        requests,
        window_end.0,
        stage,
        known.until.0,
        known.offence.0,
        known.offence_count,
        known.lifted.0,
    ] {
        rmp::encode::write_uint(&mut argument, number).expect("memory");
    }
    let mut call = redis::cmd("EVAL");
    call.arg(script.text()).arg(1).arg("guard").arg(argument);
    call.arg(now.0 / 1_000_000).arg(now.0 % 1_000_000);
    let reply: Vec<u64> = redis.ask(&call);
    let [time, window_end, count, stage, until, offence, offence_count, lifted, changed] =
        reply[..]
    else {
        panic!("nine numbers, not {reply:?}")
    };
    assert_eq!(time, now.0);
    let stage = GuardStage::of_number(stage).expect("a stage");
    let [window_end, until, offence, lifted] = [window_end, until, offence, lifted].map(Micros);
    (GuardState { window_end, count, stage, until, offence, offence_count, lifted }, changed == 1)
}

#[test]
fn lua_counts_as_rust_does_step_by_step() {
    let (redis, script) = (Redis::start(), timed_script());
    proptest!(cases(150), |(numbers in numbers(), steps in steps())| {
        redis.ask::<()>(&redis::cmd("FLUSHDB"));
        let (mut state, mut now) = (GuardState::default(), Micros(1_700_000_000_000_000));
        let first = numbers;
        let mut numbers = numbers;
        for Step { gap, requests, event } in steps {
            now = Micros(now.0 + gap * numbers.window_us / 256);
            match event {
                Event::SetBack(gap) => now = Micros(now.0 - gap * numbers.window_us / 256),
                Event::Change(window, penalty) => {
                    numbers.window_us = first.window_us * window / 8;
                    numbers.penalty_us = first.penalty_us * penalty / 8;
                }
                Event::Lift | Event::None => {}
            }
            let before = numbers.at(state, now);
            let lifted = if matches!(event, Event::Lift) { now } else { Micros(0) };
            state = numbers.count(numbers.lift(before, lifted), now, requests);
            let known = GuardState { lifted, ..GuardState::default() };
            let (heard, changed) =
                report(&redis, &script, numbers, now, before.window_end, requests, known);
            prop_assert_eq!(heard, state);
            prop_assert_eq!(changed, state.stage != before.stage);
        }
    });
}

/// Two gateways that count for themselves, report after each step and hear of each other's penalties
/// notice what one that sees everything does.
#[test]
fn gateways_that_report_notice_what_one_that_sees_everything_does() {
    let (redis, script) = (Redis::start(), timed_script());
    let choices = prop::collection::vec(any::<bool>(), 60);
    proptest!(cases(150), |(
        numbers in numbers(), steps in steps(), choices in choices,
    )| {
        redis.ask::<()>(&redis::cmd("FLUSHDB"));
        let mut gateways = [GuardState::default(); 2];
        let (mut all, mut now) = (GuardState::default(), Micros(1_700_000_000_000_000));
        for (Step { gap, requests, .. }, choice) in steps.into_iter().zip(choices) {
            now = Micros(now.0 + gap * numbers.window_us / 256);
            all = numbers.count(all, now, requests);
            let here = &mut gateways[usize::from(choice)];
            *here = numbers.count(*here, now, requests);
            let window_end = numbers.window_end(now);
            let (heard, _) = report(&redis, &script, numbers, now, window_end, requests, *here);
            prop_assert_eq!((heard.stage, heard.until), (all.stage, all.until));
            prop_assert_eq!(heard.offence_count, all.offence_count);
            for gateway in &mut gateways {
                let merged = numbers.merge(*gateway, heard, now);
                prop_assert_eq!(merged.stage, all.stage);
                prop_assert_eq!(merged.offence_count, all.offence_count);
                *gateway = GuardState { count: merged.count.max(heard.count), ..merged };
            }
        }
    });
}
