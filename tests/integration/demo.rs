//! The `tidegate demo` command, run as a program.

use crate::support::program;

#[test]
fn demo_reports_success_without_human_refusals() {
    let outcome = program::run(&["demo", "--seconds", "1", "--no-wait"], b"");
    let output = outcome.output;
    assert_eq!(outcome.code, 0, "{output}\n{}", outcome.errors);
    assert!(output.contains("requests; 0 were refused."), "{output}");
    assert!(output.contains("Example of a refusal"), "{output}");
    assert!(output.contains("\"reason\":\"tier\""), "{output}");
    assert!(!output.contains('\x1b'), "no colors and no cursor movement when output is a pipe");
    assert!(!output.contains("Check failed"), "{output}");
    assert!(!output.contains("Ctrl-C"), "--no-wait exits without Ctrl-C");
}

#[test]
fn zero_second_demo_is_an_error() {
    assert_eq!(program::run(&["demo", "--seconds", "0"], b"").code, 2);
}
