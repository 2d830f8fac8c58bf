//! Scales, markers and labels of charts.

use proptest::prelude::*;
use record::units::format_si;
use report::chart::{Chart, Marker, Scale, Size, spread};

fn labels(scale: &Scale, room: usize) -> Vec<String> {
    scale.ticks(room).into_iter().map(|(_, label)| label).collect()
}

#[test]
fn ticks_are_round() {
    let rates = Scale::linear([92_000.0].into_iter(), format_si);
    assert_eq!(labels(&rates, 5), ["0", "20k", "40k", "60k", "80k"]);
    let connections = Scale::doublings([1.0, 4096.0].into_iter());
    assert_eq!(labels(&connections, 7), ["1", "4", "16", "64", "256", "1,024", "4,096"]);
    let times = Scale::times_us([80.0, 130_000.0].into_iter());
    assert_eq!(labels(&times, 6), ["100 us", "1 ms", "10 ms", "100 ms"]);
    assert_eq!(labels(&Scale::Nines { nines: 4 }, 9), ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
}

#[test]
fn labels_of_small_numbers_differ() {
    let ratios = Scale::ratios([0.002, 1.0].into_iter());
    assert_eq!(labels(&ratios, 7), ["0.003", "0.01", "0.03", "0.1", "0.3", "1"]);
    let lone = Scale::doublings([100.0].into_iter());
    assert_eq!(labels(&lone, 5), ["64", "128", "256"]);
    let one = Scale::doublings([1.0].into_iter());
    assert_eq!(labels(&one, 5), ["1", "2"]);
}

#[test]
fn many_markers_do_not_shrink_the_plot() {
    let words: fn(f64) -> String = |value| format!("{value}");
    let mut chart =
        Chart::empty("t", "x", "y", Scale::linear([1.0].into_iter(), words), Scale::linear([1.0].into_iter(), words));
    let marker =
        |n: u32| Marker { label: "worse, kernel 6.12.0".into(), at: f64::from(n) / 48.0, interval: (None, None) };
    chart.markers = (0..48).map(marker).collect();
    let svg = chart.svg("c", Size { width: 540.0, height: 300.0 }, chart.margins(300.0));
    let plot = svg.split("data-plot=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let ends: Vec<f64> = plot.split(' ').map(|end| end.parse().unwrap()).collect();
    assert!(ends[3] - ends[1] > 150.0, "{plot}");
    assert_eq!(svg.matches("class=\"marker\"").count(), 48, "each has its line");
}

#[test]
fn touching_labels_are_centred_on_their_wanted_positions() {
    assert_eq!(spread(&[50.0, 50.0, 90.0], 10.0, 0.0, 100.0), vec![45.0, 55.0, 90.0]);
    assert_eq!(spread(&[99.0, 98.0], 10.0, 0.0, 100.0), vec![100.0, 90.0]);
}

proptest! {
    #[test]
    fn any_values_give_a_scale(values in prop::collection::vec(any::<f64>(), 0..10), room in 0usize..40) {
        for scale in [
            Scale::linear(values.iter().copied(), format_si),
            Scale::doublings(values.iter().copied()),
            Scale::times_us(values.iter().copied()),
            Scale::counts(values.iter().copied()),
            Scale::ratios(values.iter().copied()),
        ] {
            prop_assert!((2..200).contains(&scale.ticks(room).len()), "{:?}", scale.ticks(room));
            for value in &values {
                prop_assert!(scale.place(*value).is_none_or(f64::is_finite));
            }
        }
    }

    #[test]
    fn labels_never_overlap_or_leave_the_chart(wanted in prop::collection::vec(-50.0f64..250.0, 1..10)) {
        let mut placed = spread(&wanted, 14.0, 0.0, 200.0);
        placed.sort_by(f64::total_cmp);
        prop_assert!(placed[0] >= -1e-6 && placed[placed.len() - 1] <= 200.0 + 1e-6, "{:?}", placed);
        prop_assert!(placed.windows(2).all(|pair| pair[1] - pair[0] >= 14.0 - 1e-6), "{:?}", placed);
    }
}
