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
