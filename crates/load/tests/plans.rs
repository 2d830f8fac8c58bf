//! Plans that the engine refuses.

use load::check;
use record::scenario::RequestTarget;
use record::{LoadPlan, Pace};

fn refused(change: impl FnOnce(&mut LoadPlan)) -> String {
    let mut plan = LoadPlan::simple(([127, 0, 0, 1], 80).into());
    assert!(check(&plan).is_ok(), "{:?}", check(&plan));
    change(&mut plan);
    check(&plan).expect_err("must be refused").to_string()
}

#[test]
fn invalid_plans_are_refused_with_a_remedy() {
    assert!(refused(|plan| plan.connections = 0).contains("at least 1"));
    assert!(refused(|plan| plan.threads = 0).contains("at least 1"));
    assert!(refused(|plan| plan.duration_ns = 0).contains("longer duration"));
    assert!(refused(|plan| plan.duration_ns = u64::MAX).contains("400 days"));
    assert!(refused(|plan| plan.timeout_ns = 0).contains("timeout"));
    assert!(refused(|plan| plan.addresses.clear()).contains("address"));
    assert!(refused(|plan| plan.workload.weights = vec![f64::NAN]).contains("at least 0"));
    assert!(refused(|plan| plan.workload.class_of = vec![0]).contains("one of the classes"));
    for rate_per_sec in [-1.0, 0.0, f64::NAN, f64::INFINITY] {
        let pace = Pace::Open { rate_per_sec, arrival: record::Arrival::Constant };
        assert!(refused(|plan| plan.pace = pace).contains("rate"), "{rate_per_sec}");
    }
    assert!(refused(|plan| plan.cpus = vec![4000]).contains("CPU 4000"));
}

#[test]
fn no_input_can_smuggle_a_second_header_or_request() {
    let header = |name: &str, value: &str| {
        let pair = (name.to_string(), value.to_string());
        refused(|plan| plan.headers.push(pair))
    };
    assert!(header("X-A", "b\r\nX-C: d").contains("control character"));
    assert!(header("X-A", "b\nc").contains("control character"));
    assert!(header("X A", "b").contains("not a header name"));
    assert!(header("X-A:\r\nB", "b").contains("not a header name"));
    assert!(header("Content-Length", "5").contains("itself"));
    assert!(header("transfer-encoding", "chunked").contains("itself"));
    assert!(refused(|plan| plan.host = "a\r\nb".into()).contains("not a host"));
    assert!(refused(|plan| plan.method = "GET /x HTTP/1.1\r\n".into()).contains("method"));
    assert!(refused(|plan| plan.targets = vec![RequestTarget { path: "/a b".into() }]).contains("%20"));
    assert!(refused(|plan| plan.targets = vec![RequestTarget { path: "x".into() }]).contains("begin with /"));
}

#[test]
fn the_error_for_too_few_descriptors_says_how_many_connections_fit() {
    assert!(refused(|plan| plan.connections = 1_000_001).contains("more clients"));
    let text = refused(|plan| plan.connections = 1_000_000);
    assert!(text.contains("connections fit") && text.contains("ulimit -n"), "{text}");
}

#[test]
fn a_source_address_of_another_machine_is_refused() {
    let text = refused(|plan| plan.source_addresses = vec![[192, 0, 2, 1].into()]);
    assert!(text.contains("192.0.2.1") && text.contains("address of this machine"), "{text}");
    let text = refused(|plan| plan.source_addresses = vec!["::1".parse().unwrap()]);
    assert!(text.contains("different IP versions"), "{text}");
}
