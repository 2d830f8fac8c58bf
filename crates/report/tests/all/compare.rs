//! A comparison as text and JSON.

use crate::fixture;
use record::DoubtKind;
use report::{compare, text};

#[test]
fn a_comparison_says_its_headline_and_every_doubt_in_both_forms() {
    let folder = tempfile::tempdir().unwrap();
    let a = fixture::write(folder.path(), fixture::record(), &fixture::points());
    let mut b = a.clone();
    b.record.server_facts.insert("program".into(), "another".into());
    b.record.machine.kernel = "other".into();
    for point in b.points.iter_mut().take(3) {
        let what = "other processes used 1.70 CPUs of those under test";
        point.doubts.push(DoubtKind::NoisyNeighbour.warning(what, "stop them"));
    }
    let found = analyze::compare::runs(&a, &b, 0.05).unwrap();
    assert!(found.doubts.len() >= 2, "{:?}", found.doubts);
    let words = compare::text(&found);
    assert!(words.lines().all(|line| line.chars().count() <= text::WIDTH), "{words}");
    let flat = words.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.starts_with(&analyze::compare::headline(&found)), "{flat}");
    for doubt in &found.doubts {
        assert!(flat.contains(doubt.as_str()), "{doubt} is not in: {flat}");
    }
    let json = compare::json(&found);
    assert_eq!(json["kind"], "comparison");
    assert_eq!(json["comparison"]["doubts"], serde_json::json!(found.doubts));
}

#[test]
fn a_price_is_shown_without_and_with_the_command_in_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    let a = fixture::write(folder.path(), fixture::record(), &fixture::points());
    let mut b = a.clone();
    fixture::found(&mut b.record).beside = ["agent", "--all"].map(String::from).to_vec();
    let price = analyze::compare::price(&a, &b, 0.05).expect("a price");
    let comparison = analyze::compare::interleaved(&a, &b, 0.05).unwrap();
    let words = report::price::text(&a, &b, &price, &comparison);
    let (over_all, by_load) = words.split_once("by load\n").expect("both tables");
    assert!(over_all.lines().all(|line| line.chars().count() <= 80), "{over_all}");
    assert!(over_all.starts_with("The price of 'agent --all' beside nginx"), "{over_all}");
    let flat = over_all.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(&analyze::compare::price_words(&price)), "{flat}");
    for row in ["CPU/request", "throughput", "p50", "p99", "yield point"] {
        assert!(over_all.contains(row), "{row}: {over_all}");
    }
    assert_eq!(
        by_load.lines().next().unwrap().split_whitespace().collect::<Vec<_>>()[..4],
        ["load", "figure", "without", "with"]
    );
    let json = serde_json::json!(price);
    assert!(json["figures"][0]["load"].is_null() && json["command"] == "agent --all", "{json:#}");
}
