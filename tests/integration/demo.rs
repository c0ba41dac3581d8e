//! The newcomer's first minute, by the program itself.

use crate::support::program;

#[test]
fn the_demonstration_keeps_its_promises_and_says_so() {
    let ended = program::run(&["demo", "--seconds", "1", "--exit"], b"");
    let told = ended.output;
    assert_eq!(ended.code, 0, "{told}\n{}", ended.errors);
    assert!(told.contains("and were refused 0 times."), "{told}");
    assert!(told.contains("A refusal, as its client saw it"), "{told}");
    assert!(told.contains("\"reason\":\"tier\""), "{told}");
    assert!(!told.contains('\x1b'), "no colours and no redrawing into a pipe");
    assert!(!told.contains("Not as promised"), "{told}");
    assert!(!told.contains("Ctrl-C"), "it was told to leave");
}

#[test]
fn a_day_of_no_seconds_is_a_mistake() {
    assert_eq!(program::run(&["demo", "--seconds", "0"], b"").code, 2);
}
