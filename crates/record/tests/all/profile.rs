use proptest::prelude::*;
use record::PlainText;
use record::layers::Layer;
use record::profile::folded::{Folded, FoldedError};
use record::profile::stacks::apportion;
use record::profile::{CpuMode, Frame, LayerRow, MEASUREMENT, Profile, Ran, SampleSums, SampledProcess, Stack, Stacks};

fn folded(text: &str) -> Folded {
    Folded::parse(text.as_bytes()).unwrap()
}

#[test]
fn folded_stacks_are_read_back_unchanged() {
    let text = "nginx;main;do_syscall_64_[k] 3\nnginx;main;a b c 4\n";
    assert_eq!(folded(&folded(text).to_text()), folded(text));
}

#[test]
fn a_wrong_line_is_named() {
    let sentence = Folded::parse("a;b 1\na;b\n".as_bytes()).unwrap_err().to_string();
    assert!(sentence.contains("line 2"), "{sentence}");
    assert!(matches!(Folded::parse("".as_bytes()), Err(FoldedError::Empty)));
}

proptest! {
    #[test]
    fn no_text_panics_the_reader(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Folded::parse(text.as_slice());
    }
}

fn stack(functions: &[u32], layer: Option<Layer>, samples: u64) -> Stack {
    Stack {
        functions: functions.to_vec(),
        process: Some(0),
        ran: Ran::Server,
        mode: CpuMode::Kernel,
        layer,
        part: PlainText::default(),
        samples,
        cpu_ns: 0,
        events: Vec::new(),
    }
}

fn named(names: &[&str]) -> Vec<Frame> {
    let frame = |name: &&str| Frame { function: (*name).into(), module: None, is_kernel: false };
    names.iter().map(frame).collect()
}

#[test]
fn a_name_cannot_break_its_frame_or_its_line() {
    let stacks = Stacks {
        processes: vec![SampledProcess { pid: 1, name: "my;server ".into() }],
        functions: named(&["Ljava/lang/String;::hashCode", " ", "a b"]),
        stacks: vec![stack(&[0, 1, 2], None, 3)],
        ..Stacks::default()
    };
    let text = stacks.folded().to_text();
    assert_eq!(text, "my:server;a b;[unknown];Ljava/lang/String:::hashCode 3\n");
    assert_eq!(Folded::parse(text.as_bytes()).unwrap(), stacks.folded());
}

#[test]
fn functions_that_divide_the_work_are_listed_with_their_callees() {
    let functions = ["main", "loop", "render", "quote", "[libc.so.6]"];
    let mut functions = named(&functions);
    functions.push(Frame { function: "__x64_sys_write".into(), module: None, is_kernel: true });
    functions.push(Frame { function: "vfs_write".into(), module: None, is_kernel: true });
    let user =
        |functions: &[u32], samples| Stack { mode: CpuMode::User, ..stack(functions, Some(Layer::User), samples) };
    let profile = Profile {
        samples: SampleSums { server_in_own_process: 100, ..SampleSums::default() },
        sample_ns: 1e6,
        stacks: Stacks {
            functions,
            stacks: vec![
                user(&[3, 2, 1, 1, 0], 40),
                user(&[2, 1, 1, 0], 10),
                user(&[4, 1, 1, 0], 12),
                stack(&[6, 5], Some(Layer::SystemCall), 38),
            ],
            ..Stacks::default()
        },
        ..Profile::default()
    };
    let listed = profile.point_with_callees(1000);
    let listed: Vec<(&str, u64)> = listed.iter().map(|cost| (cost.function.as_str(), cost.samples)).collect();
    assert_eq!(listed, [("quote", 40), ("render", 50), ("__x64_sys_write", 38)]);
    assert_eq!(profile.point_with_callees(0), []);
}

#[test]
fn weighted_stacks_have_the_time_of_their_layers_in_the_table() {
    let row = |layer, cpu_ns| LayerRow {
        layer,
        part: String::new(),
        samples: 0,
        cpu_ns,
        share_ratio: None,
        us_per_packet: None,
        us_per_request: None,
        events_per_packet: Default::default(),
    };
    let profile = Profile {
        layers: vec![row(Some(Layer::Tcp), 100.4), row(Some(Layer::Driver), 7.0), row(Some(Layer::Other), 1.0)],
        stacks: Stacks {
            processes: vec![SampledProcess { pid: 1, name: "server".into() }],
            functions: named(&["a", "b", "bpf"]),
            stacks: vec![
                stack(&[0], Some(Layer::Tcp), 1),
                stack(&[1], Some(Layer::Tcp), 2),
                Stack { part: MEASUREMENT.into(), ..stack(&[2], Some(Layer::Other), 5) },
                stack(&[1], Some(Layer::Other), 5),
            ],
            ..Stacks::default()
        },
        ..Profile::default()
    };
    let cpu = |profile: &Profile| -> Vec<(Option<Layer>, u64)> {
        let stacks = profile.weighed_stacks();
        assert_eq!(stacks.fault(), None);
        stacks.stacks.iter().map(|stack| (stack.layer, stack.cpu_ns)).collect()
    };
    let (tcp, other) = (Some(Layer::Tcp), Some(Layer::Other));
    assert_eq!(cpu(&profile), [(tcp, 33), (tcp, 67), (other, 1), (other, 0)], "the table has the driver, no sample");
}

proptest! {
    #[test]
    fn the_parts_of_a_layer_add_up_to_the_layer(
        weights in prop::collection::vec((0usize..3, 0u64..1000), 0..60),
        each in 0.0f64..1e7,
    ) {
        let layers = [None, Some(Layer::User), Some(Layer::Tcp)];
        let parts: Vec<_> = weights.into_iter().map(|(layer, weight)| (layers[layer], weight)).collect();
        let sum = |layer, of: &[u64]| -> u64 {
            parts.iter().zip(of).filter(|((is, _), _)| *is == layer).map(|(_, part)| part).sum()
        };
        let weights: Vec<u64> = parts.iter().map(|(_, weight)| *weight).collect();
        let has = |layer| sum(layer, &weights) as f64 * each;
        let divided = apportion(&parts, has);
        for layer in layers {
            prop_assert_eq!(sum(layer, &divided), has(layer).round() as u64);
        }
        for ((_, weight), part) in parts.iter().zip(&divided) {
            prop_assert!((*part as f64 - *weight as f64 * each).abs() <= 1.0, "{} of {}", part, weight);
        }
    }
}
