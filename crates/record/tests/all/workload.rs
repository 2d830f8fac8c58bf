use record::workload::*;

#[test]
fn the_default_workload_adds_no_fields_to_a_record() {
    assert_eq!(serde_json::to_string(&Workload::default()).unwrap(), "{}");
    assert_eq!(serde_json::to_string(&WorkloadResult::default()).unwrap(), "{}");
    assert!(WorkloadResult::default().is_empty());
}

#[test]
fn a_size_on_the_boundary_belongs_to_the_smaller_class() {
    let class =
        |label: &str, largest_bytes| RequestClass { label: label.into(), kind: DocumentKind::Static, largest_bytes };
    let workload = Workload { classes: vec![class("a", Some(10)), class("b", None)], ..Default::default() };
    assert_eq!([0, 10, 11, u64::MAX].map(|bytes| workload.class_of_size(bytes)), [0, 0, 1, 1]);
}
