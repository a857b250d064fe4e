//! Plans and conditions of limits: what they mean, and their faults.

use super::callers::{by_user, means};
use super::faults::{each_refused, each_warned};
use super::limit;
use crate::limit::{Condition, Limit, What};

#[test]
fn plans_take_from_their_limit_what_they_do_not_say() {
    let plans = |keys: &str, plan: &str| -> Vec<(String, String)> {
        let settings = means(&limit(&format!(
            "key = \"ip\"\n{keys}\n[limits.l.plans.pro]\n{plan}\n[identity]\nplan = \"form:p\"\n"
        )));
        let shown = |(name, policy): &(String, crate::limit::Policy)| {
            (name.clone(), format!("{} {}", policy.algorithm(), policy.quota()))
        };
        settings.limits[0].plans.iter().map(shown).collect()
    };
    let pro = |shown: &str| vec![("pro".to_owned(), shown.to_owned())];
    let rate = "rate = \"10/second\"\nburst_allowance = 2";
    assert_eq!(plans(rate, "rate = \"100/second\""), pro("token_bucket 200"));
    assert_eq!(plans(rate, "burst = 30"), pro("token_bucket 60"));
    assert_eq!(plans(rate, "burst = 30\nburst_allowance = 1"), pro("token_bucket 30"));
    let window = "algorithm = \"sliding_window\"\nrate = \"10/second\"";
    assert_eq!(plans(window, "rate = \"20/second\""), pro("sliding_window 20"));
    assert_eq!(plans("algorithm = \"concurrency\"\nlimit = 1", "limit = 9"), pro("concurrency 9"));
    let refill = "refill = { every = \"1s\", amount = 5 }";
    assert_eq!(plans(refill, "refill = { every = \"1s\", amount = 9 }"), pro("token_bucket 9"));
}

#[test]
fn plans_may_owe_as_much_as_their_limit() {
    let settings = means(&by_user("count = \"4xx\"\nplans.pro.rate = \"20/second\""));
    let (_, policy) = &settings.limits[0].plans[0];
    assert_eq!(policy.deepest() - policy.quota(), 10);
}

#[test]
fn faults_of_plans_say_what_to_write() {
    each_refused(&[
        (
            by_user("plans.pro = { algorithm = \"fixed_window\", rate = \"1/second\" }"),
            "`algorithm` cannot be another than the limit's, which is `token_bucket`; leave it out",
        ),
        (
            by_user("plans.pro.refill = { every = \"1s\", amount = 5 }"),
            "`refill` goes with a limit that has a `refill` itself; write a `rate`",
        ),
        (by_user("plans.pro.rat = \"1/second\""), "unknown key `rat`; did you mean `rate`?"),
        (by_user("plans.pro.rate = \"1\""), "is not a rate: `1`"),
        (by_user("plans.pro.key = \"ip\""), "unknown key `key`"),
        (by_user("plans.pro = 5"), "`pro` must be a table, not an integer"),
        (by_user("plans.\"\".burst = 50"), "`` cannot be the name of a plan; write 1 to 128"),
    ]);
    each_warned(&[
        (
            by_user("cost = 9\nplans.slow = { rate = \"5/second\" }"),
            "`cost` is 9, and plan `slow` never holds more than 5: every request is refused",
        ),
        (
            by_user("cost = { from = \"response:x-cost\", max = 5 }\nplans.pro.burst = 10"),
            "decides as its limit does",
        ),
        (by_user("plans.pro.burst = 10"), "`plans.pro` of `[limits.l]` decides as its limit does"),
        (
            limit("key = \"ip\"\nrate = \"10/second\"\nplans.pro.burst = 50"),
            "is never used: nothing says which plan a caller has; add a line such as",
        ),
    ]);
}

#[test]
fn conditions_are_sources_and_what_is_to_be_found_there() {
    let when = |written: &str| -> Vec<(String, Vec<String>)> {
        let settings = means(&by_user(&format!("when = {{ {written} }}")));
        let shown = |what: &What| match what {
            What::Method => "method".to_owned(),
            What::Source(source) => source.to_string(),
        };
        let Limit { when, .. } = &settings.limits[0];
        let texts = |it: &Condition| it.values.iter().map(ToString::to_string).collect();
        when.iter().map(|it| (shown(&it.what), texts(it))).collect()
    };
    let is = |what: &str, values: &[&str]| {
        (what.to_owned(), values.iter().map(|it| (*it).to_owned()).collect())
    };
    assert_eq!(
        when("\"jwt:plan\" = \"enterprise\", method = \"POST\", route = \"r\""),
        [is("jwt:plan", &["enterprise"]), is("method", &["POST"]), is("route", &["r"])]
    );
    assert_eq!(
        when("plan = [\"a\", \"b\"], \"header:X-Beta\" = \"1\""),
        [is("plan", &["a", "b"]), is("header:x-beta", &["1"])]
    );
    assert_eq!(when(""), []);
}

#[test]
fn faults_of_conditions_say_what_to_write() {
    let when = |written: &str| by_user(&format!("when = {{ {written} }}"));
    each_refused(&[
        (when("mehtod = \"POST\""), "9:10: a condition of `when` cannot be `mehtod`; did you mean"),
        (when("ip = \"10.0.0.1\""), "a condition of `when` cannot be `ip`"),
        (when("tenant = \"a\""), "cannot be `tenant`: `[identity]` does not say where it is found"),
        (when("\"header:te\" = \"a\""), "it belongs to a connection, not to a caller; ask for"),
        (when("method = \"post\""), "is not a method: `post`; write `\"POST\"`"),
        (when("method = []"), "`method` is empty: the limit would never apply"),
        (when("plan = \"\""), "`plan` is empty, which counts as absent"),
        (when("plan = 5"), "`plan` must be a string, not an integer"),
        (when("plan = [\"a\", \"a\"]"), "repeats an earlier one: `a`"),
        (when("\"header:a\" = \"a\", \"header:A\" = \"b\""), "repeats an earlier one"),
        (when("route = \"rr\""), "there is no route `rr`; did you mean `r`?"),
        (by_user("when = \"POST\""), "`when` must be a table, not a string"),
        (
            limit("key = \"ip\"\nrate = \"1/second\"\nwhen = { \"jwt:plan\" = \"a\" }"),
            "a condition of `when` cannot be `jwt:plan`: nothing says which tokens to believe",
        ),
    ]);
}
