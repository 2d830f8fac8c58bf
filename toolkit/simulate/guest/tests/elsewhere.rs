//! Tests of the program outside a guest.

#[test]
fn a_process_other_than_the_first_does_nothing() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_simulate-guest-init")).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("first process of a simulated machine"));
}
