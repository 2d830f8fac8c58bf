use record::layers::{Layer, LayerRule, Role};

fn row_of(functions: &[&str]) -> String {
    match LayerRule::built_in().row_of(functions.iter().map(|function| (*function, None))) {
        Some(row) if row.part.is_empty() => row.layer.word().to_string(),
        Some(row) => format!("{}: {}", row.layer.word(), row.part),
        None => "unattributed".into(),
    }
}

#[test]
fn a_helper_is_charged_to_its_caller() {
    assert_eq!(row_of(&["__memcpy", "skb_copy_bits", "tcp_collapse"]), "TCP");
    assert_eq!(row_of(&["kmem_cache_alloc_noprof", "__alloc_skb", "sock_alloc_send_pskb"]), "unattributed");
    assert_eq!(
        row_of(&["_raw_spin_unlock_irqrestore", "try_to_wake_up", "ep_poll_callback"]),
        "System Call: event notification"
    );
}

#[test]
fn an_interrupt_is_not_charged_to_the_interrupted_code() {
    assert_eq!(
        row_of(&["handle_softirqs", "irq_exit_rcu", "asm_sysvec_apic_timer_interrupt", "tcp_sendmsg_locked"]),
        "Other: interrupts"
    );
    assert_eq!(row_of(&["tcp_rcv_established", "net_rx_action", "handle_softirqs", "ext4_file_read_iter"]), "TCP");
}

#[test]
fn both_address_families_and_common_devices_are_classified() {
    for (function, module, expected) in [
        ("ip_queue_xmit", None, "IP"),
        ("__ip_queue_xmit", None, "IP"),
        ("inet6_csk_xmit", None, "IP"),
        ("ip6_finish_output2", None, "IP"),
        ("fib6_table_lookup", None, "IP"),
        ("tcp_v6_rcv", None, "TCP"),
        ("tcp_ack.isra.0", None, "TCP"),
        ("loopback_xmit", None, "Driver"),
        ("veth_xmit", Some("veth"), "Driver"),
        ("start_xmit", Some("virtio_net"), "Driver"),
        ("handle_tx_queue_of_some_kind", Some("mlx5_core"), "Driver"),
        ("nf_hook_slow", None, "IP"),
        ("anything_at_all", Some("nf_conntrack"), "IP"),
        ("__netif_receive_skb_core.constprop.0", None, "Ethernet"),
        ("fq_dequeue", Some("sch_fq"), "Ethernet"),
    ] {
        match LayerRule::built_in().role(function, module) {
            Role::Names(row) => assert_eq!(row.layer.word(), expected, "{function}"),
            other => panic!("{function}: {other:?}"),
        }
    }
}

#[test]
fn an_exact_name_wins_over_a_prefix_and_a_longer_prefix_over_a_shorter() {
    let rule = LayerRule::parse("[TCP]\na_*\n[IP]\na_b*\n[Driver]\na_bc\n").unwrap();
    let layer = |name: &str| match rule.role(name, None) {
        Role::Names(row) => Some(row.layer),
        _ => None,
    };
    assert_eq!(layer("a_x"), Some(Layer::Tcp));
    assert_eq!(layer("a_bx"), Some(Layer::Ip));
    assert_eq!(layer("a_bc"), Some(Layer::Driver));
    assert_eq!(layer("b"), None);
}

#[test]
fn a_faulty_table_is_refused() {
    for text in ["[TCP]\ntcp_* tcp_*", "[Tcp]", "tcp_*", "[TCP]\n*", "[TCP"] {
        assert_eq!(LayerRule::parse(text).unwrap_err(), text.lines().last().unwrap());
    }
}
