//! What algorithms, costs, strategies and candidates of limits are refused for, or warned of.

use super::faults::{each_refused, each_warned};
use super::{good, limit, redis};

fn more(keys: &str) -> String {
    limit(&format!("key = \"ip\"\nrate = \"10/second\"\n{keys}"))
}

fn slots(keys: &str) -> String {
    limit(&format!("key = \"ip\"\nalgorithm = \"concurrency\"\n{keys}"))
}

#[test]
fn faults_of_algorithms_say_what_to_write() {
    each_refused(&[
        (slots(""), "6:9: `[limits.l]` has no `limit`; add a line such as `limit = 10`"),
        (slots("limt = 5"), "9:1: unknown key `limt`; did you mean `limit`?"),
        (slots("limit = 0"), "`limit` is out of range: `0`; write a number from 1 to 1000000000"),
        (slots("limit = \"10\""), "`limit` must be an integer, not a string"),
        (
            limit("key = \"ip\"\nalgorithm = \"concurency\"\nlimit = 5"),
            "8:13: `algorithm` cannot be `concurency`; did you mean `concurrency`?",
        ),
        (limit("key = \"ip\"\nalgorithm = \"leaky_bucket\""), "`[limits.l]` has no `rate`"),
        (
            more("algorithm = \"sliding_window\"\nrefill = { every = \"1s\", amount = 10 }"),
            "10:10: `refill` goes with `token_bucket` only; remove it, or write `algorithm =",
        ),
        (
            slots("limit = 5\nrefill = { every = \"1s\", amount = 10 }"),
            "`refill` goes with `token_bucket` only",
        ),
        (
            limit("key = \"ip\"\nalgorithm = \"sliding_log\"\nrate = \"100_001/day\""),
            "9:8: `rate` is too much for a `sliding_log`, which counts at most 100000; write a \
             lower count, or `algorithm = \"sliding_window\"`",
        ),
        (
            limit("key = \"ip\"\nalgorithm = \"leaky_bucket\"\nrate = \"1/day\"\nburst = 40_000"),
            "`burst` makes a burst of 40000, which takes more than 100 years",
        ),
    ]);
}

#[test]
fn faults_of_refills_say_what_to_write() {
    let refill = |keys: &str| limit(&format!("key = \"ip\"\nrefill = {keys}"));
    each_refused(&[
        (refill("5"), "8:10: `refill` must be a table, not an integer"),
        (refill("{ amount = 5 }"), "`refill` of `[limits.l]` has no `every`; add a line such as"),
        (refill("{ every = \"1s\" }"), "has no `amount`; add a line such as `amount = 10`"),
        (refill("{ every = \"0s\", amount = 5 }"), "write a duration from `\"1ms\"` to `\"366d\"`"),
        (refill("{ every = 1, amount = 5 }"), "`every` must be a duration, not a plain number"),
        (refill("{ every = \"1s\", amount = 0 }"), "`amount` is out of range: `0`"),
        (refill("{ every = \"1s\", amount = 5, max = 1 }"), "unknown key `max`; known here:"),
        (
            limit("key = \"ip\"\nrefill = { every = \"1d\", amount = 1 }\nburst = 40_000"),
            "9:9: `burst` makes a burst of 40000, which takes more than 100 years to refill at \
             this rate; the largest burst that fits is 36525",
        ),
        (
            limit("key = \"ip\"\nrefill = { every = \"1s\", amount = 9 }\nburst_allowance = 1e9"),
            "makes a burst of 9000000000; the burst must be between 1 and 1000000000",
        ),
        (
            limit("key = \"ip\"\nrefill = { every = \"1s\", amount = 9 }\nrate = 5"),
            "`rate` must be",
        ),
    ]);
}

