//! Tests of mixes against the tables of their sources.

use super::data;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use workload::mix::{Document, HybridSizes, LogDocuments, Mix, SizeFit, SurgeParameters};
use workload::trace::{LogFormat, TraceReader};

/// (files, KBytes, access probability) by item, as printed in Webmonitor's Table 1.
const TABLE_1: [(&str, usize, u64, f64); 4] =
    [("html", 24, 180, 0.192), ("image", 29, 385, 0.754), ("sound", 20, 3580, 0.05), ("video", 4, 9216, 0.004)];

#[test]
fn the_webstone_mix_equals_table_1_to_the_byte() {
    let mix = Mix::webstone();
    assert_eq!(mix.documents.len(), 77);
    for (item, files, kbytes, probability) in TABLE_1 {
        let is_of_item = |document: &&Document| document.url.starts_with(&format!("/webstone/{item}/"));
        let of_item: Vec<_> = mix.documents.iter().filter(is_of_item).collect();
        assert_eq!(of_item.len(), files, "{item}");
        assert_eq!(of_item.iter().map(|document| document.bytes).sum::<u64>(), kbytes * 1024, "{item}");
        let total: f64 = of_item.iter().map(|document| document.probability).sum();
        assert!((total - probability).abs() < 1e-12, "{item}");
    }
    assert!((mix.documents.iter().map(|document| document.probability).sum::<f64>() - 1.0).abs() < 1e-12);
    // Section 5: class 1 is 94.6 % of the requests with a mean of 12.1 KB, class 2 5 %, class 3 2.3 MB.
    let class_1: Vec<_> = mix.documents.iter().filter(|d| mix.classes.class_of(d.bytes) == 0).collect();
    let share: f64 = class_1.iter().map(|document| document.probability).sum();
    let mean = class_1.iter().map(|document| document.probability * document.bytes as f64).sum::<f64>() / share;
    assert!((share - 0.946).abs() < 1e-9 && (mean / 1024.0 - 12.1).abs() < 0.05, "{share} {mean}");
}

#[test]
fn the_surge_mix_has_its_published_shape() {
    let parameters = SurgeParameters::default();
    let mix = Mix::surge(&parameters).unwrap();
    let mut sizes: Vec<f64> = mix.documents.iter().map(|document| document.bytes as f64).collect();
    sizes.sort_by(f64::total_cmp);
    assert_eq!(sizes.len(), 2000);
    let in_tail = sizes.iter().filter(|bytes| **bytes >= 133_000.0).count();
    assert_eq!(in_tail, 140, "7 % of the files");
    // The median of the truncated lognormal: half of its 0.93 lies below, of 0.968 below the cut.
    assert!((sizes[930] / 11_000.0 - 1.0).abs() < 0.1, "{}", sizes[930]);
    // By Zipf's law the second document is requested half as often as the first, and the tenth a tenth as often.
    let p = |rank: usize| mix.documents[rank - 1].probability;
    assert!((p(1) / p(2) - 2.0).abs() < 1e-9 && (p(1) / p(10) - 10.0).abs() < 1e-9);
    let total_bytes: u64 = mix.documents.iter().map(|document| document.bytes).sum();
    assert!(total_bytes < 1 << 30, "{total_bytes}");
}

#[test]
fn a_fit_finds_the_parameters_that_made_the_sizes() {
    let truth =
        HybridSizes { body_mu: 9.0, body_sigma: 1.2, tail_from_bytes: 60_000.0, tail_alpha: 1.2, tail_ratio: 0.08 };
    let (mut covered, mut checked) = (0, 0);
    for seed in 0..5 {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let sizes = (0..20_000).map(|_| truth.quantile(rng.random::<f64>()) as u64).collect();
        let fit = SizeFit::fit(sizes).unwrap();
        assert!((fit.tail_alpha.value / truth.tail_alpha - 1.0).abs() < 0.25, "{fit}");
        assert!(
            (fit.body_mu.value - truth.body_mu).abs() < 0.2 && (fit.body_sigma.value - truth.body_sigma).abs() < 0.15,
            "{fit}"
        );
        assert!(fit.distance < 2.0 * fit.critical_distance(), "{fit}");
        for (interval, value) in
            [(fit.tail_alpha, truth.tail_alpha), (fit.body_mu, truth.body_mu), (fit.body_sigma, truth.body_sigma)]
        {
            covered += i32::from(interval.low <= value && value <= interval.high);
            checked += 1;
        }
    }
    // The intervals take the start of the tail as known, so they cover the true value in fewer than 95 % of cases.
    // They must still cover it in 60 %.
    assert!(covered * 10 >= checked * 6, "{covered} of {checked}");
}

