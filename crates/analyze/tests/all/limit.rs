//! Limits of `--fail-if`, and a number next to its limit.

use crate::fixture;
use analyze::shown::{nanos_against, percent_against};
use proptest::prelude::*;
use record::{Origin, Outcomes, Point, Sweep, names};
use verdict::limit::parse;

fn point(outcomes: Outcomes) -> Point {
    let figures = [(names::RESPONSE_P99, 62_100.0), (names::THROUGHPUT, 9_000.0)];
    let mut point = Point { outcomes, ..fixture::point(Sweep::Single, 0, 8, &figures) };
    point.figures.not_measured(names::SERVER_CPU, "the server is on another machine");
    point
}

fn two_reset() -> Point {
    point(Outcomes { sent: 1000, ok: 998, reset: 2, ..Default::default() })
}

/// As in the tables: user, system and softirq time.
#[test]
fn the_cpu_limit_applies_to_all_cpu_time_of_a_request() {
    let mut point = two_reset();
    point.figures.measured(names::SERVER_CPU, 9.0, 1000, Origin::Timed);
    point.figures.measured(names::SERVER_SOFTIRQ, 6.0, 1000, Origin::Sampled);
    point.figures.measured(names::SERVER_SOFTIRQ_BESIDE, 4.0, 1000, Origin::Sampled);
    for text in ["cpu > 12us", "server.cpu_us_per_request > 12us"] {
        let check = parse(text).unwrap().check(&point);
        assert!(check.is_crossed && check.words.ends_with("it was 13.0 us"), "{}", check.words);
    }
    assert!(!parse("cpu > 13.5us").unwrap().check(&point).is_crossed);
}

#[test]
fn limits_are_parsed_as_users_type_them() {
    for (text, crossed) in [
        ("p99 > 50ms", true),
        ("p99>62.1ms", false),
        ("p99 >= 62.1ms", true),
        ("client.response_p99_us < 1s", true),
        ("errors > 0.1%", true),
        ("errors > 0.002", false),
        ("throughput < 10k", true),
        ("throughput <= 8.9k/s", false),
    ] {
        assert_eq!(parse(text).unwrap().check(&two_reset()).is_crossed, crossed, "{text}");
    }
    assert_eq!(parse("lag_p99 > 1ms").unwrap().figure(), names::LAG_P99);
    assert_eq!(parse("connection-wait-p99 > 1ms").unwrap().figure(), names::CONNECTION_WAIT_P99);
}

#[test]
fn connections_without_an_answer_are_errors() {
    let check = parse("errors > 0.1%").unwrap().check(&point(Outcomes {
        sent: 60_000,
        carried_in: 100,
        ok: 60_060,
        unfinished: 40,
        connections_used: 100,
        connections_silent: 40,
        ..Default::default()
    }));
    assert!(check.is_crossed);
    assert_eq!(check.words, "errors > 0.1 %: it was 40 % (40 of 100 connections got no answer)");
}

#[test]
fn a_quantile_counts_as_crossed_if_too_many_requests_or_connections_have_no_response() {
    let check = |text: &str, outcomes: Outcomes| {
        let mut point = point(outcomes);
        point.figures.measured(names::RESPONSE_MAX, 70_000.0, 1000, Origin::Timed);
        parse(text).unwrap().check(&point)
    };
    let late = |timed_out| Outcomes { sent: 1000, ok: 1000 - timed_out, timed_out, ..Default::default() };
    // Each of the other connections had hundreds of requests.
    let hangs = |silent| Outcomes {
        sent: 60_000,
        ok: 60_000 - silent,
        unfinished: silent,
        connections_used: 100,
        connections_silent: silent,
        ..Default::default()
    };
    for (text, outcomes, is_crossed) in [
        ("p99 > 100ms", late(9), false),
        ("p99 > 100ms", late(11), true),
        ("max > 100ms", late(1), true),
        ("max > 100ms", late(0), false),
        ("throughput < 5k", late(20), false),
        ("p99 > 100ms", hangs(1), false),
        ("p99 > 100ms", hangs(0), false),
    ] {
        assert_eq!(check(text, outcomes).is_crossed, is_crossed, "{text} {outcomes:?}");
    }
    for (outcomes, which) in
        [(late(20), "2 % of the requests had no response"), (hangs(40), "40 % of the connections got no answer")]
    {
        let words = format!(
            "client.response_p99_us > 100 ms: client.response_p99_us was not measured ({which}, so the true value \
             is higher), which counts as crossed"
        );
        assert_eq!(check("p99 > 100ms", outcomes).words, words);
    }
    assert!(check("p99 > 50ms", late(20)).words.contains("it was 62.1 ms"), "crossed by the answers alone");
}

