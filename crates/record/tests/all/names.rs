use record::names::ALL;

#[test]
fn names_are_unique_and_contain_their_unit() {
    let mut seen = std::collections::HashSet::new();
    for (name, unit, meaning) in ALL.iter() {
        assert!(seen.insert(*name), "{name} appears twice");
        assert!(meaning.trim().ends_with('.'), "{name} needs a sentence");
        let suffix = match *unit {
            "us" => Some("us"),
            "ratio" => Some("ratio"),
            "1/s" | "bytes/s" => Some("per_"),
            _ => None,
        };
        if let Some(suffix) = suffix {
            assert!(name.contains(suffix), "{name} does not show its unit {unit}");
        }
    }
}
