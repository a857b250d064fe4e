use super::*;

#[test]
fn other_spellings_of_a_rate_are_understood_for_the_help() {
    for (written, expected) in [
        ("5 / minute", "5/minute"),
        ("5/ minute", "5/minute"),
        (" 5/second ", "5/second"),
        ("5/minutes", "5/minute"),
        ("5/Minute", "5/minute"),
        ("5/secnod", "5/second"),
        ("5/s", "5/second"),
        ("5/m", "5/minute"),
        ("5/h", "5/hour"),
        ("5/d", "5/day"),
        ("5/sec", "5/second"),
        ("5/min", "5/minute"),
        ("5/hr", "5/hour"),
        ("5/hrs", "5/hour"),
        ("5/ms", "5/1ms"),
        ("5/week", "5/7d"),
        ("5/weeks", "5/7d"),
        ("5/months", "5/30d"),
        ("5/year", "5/365d"),
        ("5/1.5s", "5/1500ms"),
        ("5/1.5h", "5/1h30m"),
        ("5/0.5m", "5/30s"),
        ("5/10 seconds", "5/10s"),
        ("5/10S", "5/10s"),
        ("5/2weeks", "5/14d"),
        ("1_000 per hour", "1_000/hour"),
        ("10r/s", "10/second"),
        ("10 r/m", "10/minute"),
        ("5req/s", "5/second"),
        ("0.5/second", "1/2s"),
        ("0.5r/s", "1/2s"),
        ("2.5/minute", "5/2m"),
        ("0.1/hour", "1/10h"),
        ("1.0/second", "1/second"),
    ] {
        assert_eq!(meant(written).as_deref(), Some(expected), "{written:?}");
    }
}

#[test]
fn what_is_suggested_is_never_another_fault() {
    for written in
        ["5", "5/", "/minute", "5/fortnight", "5/é", "0/min", "-5/min", "5/10", "5/1.23456s"]
    {
        assert_eq!(meant(written), None, "{written:?}");
    }
    for written in
        ["5/1.2.3s", "5/500d ", "5/2years", "1_/min", "5/./s", "5/0.0001s", "0.0/s", "0.12345678/s"]
    {
        assert_eq!(meant(written), None, "{written:?}");
    }
}
