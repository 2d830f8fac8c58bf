//! Requests before they are sent: plans that are refused, source addresses, TLS, commands of stores, trace ids.

mod protocol {
    use record::LoadPlan;
    use record::protocol::{Keyspace, Protocol};
    use record::scenario::RequestTarget;

    #[test]
    fn features_that_the_protocol_lacks_are_refused_with_a_remedy() {
        let refused = |protocol: Protocol, change: &dyn Fn(&mut LoadPlan)| {
            let mut plan = LoadPlan { protocol, targets: Vec::new(), ..LoadPlan::simple(([127, 0, 0, 1], 80).into()) };
            assert!(load::check(&plan).is_ok(), "{:?}", load::check(&plan));
            change(&mut plan);
            load::check(&plan).expect_err("must be refused").to_string()
        };
        let redis = || Protocol::Redis(record::protocol::RedisPlan::default());
        let keyspace = |change: &dyn Fn(&mut Keyspace)| {
            refused(redis(), &|plan| {
                if let Protocol::Redis(redis) = &mut plan.protocol {
                    change(&mut redis.keyspace);
                }
            })
        };
        assert!(keyspace(&|keyspace| keyspace.keys = 0).contains("0 is not a valid number of keys"));
        assert!(keyspace(&|keyspace| keyspace.zipf_exponent = f64::NAN).contains("Zipf"));
        assert!(keyspace(&|keyspace| keyspace.read_ratio = 1.5).contains("share of reads"));
        assert!(keyspace(&|keyspace| keyspace.value_bytes = 1 << 40).contains("512 MiB"));
        assert!(refused(redis(), &|plan| plan.clients.read_bytes_per_sec = 10).contains("to HTTP, not to redis"));
        assert!(refused(redis(), &|plan| plan.targets = vec![RequestTarget { path: "/".into() }]).contains("URLs"));
        let tcp = Protocol::Tcp(record::protocol::TcpPlan { send: b"x".to_vec(), ..Default::default() });
        let nothing = Protocol::Tcp(record::protocol::TcpPlan::default());
        assert!(refused(tcp, &|plan| plan.protocol = nothing.clone()).contains("at least one byte"));
    }
}

mod sources {
    use load::ports::PortRules;
    use load::sources;
    use record::LoadPlan;

    #[test]
    fn many_loopback_connections_get_more_source_addresses() {
        let mut plan = LoadPlan::simple(([127, 0, 0, 2], 80).into());
        plan.connections = 60_000;
        let rules = PortRules { low: 32768, high: 60999, can_scan: true, time_wait_ns: 0, threads: 1 };
        let found = sources(&plan, plan.addresses[0], &rules);
        assert_eq!(found.len(), 11);
        assert_eq!(found[0], None);
        assert!(!found.contains(&Some([127, 0, 0, 2].into())), "the kernel's choice for that target already");
        plan.addresses = vec!["[::1]:80".parse().unwrap()];
        assert_eq!(sources(&plan, plan.addresses[0], &rules), [None]);
    }
}

mod verify {
    use load::tls::{Verifier, error_text, is_about_the_issuer};
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{Error, RootCertStore};
    use std::sync::Arc;
    use std::time::Duration;

    /// Made by `openssl req -x509 -addext subjectAltName=DNS:localhost -days 36500`, valid from November 2026 on. The
    /// key belongs to test servers.
    const SELF_SIGNED: &[u8] = include_bytes!("self_signed.pem");

    fn judged(is_given: bool, name: &'static str, years: u64) -> Result<ServerCertVerified, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificate = CertificateDer::from_pem_slice(SELF_SIGNED).expect("it is a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).expect("it can be trusted");
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let given = if is_given { vec![certificate.clone()] } else { Vec::new() };
        let trusted = Some((authorities.build().expect("there is a root"), given));
        let verifier = Verifier { provider, trusted };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(years * 31_557_600));
        verifier.verify_server_cert(&certificate, &[], &ServerName::try_from(name).expect("a name"), &[], now)
    }

    #[test]
    fn a_trusted_self_signed_certificate_is_accepted_for_its_name_and_time() {
        assert!(judged(true, "localhost", 80).is_ok());
        let refused = |is_given, name, years| judged(is_given, name, years).expect_err("it is refused");
        assert!(is_about_the_issuer(&refused(false, "localhost", 80)), "not given: an authority is no server");
        let words = |error: &Error| error_text(error);
        assert!(words(&refused(true, "example.test", 80)).contains("another name"));
        assert!(words(&refused(true, "localhost", 200)).contains("expired"));
        assert!(words(&refused(true, "localhost", 20)).contains("not valid yet"));
    }
}

