//! HTTP/2: header compression, requests as blocks, messages of gRPC.

mod messages {
    use load::http2::messages::Messages;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_make_no_difference(lengths in prop::collection::vec(0..300usize, 0..8), size in 1..40usize) {
            let message = |length: &usize| [&[0u8][..], &(*length as u32).to_be_bytes(), &vec![3; *length]].concat();
            let bytes: Vec<u8> = lengths.iter().flat_map(message).collect();
            let mut messages = Messages::default();
            let counted: u32 = bytes.chunks(size).map(|piece| messages.take(piece)).sum();
            prop_assert_eq!(counted as usize, lengths.len());
        }
    }
}

mod requests {
    use load::http2::{LogRequestWriter, RequestBlocks, TableState};
    use proptest::prelude::*;
    use record::TraceId;

    type Fields = Vec<(Vec<u8>, Vec<u8>)>;

    fn fields(names: &[(&[u8], &[u8])]) -> Fields {
        names.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    }

    proptest! {
        /// httlib-hpack reads blocks of both codings, whenever the server shrinks its table.
        #[test]
        fn requests_are_read_by_another_implementation(
            steps in prop::collection::vec((0..3u8, 0..3usize, prop::option::of(0u32..5000)), 1..12),
            long in 0usize..6000,
        ) {
            let headers = [("X-Long".to_string(), "y".repeat(long)), ("Accept".to_string(), "a".to_string())];
            let paths = ["/a", "/b", "/c"];
            let mut requests = RequestBlocks::new("GET", "http", "example", &headers, paths.into_iter(), &b""[..]);
            requests.trace(TraceId::from_bits(5));
            let writer = LogRequestWriter::new("http", "example", &headers);
            let (mut coding, mut theirs) = (TableState::default(), httlib_hpack::Decoder::default());
            for (kind, target, limit) in steps {
                if let Some(limit) = limit {
                    coding.limit(limit);
                }
                let mut block = Vec::new();
                // A request of the plan, or one of a log without or with the length of its empty body.
                let has_length = kind == 2;
                if kind == 0 {
                    requests.put(target, &mut coding, &mut block);
                } else {
                    let written = writer.block(b"GET", paths[target].as_bytes(), has_length);
                    requests.put_block(&written, &mut coding, &mut block);
                }
                let mut read = Vec::new();
                theirs.decode(&mut block, &mut read).unwrap();
                let mut read: Fields = read.into_iter().map(|(name, value, _)| (name, value)).collect();
                let mut asked = fields(&[
                    (b":method", b"GET"),
                    (b":scheme", b"http"),
                    (b":authority", b"example"),
                    (b":path", paths[target].as_bytes()),
                    (b"x-long", headers[0].1.as_bytes()),
                    (b"accept", b"a"),
                    (b"traceparent", b"00-00000000000000010000000000000005-0000000000000005-01"),
                ]);
                asked.extend(has_length.then(|| (b"content-length".to_vec(), b"0".to_vec())));
                prop_assert!(read[..4].iter().all(|(name, _)| name[0] == b':'), "pseudo-fields come first");
                read.sort();
                asked.sort();
                prop_assert_eq!(read, asked);
            }
        }
    }
}

mod hpack {
    use load::framing::Parts;
    use load::http2::hpack::{FieldForm, Reader, TABLE_BYTES, put_field};
    use proptest::prelude::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    /// RFC 7541 appendix C.6: responses with a table of 256 bytes, whose entries are evicted.
    #[test]
    fn the_examples_of_the_standard_are_read() {
        let mut reader = Reader::default();
        reader.keeps_location = true;
        // The first block also shrinks the table.
        let first = "3fe1 01 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e \
                     919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3";
        let fields = reader.read(&bytes(first)).unwrap();
        assert_eq!((fields.status, fields.location.as_deref()), (302, Some(&b"https://www.example.com"[..])));
        assert_eq!(reader.table_size(), (222, 4));
        assert_eq!(reader.read(&bytes("4883 640e ff c1 c0 bf")).unwrap().status, 307);
        assert_eq!(reader.table_size(), (222, 4));
        let third = "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d \
                     d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 \
                     3d50 07";
        assert_eq!(reader.read(&bytes(third)).unwrap().status, 200);
        assert_eq!(reader.table_size(), (215, 3));
    }

