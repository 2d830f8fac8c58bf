use record::Outcomes;

#[test]
fn every_request_ends_in_exactly_one_count() {
    let outcomes = Outcomes {
        sent: 9,
        carried_in: 2,
        ok: 5,
        non_2xx: 1,
        refused: 1,
        truncated: 2,
        unfinished: 2,
        ..Default::default()
    };
    assert_eq!(outcomes.sum(), outcomes.requests());
    assert_eq!(outcomes.errors(), 3);
    assert!((outcomes.failed_ratio() - 4.0 / 9.0).abs() < 1e-12);
}
