use record::boundaries::{built_in, parse};
use record::layers::{LayerRule, Role};

#[test]
fn every_boundary_has_the_layer_of_the_sampling_rule() {
    let table = built_in();
    assert!(table.len() > 40);
    for boundary in table {
        match LayerRule::built_in().role(&boundary.function, None) {
            Role::Names(row) => assert_eq!(row.layer, boundary.layer, "{}", boundary.function),
            other => panic!("{} is {other:?} in layers.txt", boundary.function),
        }
    }
    assert!(table.iter().any(|boundary| boundary.is_packets && boundary.function == "net_rx_action"));
}

#[test]
fn a_function_may_replace_an_earlier_one() {
    let table = parse("[IP]\nip6_xmit ip6_output(ip6_xmit)").unwrap();
    assert_eq!(table[0].instead_of, None);
    assert_eq!((table[1].function.as_str(), table[1].instead_of.as_deref()), ("ip6_output", Some("ip6_xmit")));
    assert!(built_in().iter().any(|boundary| boundary.instead_of.as_deref() == Some("ip6_xmit")));
}

#[test]
fn a_faulty_table_is_refused() {
    for text in [
        "tcp_sendmsg",
        "[TCP]\ntcp_*",
        "[TCP]\na b\nb",
        "[Tcp]",
        "[TCP: fast]",
        "[TCP",
        "[TCP]\n!",
        "[IP]\na b(c)",
        "[IP]\na b(a",
        "[IP]\na (a)",
    ] {
        assert_eq!(parse(text).expect_err(text), text.lines().last().unwrap());
    }
}
