use std::sync::mpsc;
use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter};

use super::*;

fn counters() -> Family<IntCounter> {
    let new_series = || IntCounter::new("n", "h").unwrap();
    Family::new("asked_total", "How often.", &["route", "status"], new_series)
}

fn pieces(family: &Family<impl Series>) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut take = |piece| pieces.push(piece);
    let mut page = MetricsPage::new(&mut take);
    family.write(&mut page);
    page.hand_on();
    pieces
}

#[test]
fn series_are_written_in_the_order_of_their_labels() {
    let family = counters();
    assert!(pieces(&family).is_empty());
    family.with_label_values(&["b", "200"]).inc_by(2);
    family.with_label_values(&["a", "429"]).inc();
    family.with_label_values(&["a", "200"]);
    family.with_label_values(&["b", "200"]).inc();
    let text = "# HELP asked_total How often.\n# TYPE asked_total counter\n\
                asked_total{route=\"a\",status=\"200\"} 0\n\
                asked_total{route=\"a\",status=\"429\"} 1\n\
                asked_total{route=\"b\",status=\"200\"} 3\n";
    assert_eq!(pieces(&family), [text]);
}

#[test]
fn labels_are_written_in_the_order_of_their_names() {
    let new_series = || IntCounter::new("n", "h").unwrap();
    let family = Family::new("failed_total", "How often.", &["upstream", "error"], new_series);
    family.with_label_values(&["a", "timeout"]);
    let text = &pieces(&family)[0];
    assert!(text.ends_with("failed_total{error=\"timeout\",upstream=\"a\"} 0\n"), "{text}");
}

#[test]
fn values_of_labels_are_escaped() {
    let family = counters();
    family.with_label_values(&["\\", "a\"b\nc"]);
    let text = &pieces(&family)[0];
    assert!(text.ends_with("{route=\"\\\\\",status=\"a\\\"b\\nc\"} 0\n"), "{text}");
}

#[test]
fn a_histogram_has_its_buckets_its_sum_and_its_count() {
    let new_series = || {
        let options = HistogramOpts::new("n", "h").buckets(vec![2.5e-7, 0.5, 1.0]);
        Histogram::with_opts(options).unwrap()
    };
    let family = Family::new("seconds", "How long.", &["route"], new_series);
    let series = family.with_label_values(&["a"]);
    [0.25, 0.75, 2.0].into_iter().for_each(|seconds| series.observe(seconds));
    let text = "# HELP seconds How long.\n# TYPE seconds histogram\n\
                seconds_bucket{route=\"a\",le=\"0.00000025\"} 0\n\
                seconds_bucket{route=\"a\",le=\"0.5\"} 1\n\
                seconds_bucket{route=\"a\",le=\"1\"} 2\n\
                seconds_bucket{route=\"a\",le=\"+Inf\"} 3\n\
                seconds_sum{route=\"a\"} 3\n\
                seconds_count{route=\"a\"} 3\n";
    assert_eq!(pieces(&family), [text]);
}

#[test]
fn many_series_come_in_bounded_pieces_without_loss() {
    let family = counters();
    let names: Vec<String> = (0..10_000).map(|number| format!("r{number:05}")).collect();
    for name in &names {
        family.with_label_values(&[name, "200"]);
    }
    let pieces = pieces(&family);
    assert!(pieces.len() > 5, "{}", pieces.len());
    assert!(pieces.iter().all(|piece| piece.len() < 65 * 1024 && piece.ends_with('\n')));
    let whole = pieces.concat();
    let lines = whole.lines().filter(|line| !line.starts_with('#'));
    let expected =
        names.iter().map(|name| format!("asked_total{{route=\"{name}\",status=\"200\"}} 0"));
    assert!(lines.eq(expected));
}

#[test]
fn a_series_can_be_added_while_a_piece_is_handed_on() {
    let family = counters();
    for number in 0..5000 {
        family.with_label_values(&[format!("r{number}").as_str(), "200"]);
    }
    let mut handed_on = 0;
    let mut take = |_| {
        handed_on += 1;
        // As a worker does; if the family was locked it would wait for this thread, which waits for it.
        let (worker, (done, added)) = (family.clone(), mpsc::channel());
        std::thread::spawn(move || {
            worker.with_label_values(&["new", handed_on.to_string().as_str()]);
            let _ = done.send(());
        });
        added.recv_timeout(Duration::from_secs(60)).expect("the family is locked");
    };
    family.write(&mut MetricsPage::new(&mut take));
    assert!(handed_on > 1, "{handed_on}");
}

#[test]
fn pruning_reaches_every_series() {
    let family = counters();
    for number in 0..(2 * SCANNED_AT_ONCE + 1) {
        let name = format!("r{number}");
        family.with_label_values(&[name.as_str(), "200"]);
        family.with_label_values(&[name.as_str(), "429"]);
    }
    family.prune(&HashSet::from(["r7", "r2000"]));
    let text = pieces(&family).concat();
    let lines: Vec<&str> = text.lines().skip(2).collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines.iter().all(|it| it.contains("\"r7\"") || it.contains("\"r2000\"")), "{text}");
}