#[test]
fn a_bad_fit_is_reported() {
    let sizes = (0..3000u64).map(|index| if index % 2 == 0 { 100 } else { 1_000_000 } + index).collect();
    let fit = SizeFit::fit(sizes).unwrap();
    assert!(fit.to_string().contains("the fit is rejected"), "{fit}");
    assert!(SizeFit::fit(vec![5; 99]).unwrap_err().to_string().starts_with("99 documents with a size are too few"));
}

#[test]
fn a_mix_fitted_to_the_real_log_resembles_it() {
    let Some(log) = data::public("apache_access_2015.log") else { return };
    let mut reader = TraceReader::open(&log, &LogFormat::Auto).unwrap();
    let documents = LogDocuments::read(&mut reader).unwrap();
    let fit = documents.size_fit().unwrap();
    let zipf = documents.zipf_fit().unwrap();
    eprintln!("{fit}\n  popularity Zipf: exponent {}", zipf.exponent);
    assert_eq!((documents.len(), documents.requests), (1340, 9091));
    assert!((0.5..3.0).contains(&fit.tail_alpha.value) && (0.3..1.5).contains(&zipf.exponent.value));
    let mix = documents.mix().unwrap();
    assert_eq!(mix.documents.len(), 1340);
    assert!(mix.documents.iter().all(|document| document.bytes <= fit.largest_bytes));
}

#[test]
fn the_error_for_an_unknown_mix_names_the_known_ones() {
    let message = Mix::named("webstoned").unwrap_err().to_string();
    assert_eq!(message, "unknown size mix 'webstoned': use webstone or surge, or fit one to an access log");
    for name in workload::mix::NAMES {
        assert_eq!(Mix::named(name).unwrap().name, *name);
    }
}

proptest! {
    #[test]
    fn any_sizes_are_fitted_without_panic(
        sizes in proptest::collection::vec(prop_oneof![0u64..10, any::<u64>(), Just(4096u64)], 0..400),
    ) {
        if let Ok(fit) = SizeFit::fit(sizes) {
            prop_assert!(fit.distance.is_finite() && fit.tail_from_bytes >= 1.0);
            let _ = fit.to_string();
        }
    }
}

mod popularity {
    use workload::mix::{ZipfFit, zipf};

    #[test]
    fn the_exponent_of_exact_counts_is_recovered() {
        for exponent in [0.0, 0.7, 1.0, 1.4] {
            let counts = zipf(500, exponent).iter().map(|p| (p * 1e9) as u64).collect();
            let fit = ZipfFit::fit(counts).unwrap();
            assert!((fit.exponent.value - exponent).abs() < 1e-3, "{exponent}: {fit:?}");
        }
        assert_eq!(ZipfFit::fit(vec![5]), None);
    }
}

mod hybrid {
    use proptest::prelude::*;
    use workload::mix::{HybridSizes, dealt};

    #[test]
    fn first_ranks_cover_the_sizes_evenly() {
        let order = dealt(1000);
        let mut seen = order.clone();
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        assert!(order[0].abs_diff(500) <= 1, "the most popular document has the median size");
        let mean_of_ten = order[..10].iter().sum::<usize>() as f64 / 10.0;
        assert!((mean_of_ten - 500.0).abs() < 100.0, "{mean_of_ten}");
    }

    proptest! {
        #[test]
        fn quantiles_invert_the_distribution(
            mu in 5.0f64..12.0, sigma in 0.3f64..2.5, shift in 0.0f64..2.0,
            alpha in 0.6f64..3.0, tail in 0.01f64..0.4, ratio in 0.001f64..0.999,
        ) {
            let sizes = HybridSizes {
                body_mu: mu, body_sigma: sigma,
                tail_from_bytes: (mu + shift * sigma).exp(), tail_alpha: alpha, tail_ratio: tail,
            };
            let bytes = sizes.quantile(ratio);
            prop_assume!(bytes > 1.0);
            prop_assert!((sizes.cdf(bytes) - ratio).abs() < 1e-6, "{bytes}: {} instead of {ratio}", sizes.cdf(bytes));
        }
    }
}

mod classes {
    use workload::mix::MixClasses;

    #[test]
    fn a_boundary_belongs_to_the_smaller_class() {
        let classes = MixClasses::default();
        assert_eq!([0, 65_536, 65_537, 1 << 20, (1 << 20) + 1].map(|bytes| classes.class_of(bytes)), [0, 0, 1, 1, 2]);
        let labels: Vec<String> = classes.named().into_iter().map(|class| class.label).collect();
        assert_eq!(labels, ["to 64.0 KiB", "64.0 KiB to 1.00 MiB", "over 1.00 MiB"]);
        assert_eq!(MixClasses::parse("64KiB,1MiB").unwrap(), classes);
        assert!(MixClasses::parse("1MiB,64KiB").is_err());
        assert!(MixClasses::parse("big").is_err());
        assert_eq!(MixClasses::new(vec![]).unwrap().named()[0].label, "all sizes");
    }
}
