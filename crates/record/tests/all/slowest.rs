use proptest::prelude::*;
use record::sum::Summand;
use record::{SLOWEST, SlowRequest, Slowest, TraceId};

/// A request with this response time that was sent on this connection.
pub fn request(response_ns: u64, connection: u32) -> SlowRequest {
    SlowRequest {
        response_ns,
        at_ns: -5,
        wait_ns: 0,
        connect_ns: 0,
        first_byte_ns: response_ns,
        last_byte_ns: 0,
        connection,
        local_port: Some(40_000),
        received_bytes: 7,
        status: Some(200),
        failure: None,
        trace_id: Some(TraceId::from_bits(u128::from(response_ns))),
        client: None,
    }
}

proptest! {
    #[test]
    fn merging_keeps_the_slowest_of_all_however_they_were_divided(
        times in prop::collection::vec((0u64..300, 0usize..5), 0..200),
    ) {
        let requests = || times.iter().zip(0..).map(|((time, part), number)| (request(*time, number), *part));
        let mut parts = vec![Slowest::default(); 5];
        requests().for_each(|(request, part)| parts[part].offer(request));
        let merged = |order: &mut dyn Iterator<Item = &Slowest>| {
            let mut all = Slowest::default();
            order.for_each(|part| all.add(part));
            Vec::from(all)
        };
        let mut expected: Vec<SlowRequest> = requests().map(|(request, _)| request).collect();
        expected.sort_by(|one, other| other.cmp(one));
        expected.truncate(SLOWEST);
        prop_assert_eq!(&merged(&mut parts.iter()), &expected);
        prop_assert_eq!(&merged(&mut parts.iter().rev()), &expected);
        let kept = Slowest::from(expected.clone());
        let least_ns = expected.get(SLOWEST - 1).map_or(0, |request| request.response_ns);
        prop_assert_eq!(kept.least_ns(), least_ns);
    }
}

#[test]
fn requests_of_a_named_client_come_back_from_json() {
    let mut slowest = Slowest::from((1..30).map(|time| request(time, 1)).collect::<Vec<_>>());
    slowest.sent_by("client 2");
    let json = serde_json::to_string(&slowest).unwrap();
    assert_eq!(serde_json::from_str::<Slowest>(&json).unwrap(), slowest);
    let first = &Vec::from(slowest)[0];
    assert_eq!((first.response_ns, first.client.as_deref()), (29, Some("client 2")));
    let id = first.trace_id.unwrap();
    assert!(json.contains(&format!("\"trace_id\":\"{id}\"")), "{json}");
    assert!(serde_json::from_str::<TraceId>("\"+123\"").is_err());
}

#[test]
fn a_trace_parent_has_the_form_of_the_specification() {
    let parent = |bits| {
        let mut out = [0; TraceId::PARENT_BYTES];
        TraceId::from_bits(bits).write_parent(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    };
    let bits = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    assert_eq!(parent(bits), "00-4bf92f3577b34da6a3ce929d0e0e4736-a3ce929d0e0e4736-01");
    assert_eq!(parent(0), "00-00000000000000010000000000000001-0000000000000001-01");
}
