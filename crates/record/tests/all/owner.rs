use record::owner::{Owner, OwnerState};

#[test]
fn an_owners_text_is_read_back_and_other_text_is_refused() {
    let owner = Owner::of_this_process();
    assert_eq!(Owner::parse(&owner.to_string()), Some(owner));
    for other in ["", "1", "1-2", "0-2-3", "1-2-3-4", "+1-2-3", "1--3", "1-2-g", "1-2-100000000", "x-2-3"] {
        assert_eq!(Owner::parse(other), None, "{other}");
    }
}

#[test]
fn an_owner_is_alive_only_with_its_start_time_and_on_this_machine() {
    let this = Owner::of_this_process();
    assert_eq!(this.life(), OwnerState::Alive);
    let later = Owner { start_ticks: this.start_ticks + 1, ..this };
    assert_eq!(later.life(), OwnerState::Ended, "the same number given to another process");
    assert_eq!(Owner { place: !this.place, ..this }.life(), OwnerState::Elsewhere);
}
