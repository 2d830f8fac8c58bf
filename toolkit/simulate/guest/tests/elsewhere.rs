//! The program outside of a guest.

#[test]
fn what_is_no_first_process_does_nothing() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_simulate-guest-init")).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("first process of a simulated machine"));
}
