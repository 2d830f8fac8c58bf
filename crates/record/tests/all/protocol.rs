use record::protocol::*;

#[test]
fn an_error_reply_has_a_number_and_a_name() {
    let redis = Protocol::Redis(RedisPlan::default());
    for (code, words) in [("ERR", "-ERR"), ("MOVED", "-MOVED"), ("DENIED", "-DENIED"), ("MADEUP", "other error")] {
        let status = redis_error(code.as_bytes());
        assert!(status >= FIRST_ERROR);
        assert_eq!(redis.status_words(status), words);
    }
    let memcached = Protocol::Memcached(MemcachedPlan::default());
    assert_eq!(memcached.status_words(memcached_error(b"SERVER_ERROR")), "SERVER_ERROR");
    assert_eq!((memcached.status_words(MISS), redis.status_words(MISS)), ("miss".into(), "null".into()));
    assert_eq!(Protocol::Http.status_words(404), "404");
}

#[test]
fn a_grpc_status_has_a_number_and_a_name() {
    let grpc = Protocol::Grpc(GrpcPlan::default());
    for (code, words) in [
        (Some(0), "OK"),
        (Some(14), "UNAVAILABLE"),
        (Some(16), "UNAUTHENTICATED"),
        (Some(17), "other error"),
        (None, "other error"),
    ] {
        let status = grpc_status(code);
        assert_eq!((grpc.status_words(status).as_ref(), (200..400).contains(&status)), (words, code == Some(0)));
    }
}

#[test]
fn a_plan_is_read_back_from_json_without_its_password() {
    let plan = RedisPlan { password: "secret".into(), pipeline: 4, ..RedisPlan::default() };
    let text = serde_json::to_string(&Protocol::Redis(plan.clone())).unwrap();
    assert!(!text.contains("secret"), "{text}");
    let read: Protocol = serde_json::from_str(&text).unwrap();
    assert_eq!(read, Protocol::Redis(RedisPlan { password: String::new(), ..plan }));
}