mod tls_errors {
    use load::tls::error_text;
    use rustls::{AlertDescription, CertificateError, Error, OtherError, PeerIncompatible};
    use std::sync::Arc;

    #[test]
    fn certificate_errors_name_the_problem_and_the_remedy() {
        let certificate = |bad| error_text(&Error::InvalidCertificate(bad));
        let name = || rustls::pki_types::ServerName::try_from("a.test").expect("a name");
        let of_names = |presented| CertificateError::NotValidForNameContext { expected: name(), presented };
        assert!(certificate(of_names(Vec::new())).contains("no subjectAltName"));
        assert!(certificate(of_names(vec!["b".into()])).contains("another name"));
        let other = |error| certificate(CertificateError::Other(OtherError(Arc::new(error))));
        assert!(other(webpki::Error::CaUsedAsEndEntity).contains("self-signed"));
        let old = other(webpki::Error::UnsupportedCertVersion);
        assert!(old.contains("subjectAltName") && !old.contains("insecure"), "that would not help: {old}");
        // Servers whose only key is P-521 send this alert.
        assert!(error_text(&Error::AlertReceived(AlertDescription::HandshakeFailure)).contains("not P-521"));
    }

    #[test]
    fn no_error_message_uses_names_of_the_library() {
        let other = |error| Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))));
        for error in [
            other(webpki::Error::CaUsedAsEndEntity),
            other(webpki::Error::UnsupportedCertVersion),
            other(webpki::Error::EmptyEkuExtension),
            Error::InvalidCertificate(CertificateError::UnknownIssuer),
            Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure),
            Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13),
            Error::AlertReceived(AlertDescription::HandshakeFailure),
            Error::AlertReceived(AlertDescription::Unknown(200)),
            Error::AlertReceived(AlertDescription::CertificateRequired),
            Error::NoApplicationProtocol,
            Error::DecryptError,
            Error::FailedToGetCurrentTime,
        ] {
            // These names of keys are allowed, because users know them.
            let words = error_text(&error).replace("Ed25519", "").replace("subjectAltName", "");
            let is_name =
                |word: &str| word.chars().skip(1).any(char::is_uppercase) && word.chars().any(char::is_lowercase);
            assert!(!words.split(|c: char| !c.is_alphanumeric()).any(is_name), "{words}");
        }
    }
}

mod commands {
    use load::worker::protocol::commands::{KeyDraws, Word};
    use record::LoadShare;
    use record::protocol::Keyspace;

    fn draws(keyspace: &Keyspace) -> KeyDraws {
        KeyDraws::new(keyspace, 1, LoadShare::one(0, 1))
    }

    #[test]
    fn a_word_has_a_key_and_a_value_where_its_template_says_so() {
        let mut draws = draws(&Keyspace { keys: 1, value_bytes: 3, ..Keyspace::default() });
        for (template, word) in
            [("GET", "GET"), ("key:{key}", "key:0"), ("{key}{value}-{key}", "0xxx-0"), ("{kex}", "{kex}"), ("", "")]
        {
            let mut out = Vec::new();
            Word::parse(template).put(&mut draws, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), word);
        }
    }

    #[test]
    fn keys_are_drawn_from_the_whole_space_and_by_zipfs_law() {
        let keyspace = Keyspace { keys: 50, ..Keyspace::default() };
        let count = |zipf_exponent| {
            let mut draws = draws(&Keyspace { zipf_exponent, ..keyspace.clone() });
            let mut counts = [0u32; 50];
            (0..20_000).for_each(|_| counts[draws.key() as usize] += 1);
            counts
        };
        let alike = count(0.0);
        assert!(alike.iter().all(|count| (250..550).contains(count)), "{alike:?}");
        let skewed = count(1.0);
        // The first has 1/H(50) = 22 % of the draws, twice as many as the second.
        assert!((4_100..4_800).contains(&skewed[0]) && (2_000..2_500).contains(&skewed[1]), "{skewed:?}");
    }
}

