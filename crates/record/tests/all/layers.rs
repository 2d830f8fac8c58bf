//! The tables of layers and their boundaries, also with stacks that were sampled from real servers
//! (fixtures/stacks).

use record::boundaries;
use record::layers::{Layer, LayerRule, Role};
use std::collections::BTreeMap;
use std::path::PathBuf;

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

#[test]
fn every_boundary_has_the_layer_of_the_sampling_rule() {
    let table = boundaries::built_in();
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
    let table = boundaries::parse("[IP]\nip6_xmit ip6_output(ip6_xmit)").unwrap();
    assert_eq!(table[0].instead_of, None);
    assert_eq!((table[1].function.as_str(), table[1].instead_of.as_deref()), ("ip6_output", Some("ip6_xmit")));
    assert!(boundaries::built_in().iter().any(|boundary| boundary.instead_of.as_deref() == Some("ip6_xmit")));
}

#[test]
fn a_faulty_table_of_boundaries_is_refused() {
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
        assert_eq!(boundaries::parse(text).expect_err(text), text.lines().last().unwrap());
    }
}

/// Functions above this share of a run's samples must be in the table.
const LEAST_SHARE: f64 = 0.001;
/// Share of the samples that must have a layer.
const COVERED: f64 = 0.98;

struct Run {
    name: String,
    /// Stacks, innermost first, with their samples.
    stacks: Vec<(Vec<String>, u64)>,
}

impl Run {
    fn samples(&self) -> u64 {
        self.stacks.iter().map(|(_, count)| count).sum()
    }
}

fn runs() -> Vec<Run> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/stacks");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut functions: Vec<&str> = Vec::new();
        let stack = |line| {
            let own = str::trim_start(line);
            let (frames, count) = own.rsplit_once(' ').unwrap();
            functions.truncate(line.len() - own.len());
            functions.extend(frames.split(';'));
            (functions.iter().rev().map(ToString::to_string).collect(), count.parse().unwrap())
        };
        let stacks = text.lines().filter(|line| !line.starts_with('#')).map(stack).collect();
        Run { name: path.file_stem().unwrap().to_string_lossy().into_owned(), stacks }
    };
    paths.into_iter().map(read).collect()
}

fn layer_of(stack: &[String]) -> Option<Layer> {
    LayerRule::built_in().row_of(stack.iter().map(|function| (function.as_str(), None))).map(|row| row.layer)
}

#[test]
fn every_function_above_a_tenth_of_a_percent_is_classified() {
    for run in runs() {
        let mut functions: BTreeMap<&str, u64> = BTreeMap::new();
        for (stack, count) in &run.stacks {
            *functions.entry(&stack[0]).or_default() += count;
        }
        let least = LEAST_SHARE * run.samples() as f64;
        let is_unknown = |function: &str| LayerRule::built_in().role(function, None) == Role::Unknown;
        let unknown: Vec<&str> = functions
            .into_iter()
            .filter(|(name, count)| *count as f64 > least && is_unknown(name))
            .map(|(name, _)| name)
            .collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", run.name);
    }
}

#[test]
fn the_table_places_nearly_all_kernel_samples() {
    let runs = runs();
    assert_eq!(runs.len(), 3, "nginx, HAProxy and memcached, over loopback and veth, IPv4 and IPv6");
    for run in runs {
        let placed: u64 =
            run.stacks.iter().filter(|(stack, _)| layer_of(stack).is_some()).map(|(_, count)| count).sum();
        assert!(placed as f64 >= COVERED * run.samples() as f64, "{}: {placed} of {}", run.name, run.samples());
    }
}

#[test]
fn every_layer_of_the_stack_has_samples_in_every_run() {
    for run in runs() {
        for layer in [Layer::SystemCall, Layer::Tcp, Layer::Ip, Layer::Ethernet] {
            let samples: u64 =
                run.stacks.iter().filter(|(stack, _)| layer_of(stack) == Some(layer)).map(|(_, count)| count).sum();
            assert!(samples > 0, "{}: no sample in {}", run.name, layer.word());
        }
    }
}

/// Parses functions, each perhaps followed by its module in brackets.
fn frames(text: &str) -> Vec<(&str, Option<&str>)> {
    let mut frames: Vec<(&str, Option<&str>)> = Vec::new();
    for word in text.split_whitespace() {
        match (word.strip_prefix('[').and_then(|module| module.strip_suffix(']')), frames.last_mut()) {
            (Some(module), Some(last)) => last.1 = Some(module),
            _ => frames.push((word, None)),
        }
    }
    frames
}

#[test]
fn stacks_of_virtio_net_and_named_drivers_get_the_right_layer() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/driver-stacks.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut modules = std::collections::BTreeSet::new();
    let mut wrong = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let (wanted, stack) = line.split_once('|').unwrap();
        let frames = frames(stack);
        assert!(!frames.is_empty(), "{line}");
        modules.extend(frames.iter().filter_map(|(_, module)| *module));
        let found = LayerRule::built_in().row_of(frames).map(|row| row.layer.word());
        if found != Some(wanted.trim()) {
            wrong.push(format!("{line}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(modules.len() >= 18, "virtio-net and the named drivers: {modules:?}");
}
