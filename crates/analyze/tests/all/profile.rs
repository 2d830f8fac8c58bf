//! Functions whose share of the samples changed.

use analyze::profile::changes;
use record::profile::Folded;

fn folded(text: &str) -> Folded {
    Folded::parse(text.as_bytes()).unwrap()
}

#[test]
fn functions_that_grew_come_first() {
    let before = folded("s;a 90\ns;b 10\n");
    let after = folded("s;a 100\ns;b 60\ns;c 40\n");
    let changes = changes(&before, &after);
    assert_eq!(changes[0].function, "a");
    assert!((changes[0].after_ratio - 0.5).abs() < 1e-12);
    assert_eq!(changes[2].function, "b");
    assert_eq!(changes[1].before_ratio, 0.0);
}

#[test]
fn a_few_samples_show_no_clear_change() {
    let is_clear = |before: &str, after: &str| changes(&folded(before), &folded(after))[0].is_clear();
    assert!(!is_clear("s;a 5\ns;b 5\n", "s;a 7\ns;b 3\n"));
    assert!(is_clear("s;a 5000\ns;b 5000\n", "s;a 7000\ns;b 3000\n"));
}
