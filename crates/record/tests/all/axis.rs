use record::Axis;

#[test]
fn an_axis_is_formatted_as_it_is_typed() {
    for axis in Axis::ALL {
        assert_eq!(serde_json::to_value(axis).unwrap(), axis.word());
    }
    assert_eq!(serde_json::from_str::<Axis>("\"of-evil\"").unwrap(), Axis::Other, "from a later version");
}