mod redis {
    use load::worker::protocol::{OrderedProtocol, Redis};
    use record::LoadShare;
    use record::protocol::RedisPlan;

    fn first(plan: &RedisPlan) -> String {
        let mut out = Vec::new();
        Redis::new(plan, 1, LoadShare::one(0, 1)).put(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_command_is_an_array_of_strings() {
        let commands = vec![vec!["MSET".to_string(), "k{key}".into(), "{value}".into()]];
        let mut plan = RedisPlan { commands, ..RedisPlan::default() };
        (plan.keyspace.keys, plan.keyspace.value_bytes) = (1, 2);
        assert_eq!(first(&plan), "*3\r\n$4\r\nMSET\r\n$2\r\nk0\r\n$2\r\nxx\r\n");
        plan.commands.clear();
        plan.keyspace.read_ratio = 1.0;
        assert_eq!(first(&plan), "*2\r\n$3\r\nGET\r\n$5\r\nkey:0\r\n");
    }
}

mod memcached {
    use load::replies::memcached as replies;
    use load::worker::protocol::{Memcached, OrderedProtocol};
    use record::LoadShare;
    use record::protocol::MemcachedPlan;

    fn first(plan: &MemcachedPlan) -> (String, u32) {
        let mut out = Vec::new();
        let target = Memcached::new(plan, 1, LoadShare::one(0, 1)).put(&mut out);
        (String::from_utf8(out).unwrap(), target)
    }

    #[test]
    fn a_get_may_have_several_keys_and_a_set_has_its_length() {
        let mut plan = MemcachedPlan { keys_per_get: 2, ..MemcachedPlan::default() };
        (plan.keyspace.keys, plan.keyspace.value_bytes, plan.keyspace.read_ratio) = (1, 3, 1.0);
        assert_eq!(first(&plan), ("get key:0 key:0\r\n".into(), 2));
        plan.keyspace.read_ratio = 0.0;
        assert_eq!(first(&plan), ("set key:0 0 0 3\r\nxxx\r\n".into(), 0));
        plan.is_meta = true;
        assert_eq!(first(&plan), ("ms key:0 3\r\nxxx\r\n".into(), replies::META));
        plan.keyspace.read_ratio = 1.0;
        assert_eq!(first(&plan), ("mg key:0 v\r\nmg key:0 v\r\n".into(), 2 | replies::META));
    }
}

mod traces {
    use load::worker::protocol::Traces;
    use record::LoadPlan;

    #[test]
    fn a_request_that_is_sent_in_parts_keeps_its_id() {
        let plan = LoadPlan { traceparent: true, ..LoadPlan::simple(([127, 0, 0, 1], 80).into()) };
        let mut traces = Traces::new(&plan, 2).ok().flatten().unwrap();
        for place in 0..2 {
            let id = traces.draw();
            traces.keep(place, id);
        }
        let line = format!("traceparent: 00-{:032}-{:016}-01\r\n", 0, 0);
        let bytes = format!("POST / HTTP/1.1\r\nHost: a\r\n{line}Content-Length: 3\r\n\r\nabc");
        let first = traces.patched(bytes.as_bytes(), 0, 0).to_vec();
        let other = traces.patched(bytes.as_bytes(), 1, 0).to_vec();
        assert_eq!(traces.patched(bytes.as_bytes(), 0, 30), first);
        assert_ne!(first, other);
        let text = String::from_utf8(first).unwrap();
        assert!(text.contains(&format!("\r\ntraceparent: 00-{}-", traces.id(0))), "{text}");
        assert_eq!(traces.patched(bytes.as_bytes(), 0, bytes.len()), bytes.as_bytes());
    }
}