#[test]
fn faults_of_costs_and_counts_say_what_to_write() {
    let cost = |written: &str| more(&format!("cost = {written}"));
    let count = |written: &str| more(&format!("count = {written}"));
    each_refused(&[
        (cost("\"5\""), "`cost` must be an integer or a table, not a string"),
        (cost("{ max = 5 }"), "`cost` of `[limits.l]` has no `from`; add a line such as `from ="),
        (cost("{ from = 5 }"), "9:17: `from` must be a string, not an integer"),
        (cost("{ from = \"x-weight\" }"), "`from` cannot be `x-weight`; write `header:NAME`, `qu"),
        (cost("{ from = \"haeder:x\" }"), "did you mean `header:NAME`?"),
        (cost("{ from = \"cookie:x\" }"), "`from` cannot be `cookie:x`; write `header:NAME`"),
        (cost("{ from = \"header\" }"), "does not name a header: `header`; write one such as"),
        (cost("{ from = \"response:a b\" }"), "does not name a header: `response:a b`"),
        (cost("{ from = \"query:\" }"), "does not name a parameter: `query:`"),
        (cost("{ from = \"header:TE\" }"), "cannot be `header:te`: it belongs to a connection,"),
        (cost("{ from = \"response:Content-Length\" }"), "such as `\"response:x-cost\"`"),
        (cost("{ from = \"query:n\", default = 0 }"), "`default` is out of range: `0`"),
        (cost("{ from = \"response:n\", default = -1 }"), "`default` is out of range: `-1`"),
        (cost("{ from = \"query:n\", max = 0 }"), "`max` is out of range: `0`"),
        (cost("{ from = \"query:n\", max = 5, defualt = 2 }"), "did you mean `default`?"),
        (
            cost("{ from = \"query:n\", default = 5, max = 4 }"),
            "9:47: `max` is 4, below the `default` of 5; write at least 5, or a lower `default`",
        ),
        (count("[]"), "`count` is empty: nothing would be charged; name statuses such as"),
        (count("401"), "`count` must be a string, not an integer; write it in quotes"),
        (count("\"4XX\""), "`count` is not a status: `4XX`; write `\"4xx\"`"),
        (count("\"600\""), "is not a status: `600`; write a status from 100 to 599 such as"),
        (count("[\"401\", \"6xx\"]"), "an entry of `count` is not a status: `6xx`"),
        (count("\"40x\""), "is not a status: `40x`"),
        (count("[\"5xx\", \"5xx\"]"), "repeats an earlier one: `5xx`"),
        (
            slots("limit = 5\ncount = \"4xx\""),
            "10:9: `count` does not go with `concurrency`, which counts requests before they end",
        ),
        (
            slots("limit = 5\ncost = { from = \"response:x-cost\" }"),
            "10:8: `cost` comes with the response, and the limit counts requests in flight; tell",
        ),
    ]);
}

#[test]
fn faults_of_strategies_and_words_say_what_to_write() {
    let long = "x".repeat(501);
    each_refused(&[
        (more("strategy = \"queu\""), "did you mean `queue`?"),
        (more("strategy = \"drop\""), "write `reject`, `queue` or `degrade`"),
        (more("strategy = \"drop\"\nmax_wait = \"1s\""), "`strategy` cannot be `drop`"),
        (more("strategy = \"queue\"\nmax_wait = \"0s\""), "write a duration from `\"1ms\"`"),
        (more("strategy = \"queue\"\nmax_queue = 0"), "write a number from 1 to 1000000"),
        (more("mode = \"shadwo\""), "did you mean `shadow`?"),
        (more("enabled = 1"), "must be a boolean, not an integer"),
        (more("status = 200"), "`status` is out of range: `200`; write a number from 400 to 599"),
        (more("status = 600"), "`status` is out of range: `600`"),
        (more("message = \"a\\nb\""), "has control characters: `a\\nb`; leave out line breaks"),
        (more("description = \"a\\u001bb\""), "`description` has control characters"),
        (more("description = \" \""), "`description` is empty; write a sentence, or leave it"),
        (more("description = 5"), "`description` must be a string"),
        (
            more(&format!("message = \"{long}\"")),
            "`message` is too long; write at most 500 characters",
        ),
    ]);
}

#[test]
fn faults_of_candidates_say_what_to_write() {
    let candidate = |keys: &str| more(&format!("candidate = {{ {keys} }}"));
    each_refused(&[
        (more("candidate = 5"), "`candidate` must be a table, not an integer"),
        (candidate("rat = 5"), "unknown key `rat`; did you mean `rate`?"),
        (candidate("rate = \"5\""), "9:22: `rate` is not a rate: `5`"),
        (candidate("cost = 5"), "unknown key `cost`; known here:"),
        (
            candidate("algorithm = \"concurrency\""),
            "9:13: `candidate` of `[limits.l]` has no `limit`; add a line such as `limit = 10`",
        ),
        (
            slots("limit = 5\ncandidate = { algorithm = \"sliding_window\" }"),
            "`candidate` of `[limits.l]` has no `rate`",
        ),
        (
            candidate("refill = { every = \"1d\", amount = 1 }, burst_allowance = 1e6"),
            "`burst_allowance` makes a burst of 10000000, which takes more than 100 years",
        ),
        (
            limit(
                "key = \"ip\"\nrate = \"200_000/day\"\ncandidate = { algorithm = \"sliding_log\" }",
            ),
            "9:13: `candidate` of `[limits.l]` is too much for a `sliding_log`",
        ),
        (
            more("count = \"4xx\"\ncandidate = { algorithm = \"concurrency\", limit = 5 }"),
            "`candidate` of `[limits.l]` counts requests in flight, and its limit is charged when",
        ),
        // What is wrong with the limit is not said again of its candidate.
        (more("burst = 0\ncandidate = { rate = \"5/second\" }"), "9:9: `burst` is out of range"),
    ]);
}