    #[test]
    fn invalid_blocks_are_refused() {
        let refused = |block: &[u8]| Reader::default().read(block).unwrap_err();
        assert!(refused(&[0x80]).0.contains("an entry that no table has"));
        assert!(refused(&[0xbe]).0.contains("an entry that no table has"));
        assert!(refused(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]).0.contains("28 bits"));
        assert!(refused(&[0x3f, 0xe2, 0x1f]).0.contains("a larger table"));
        assert!(refused(&[0x40, 0x05, b'a']).0.contains("cut short"));
        for status in ["20", "2000", "2x0", "099"] {
            let mut block = vec![0x08, status.len() as u8];
            block.extend_from_slice(status.as_bytes());
            assert!(refused(&block).0.contains("three digits"), "{status}");
        }
    }

    #[test]
    fn a_block_that_expands_a_thousandfold_is_not_kept() {
        let mut reader = Reader::default();
        let mut block = Vec::new();
        put_field(&mut block, FieldForm::Kept, b"x", &[b'y'; 4000]);
        block.resize(60_000, 0xbe);
        assert_eq!(reader.read(&block).unwrap().status, 0);
        assert!(reader.memory_bytes() < 1000, "{}", reader.memory_bytes());
    }

    #[test]
    fn a_name_in_the_huffman_code_is_recognised() {
        let mut name = Vec::new();
        httlib_huffman::encode(b"content-encoding", &mut name).unwrap();
        let mut block = [&[0, 0x80 | name.len() as u8][..], &name, &[2, b'b', b'r']].concat();
        put_field(&mut block, FieldForm::Plain, b"content-type", b"application/jsonl");
        let mut ours = Reader::default();
        ours.reads_content_type = true;
        assert_eq!(ours.read(&block).unwrap().parts, Parts::Reads);
    }

    proptest! {
        /// httlib-hpack writes the blocks in every form; both tables must stay equal. A compressed body has unknown
        /// parts.
        #[test]
        fn fields_are_read_from_blocks_of_another_implementation(
            blocks in prop::collection::vec(
                (
                    (100u16..1000, 0u8..16),
                    (0u64..1 << 40, 0u8..16),
                    (any::<bool>(), 0u8..16),
                    prop::collection::vec(("[a-z-]{1,12}", "[ -~]{0,40}", 0u8..16), 0..12),
                ),
                1..12,
            )
        ) {
            let mut theirs = httlib_hpack::Encoder::default();
            let mut ours = Reader::default();
        ours.reads_content_type = true;
            for ((status, of_status), (length, of_length), (is_encoded, of_encoding), others) in blocks {
                let mut fields = vec![
                    (":status".to_string(), status.to_string(), of_status % 8),
                    ("content-length".into(), length.to_string(), of_length),
                    ("content-encoding".into(), if is_encoded { "gzip" } else { "identity" }.into(), of_encoding),
                    ("content-type".into(), "text/event-stream".into(), of_encoding),
                ];
                fields.extend(others);
                let mut block = Vec::new();
                for (name, value, flags) in fields {
                    let flags = flags | httlib_hpack::Encoder::BEST_FORMAT;
                    theirs.encode((name.into_bytes(), value.into_bytes(), flags), &mut block).unwrap();
                }
                let fields = ours.read(&block).unwrap();
                prop_assert_eq!((fields.status, fields.length), (status, Some(length)));
                prop_assert!(!fields.is_length_wrong);
                prop_assert_eq!(fields.parts, if is_encoded { Parts::Reads } else { Parts::Events });
            }
        }

        #[test]
        fn no_bytes_panic_or_enlarge_the_table(blocks: Vec<Vec<u8>>) {
            let mut reader = Reader::default();
            reader.keeps_location = true;
            for block in blocks {
                let _ = reader.read(&block);
                let (bytes, entries) = reader.table_size();
                prop_assert!(bytes <= TABLE_BYTES && entries <= 128);
            }
        }
    }
}

mod huffman {
    use load::http2::Malformed;
    use load::http2::huffman::decode;
    use proptest::prelude::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut text = Vec::new();
        decode(coded, |byte| text.push(byte)).map(|length| {
            assert_eq!(length, text.len());
            text
        })
    }

    #[test]
    fn wrong_padding_is_refused() {
        assert!(decoded(&[0xff]).is_err_and(|why| why.0.contains("Huffman")), "a byte of filling");
        assert!(decoded(&[0xff; 4]).is_err_and(|why| why.0.contains("Huffman")), "the end of a string in it");
        assert!(decoded(&[0x00]).is_err_and(|why| why.0.contains("Huffman")), "filled with zeros");
    }

    proptest! {
        #[test]
        fn every_text_of_another_implementation_is_decoded(text: Vec<u8>) {
            let mut coded = Vec::new();
            httlib_huffman::encode(&text, &mut coded).unwrap();
            prop_assert_eq!(decoded(&coded).unwrap(), text);
        }

        #[test]
        fn any_bytes_are_decoded_as_by_another_implementation(coded in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Ok(text) = decoded(&coded) {
                let mut again = Vec::new();
                httlib_huffman::encode(&text, &mut again).unwrap();
                prop_assert_eq!(again, coded, "one text has one code");
            }
        }
    }
}
