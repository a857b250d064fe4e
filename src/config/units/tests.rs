use super::*;

#[test]
fn durations_are_counts_with_units() {
    assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
    assert_eq!(duration("1m30s"), Some(Duration::from_secs(90)));
    assert_eq!(duration("1d"), Some(Duration::from_secs(86_400)));
    assert_eq!(duration("0s"), Some(Duration::ZERO));
    for wrong in
        ["", "10", "s", "10 s", "-1s", "1.5s", "10S", "1s ", "99999999999999999999s", "_1s"]
    {
        assert_eq!(duration(wrong), None, "{wrong:?}");
    }
    assert_eq!(duration("9999999999999999d"), None, "overflow");
}

#[test]
fn sizes_are_counts_with_binary_units() {
    assert_eq!(size("512B"), Some(512));
    assert_eq!(size("64KiB"), Some(65_536));
    assert_eq!(size("10MiB"), Some(10 << 20));
    for wrong in ["", "10", "10KB", "10kib", "1.5MiB", "-1B", "99999999TiB"] {
        assert_eq!(size(wrong), None, "{wrong:?}");
    }
}

#[test]
fn rates_are_counts_a_period() {
    let written = |text| rate(text).map(show_rate);
    for same in ["1/second", "600/minute", "5/10s", "7/hour", "1000000/day", "3/250ms"] {
        assert_eq!(written(same), Ok(same.to_owned()));
    }
    assert_eq!(written("1_000/60s"), Ok("1000/minute".to_owned()));
    assert_eq!(written("5"), Err(RateParseError::Form));
    assert_eq!(written("five/second"), Err(RateParseError::Count));
    assert_eq!(written("-5/second"), Err(RateParseError::Count));
    assert_eq!(written("5/fortnight"), Err(RateParseError::Period));
    assert_eq!(written("0/second"), Err(RateParseError::Range(RateError::Count)));
    assert_eq!(written("5/0s"), Err(RateParseError::Range(RateError::Period)));
    assert_eq!(written("1000000000/1ms"), Err(RateParseError::Range(RateError::TooFast)));
}

#[test]
fn a_month_is_no_rate_and_has_a_count() {
    assert_eq!(monthly_count("1_000/month"), Some(1000));
    for other in ["", "/month", "x/month", "5/months", "5/30d", "5/month ", "5"] {
        assert_eq!(monthly_count(other), None, "{other:?}");
    }
    assert_eq!(rate("5/month"), Err(RateParseError::Period));
}

#[test]
fn what_is_shown_reads_back() {
    for millis in [0, 1, 250, 1000, 90_000, 3_600_000, 86_400_000, 123_456_789] {
        let duration_ = Duration::from_millis(millis);
        assert_eq!(duration(&show_duration(duration_)), Some(duration_));
    }
    for bytes in [0, 1, 1024, 1500, 32 << 10, 10 << 20] {
        assert_eq!(size(&show_size(bytes)), Some(bytes));
    }
}