#[test]
fn numbers_that_an_algorithm_does_not_have_are_warned_of() {
    each_warned(&[
        (
            slots("limit = 5\nrate = \"1/second\""),
            "10:8: warning: `rate` has no effect: `concurrency` counts requests in flight, up to \
             its `limit`; remove it, or write another `algorithm`",
        ),
        (slots("limit = 5\nburst = 5"), "`burst` has no effect: `concurrency` counts"),
        (slots("limit = 5\nburst_allowance = 5"), "`burst_allowance` has no effect"),
        (more("limit = 5"), "`limit` has no effect: only `concurrency` counts requests in flight"),
        (
            more("algorithm = \"sliding_log\"\nburst_allowance = 2"),
            "`burst_allowance` has no effect: a window admits what its rate says and no more",
        ),
        (more("max_wait = \"1s\""), "`max_wait` has no effect: only the strategy `queue` lets"),
        (more("max_queue = 5\nstrategy = \"degrade\""), "`max_queue` has no effect"),
        (
            more("mode = \"shadow\"\nstrategy = \"queue\""),
            "10:12: warning: `strategy` has no effect: a limit in the mode `shadow` only counts",
        ),
    ]);
}

#[test]
fn numbers_that_contradict_each_other_are_warned_of() {
    each_warned(&[
        (
            more("burst = 9"),
            "9:9: warning: `burst` makes a burst of 9, which holds less than one second of its \
             rate, so steady traffic at that rate is refused in part; write a burst of at least 10",
        ),
        (more("burst = 12\nburst_allowance = 0.5"), "`burst_allowance` makes a burst of 6, which"),
        (
            limit("key = \"ip\"\nrate = \"5/100ms\""),
            "8:8: warning: `rate` makes a burst of 5, which holds less than one second of its rate, \
             so steady traffic at that rate is refused in part; write a burst of at least 50",
        ),
        (limit("key = \"ip\"\nrate = \"90/minute\"\nburst = 1"), "write a burst of at least 2"),
        (
            limit("key = \"ip\"\nrefill = { every = \"100ms\", amount = 5 }\nburst = 49"),
            "`burst` makes a burst of 49, which holds less than one second of its rate, so steady \
             traffic at that rate is refused in part; write a burst of at least 50",
        ),
        (
            limit("key = \"ip\"\nrefill = { every = \"10s\", amount = 50 }\nburst = 49"),
            "`burst` makes a burst of 49, which holds less than one refill, so steady",
        ),
        (
            more("refill = { every = \"1s\", amount = 9 }"),
            "8:8: warning: `rate` says another rate than `refill`, and `refill` decides; remove",
        ),
        (
            more("cost = { from = \"query:n\", default = 11 }"),
            "9:38: warning: `default` is 11, and the limit never holds more than 10; write at most",
        ),
        (
            slots("limit = 5\ncost = 6"),
            "`cost` is 6, and the limit never holds more than 5: every request is refused",
        ),
        (
            more("candidate = { rate = \"10/second\" }"),
            "9:13: warning: `candidate` of `[limits.l]` decides as its limit does, so there is",
        ),
        (
            more("candidate = { rate = \"20/second\", burst = 5 }"),
            "9:43: warning: `burst` makes a burst of 5, which holds less than one second",
        ),
        (
            more(
                "refill = { every = \"10s\", amount = 100 }\nburst = 100\n\
                  candidate = { rate = \"5/second\", burst = 200 }",
            ),
            "11:22: warning: `rate` says another rate than `refill`, and `refill` decides",
        ),
    ]);
}

#[test]
fn turns_that_take_longer_than_a_minute_are_warned_of() {
    let leaky = |keys: &str| limit(&format!("key = \"ip\"\nalgorithm = \"leaky_bucket\"\n{keys}"));
    each_warned(&[
        (
            leaky("rate = \"1/minute\"\nburst = 100"),
            "10:9: warning: `burst` has requests wait for their turn for up to 1h39m; write a \
             smaller `burst`",
        ),
        (leaky("rate = \"6000/hour\""), "9:8: warning: `rate` has requests wait for their turn"),
    ]);
    assert!(good(&leaky("rate = \"1/second\"\nburst = 61")).warnings.is_empty());
}

#[test]
fn logs_that_may_fill_the_memory_are_warned_of() {
    let log = |keys: &str| format!("algorithm = \"sliding_log\"\nrate = \"1_000/hour\"\n{keys}");
    each_warned(&[(
        limit(&log("key = \"ip\"")),
        "8:8: warning: `rate` may take 30GiB of memory: 32 bytes for each request of 1000000 keys; \
         lower `max_keys` in `[store]`, or write `algorithm = \"sliding_window\"`",
    )]);
    let quiet = |text: &str| {
        let loaded = good(text);
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    };
    // Few keys, one key, or another's memory.
    quiet(&limit(&log("key = \"ip\"\n[store]\nmax_keys = 100_000")));
    quiet(&limit(&log("key = \"global\"")));
    let shared = format!("[limits.l]\nkey = \"ip\"\n{}", log(""));
    quiet(&redis(&shared).replace("upstream =", "limits = [\"l\"]\nupstream ="));
}
