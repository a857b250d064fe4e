//! Clients that all ask at once.

use std::thread;

use super::gateway::Weir;

/// How often each of the requests passes when so many clients make one of them each, `each` times.
/// They are spread evenly over the requests, and those of a request over the gateways. An answer that
/// neither lets pass nor refuses fails the test.
#[track_caller]
pub(crate) fn passed_at_once(
    weirs: &[Weir],
    clients: usize,
    each: usize,
    requests: &[String],
) -> Vec<usize> {
    let mut passed = vec![0; requests.len()];
    thread::scope(|scope| {
        let begin = |n: usize| {
            let which = n / weirs.len() % requests.len();
            let (weir, request) = (&weirs[n % weirs.len()], &requests[which]);
            (which, scope.spawn(move || passed_in_a_row(weir, request, each)))
        };
        let begun: Vec<_> = (0..clients).map(begin).collect();
        for (which, client) in begun {
            passed[which] += client.join().expect("answers of 200 or 429");
        }
    });
    passed
}

fn passed_in_a_row(weir: &Weir, request: &str, times: usize) -> usize {
    let mut client = weir.connect();
    let passes = |_: &usize| {
        let status = client.ask(request).status;
        assert!(matches!(status, 200 | 429), "{status}");
        status == 200
    };
    (0..times).filter(passes).count()
}
