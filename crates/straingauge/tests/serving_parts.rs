//! Small HTTP servers: metrics and live reports.

mod serve {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::Arc;
    use straingauge::serve::{HttpRequest, HttpServer, Response, Site, parsed};

    #[test]
    fn a_request_has_one_target_and_one_host() {
        let of = |head: &str| {
            let request = parsed(head.as_bytes());
            (request.target.to_string(), request.host.map(String::from))
        };
        assert_eq!(
            of("GET /a?b HTTP/1.1\r\nAccept: */*\r\nhOST: localhost:80 \r\n\r\n"),
            ("/a?b".into(), Some("localhost:80".into()))
        );
        assert_eq!(of("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), ("/".into(), None));
        assert_eq!(of("POST / HTTP/1.1\r\n\r\n"), (String::new(), None));
        assert_eq!(of("\r\n\r\n"), (String::new(), None));
    }

    /// A site with large first news and then endless further ones.
    struct Endless;

    impl Site for Endless {
        fn answer(&self, _: &HttpRequest<'_>) -> Response {
            Response::Stream(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())
        }

        fn news(&self, seen: u64) -> Option<(u64, Vec<u8>)> {
            (seen < 2).then(|| (seen + 1, vec![b'x'; 16 << 20]))
        }
    }

    #[test]
    fn followers_that_do_not_read_delay_neither_others_nor_the_end() {
        let mut server = HttpServer::bind(SocketAddr::from(([127, 0, 0, 1], 0)), 4).expect("a port");
        let address = server.address();
        server.serve("test", Arc::new(Endless)).expect("a thread");
        let connect = || {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
            stream
        };
        // More connections than the server keeps, so that the oldest are closed.
        let silent: Vec<TcpStream> = (0..8).map(|_| connect()).collect();
        let mut reader = connect();
        let mut count = 0;
        let mut chunk = vec![0; 1 << 20];
        while count < 32 << 20 {
            count += reader.read(&mut chunk).expect("news");
        }
        assert!(server.followers() <= 4, "{}", server.followers());
        server.end();
        drop(silent);
    }
}

mod exporter {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Instant;
    use straingauge::metrics::exporter::Exporter;
    use straingauge::serve::IO_TIMEOUT;

    /// Only a response ends the waits in this test: the idle connections neither send nor close.
    #[test]
    fn idle_connections_do_not_delay_a_scrape() {
        let mut exporter = Exporter::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let address = exporter.address();
        exporter.serve().expect("a thread");
        let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        for _ in 0..3 {
            let mut stream = TcpStream::connect(address).expect("it listens");
            let began = Instant::now();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it reads");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("an answer");
            assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
            assert!(began.elapsed() < IO_TIMEOUT, "it did not wait for the idle ones to be given up");
        }
        drop(idle);
    }
}

mod live {
    use straingauge::commands::find::live::{check, is_loopback, token};

    #[test]
    fn only_loopback_addresses_and_hosts_are_served() {
        for (address, expected) in
            [("127.0.0.1:80", true), ("[::1]:0", true), ("0.0.0.0:80", false), ("192.0.2.1:80", false)]
        {
            assert_eq!(check(address.parse().expect("an address")).is_ok(), expected, "{address}");
        }
        for host in ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in
            ["", "example.org", "127.0.0.1.example.org:80", "localhost.example.org", "10.0.0.1", ":80", "[::2]:80"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn tokens_are_long_and_never_repeat() {
        let tokens: std::collections::BTreeSet<String> = (0..100).map(|_| token().expect("random bits")).collect();
        assert!(tokens.len() == 100 && tokens.iter().all(|token| token.len() == 32), "{tokens:?}");
    }
}

mod report {
    use crate::rig::{run, straingauge};
    use std::fs;

    #[test]
    fn an_unwritable_run_is_reported_without_a_page() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = folder.path().to_str().expect("temporary paths are text");
        fs::write(folder.path().join("run.json"), include_bytes!("../../../fuzz/valid/run.json")).expect("ours");
        // A folder in the file's place stops even root.
        fs::create_dir(folder.path().join("report.html")).expect("ours");
        run(&mut straingauge(["report", place, "--json"])).exits_with(0);
        let why = run(&mut straingauge(["report", place])).exits_with(1).err;
        assert!(why.contains("report.html") && why.contains("--page") && !why.contains("--out"), "{why}");
    }
}
