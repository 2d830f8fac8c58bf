use proptest::prelude::*;
use record::Share;

proptest! {
    #[test]
    fn unequal_shares_and_their_threads_add_up_and_contain_each_key_once(
        total in 0u64..3000, machines in prop::collection::vec((1u32..9, 1u32..5), 1..9)
    ) {
        let weights: Vec<u32> = machines.iter().map(|(weight, _)| *weight).collect();
        let shares = Share::by_weight(&weights);
        prop_assert!(shares.iter().all(Share::exists));
        prop_assert!((shares.iter().map(|share| share.fraction()).sum::<f64>() - 1.0).abs() < 1e-9);
        let mut owners = vec![0; total as usize];
        for (share, (_, threads)) in shares.iter().zip(&machines) {
            let held = (0..total).filter(|key| share.holds(*key)).count() as u64;
            prop_assert_eq!(held, share.part(total));
            let threads = (0..*threads).map(|thread| Share::one(thread, *threads).within(*share));
            for thread in threads {
                prop_assert!(thread.exists());
                let keys: Vec<u64> = (0..total).filter(|key| thread.holds(*key)).collect();
                prop_assert!(keys.iter().all(|key| share.holds(*key)));
                keys.iter().for_each(|key| owners[*key as usize] += 1);
            }
        }
        prop_assert!(owners.iter().all(|owners| *owners == 1));
    }

    #[test]
    fn shares_are_nearly_equal_and_add_up_to_the_total(total in any::<u64>(), of in 1u32..2000) {
        let parts: Vec<u64> = (0..of).map(|index| Share::one(index, of).part(total)).collect();
        prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(total));
        prop_assert!(parts.is_sorted_by(|one, next| one >= next) && parts[0] - parts[parts.len() - 1] <= 1);
    }
}