#[test]
fn an_unmeasured_figure_counts_as_crossed_with_its_reason() {
    let check = parse("cpu > 20us").unwrap().check(&two_reset());
    assert!(check.is_crossed);
    assert_eq!(
        check.words,
        "server.cpu_us_per_request > 20.0 us: server.cpu_us_per_request was not measured (the server is on another \
         machine), which counts as crossed"
    );
}

#[test]
fn the_error_for_a_wrong_limit_says_how_to_type_it() {
    let message = |text: &str| parse(text).unwrap_err().to_string();
    assert_eq!(message("p99"), "'p99' is not a limit: write e.g. 'p99 > 50ms' (<, <=, > or >=)");
    assert_eq!(message("p99 > 50"), "'50' is not a value for client.response_p99_us (us): write e.g. 50ms or 800us");
    assert_eq!(message("errors > 1"), "'1' is not a value for errors (ratio): write e.g. 1% or 0.01");
    assert!(parse("errors > 5").is_err() && parse("cpus_busy_ratio > 90").is_err() && parse("errors < 1").is_err());
    assert!(parse("errors > 100%").is_ok() && parse("errors > 0.99").is_ok());
    assert!(message("speed > 1").starts_with("'speed' is not a figure"), "{}", message("speed > 1"));
    assert!(message("cpus_used > 1").contains("could be"), "{}", message("cpus_used > 1"));
    assert!(parse("> 5ms").is_err() && parse("p99 > -1ms").is_err() && parse("errors > NaN").is_err());
}

proptest! {
    #[test]
    fn no_text_panics_the_parser(text in "\\PC{0,40}") {
        if let Ok(limit) = parse(&text) {
            let _ = limit.check(&two_reset());
        }
    }
}

#[test]
fn a_rounded_value_never_equals_the_limit_that_it_crossed() {
    assert_eq!(percent_against(0.976, 0.98), ("97.6 %".into(), "98 %".into()));
    assert_eq!(percent_against(0.89, 0.98), ("89 %".into(), "98 %".into()));
    assert_eq!(percent_against(0.00104, 0.001), ("0.104 %".into(), "0.1 %".into()));
    assert_eq!(percent_against(0.984, 0.985), ("98 %".into(), "98.5 %".into()));
    assert_eq!(percent_against(0.9834, 0.983), ("98.34 %".into(), "98.3 %".into()));
    assert_eq!(percent_against(1e-6, 0.0), ("0.0001 %".into(), "0 %".into()));
    assert_eq!(nanos_against(100.04e6, 100e6), ("100,040 us".into(), "100 ms".into()));
}

proptest! {
    #[test]
    fn a_rounded_share_stays_on_its_side_of_the_limit(share in 0.0f64..2.0, ten_thousandths in 0u32..10_000) {
        let limit = f64::from(ten_thousandths) / 1e4;
        prop_assume!((share - limit).abs() > 1e-6);
        let (share_words, limit_words) = percent_against(share, limit);
        let number = |words: &str| words.trim_end_matches(" %").parse::<f64>().unwrap();
        prop_assert!((number(&limit_words) - limit * 100.0).abs() < 1e-9, "{limit_words}");
        let is_less = number(&share_words) < number(&limit_words);
        prop_assert_eq!(is_less, share < limit, "{} {}", share_words, limit_words);
        prop_assert_ne!(number(&share_words), number(&limit_words));
    }
}
