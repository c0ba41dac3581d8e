//! The `tidegate demo` command, run as a program.

use crate::support::program;

#[test]
fn demo_reports_success_without_human_refusals() {
    let ended = program::run(&["demo", "--seconds", "1", "--no-wait"], b"");
    let told = ended.output;
    assert_eq!(ended.code, 0, "{told}\n{}", ended.errors);
    assert!(told.contains("requests; 0 were refused."), "{told}");
    assert!(told.contains("Example of a refusal"), "{told}");
    assert!(told.contains("\"reason\":\"tier\""), "{told}");
    assert!(!told.contains('\x1b'), "no colors and no cursor movement when output is a pipe");
    assert!(!told.contains("Check failed"), "{told}");
    assert!(!told.contains("Ctrl-C"), "--no-wait exits without Ctrl-C");
}

#[test]
fn zero_second_demo_is_an_error() {
    assert_eq!(program::run(&["demo", "--seconds", "0"], b"").code, 2);
}
