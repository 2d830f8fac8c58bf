//! Flame graphs.

use record::profile::Folded;
use report::flame::{draw, draw_cost_difference, draw_difference};

fn folded(text: &str) -> Folded {
    Folded::parse(text.as_bytes()).unwrap()
}

#[test]
fn a_helper_has_the_colour_of_its_caller() {
    let picture = draw(&folded("s;main;do_syscall_64_[k];tcp_sendmsg_[k];memcpy_[k] 10\n"), "t");
    assert_eq!(picture.matches("#e8956b").count(), 3, "legend, tcp_sendmsg, memcpy");
}

#[test]
fn names_cannot_break_the_markup() {
    let picture = draw(&folded("s;<script>alert(1)</script> 10\n"), "\"><x");
    assert!(!picture.contains("<script") && !picture.contains("<x"), "{picture}");
}

#[test]
fn growing_functions_are_red_and_shrinking_ones_blue() {
    let before = folded("s;a 50\ns;b 50\n");
    let picture = draw_difference(&before, &folded("s;a 90\ns;b 10\n"), "t");
    assert!(picture.contains("a (50.00 % -> 90.00 %)"), "{picture}");
    assert_eq!(picture.matches("#f06e6e").count(), 2, "legend and a: {picture}");
    assert_eq!(picture.matches("#6e6ef0").count(), 2, "legend and b: {picture}");
}

#[test]
fn costs_per_request_are_compared_instead_of_shares() {
    let picture = draw_cost_difference(&folded("s;a 1000000\ns;b 1000000\n"), &folded("s;a 3000000\ns;b 1000000\n"));
    assert!(picture.contains("a (1.000 us -> 3.000 us per request)"), "{picture}");
    assert!(picture.contains("b (1.000 us -> 1.000 us per request)"), "its share fell, its cost did not: {picture}");
    assert_eq!(picture.matches("#eeeeee").count(), 2, "the legend's and b: {picture}");
}

#[test]
fn no_samples_give_an_empty_picture_not_a_panic() {
    assert!(draw(&Folded::default(), "t").ends_with("</svg>\n"));
}
