//! The `tidegate demo` command, run as a program.

use crate::support::client::Client;
use crate::support::program::{self, Program};

/// The shortest demo, on free ports: others may run at the same time.
const DEMO: [&str; 7] = ["demo", "--seconds", "1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

#[test]
fn demo_reports_success_without_human_refusals() {
    let outcome = program::run(&[&DEMO[..], &["--no-wait"]].concat(), b"");
    let output = outcome.output;
    assert_eq!(outcome.code, 0, "{output}\n{}", outcome.errors);
    assert!(output.contains("requests; 0 were refused."), "{output}");
    assert!(output.contains("Example of a refusal"), "{output}");
    assert!(output.contains("\"reason\":\"tier\""), "{output}");
    assert!(!output.contains('\x1b'), "no colors and no cursor movement when output is a pipe");
    assert!(output.contains("Without it, the quota of 2,000 units is gone at "), "{output}");
    assert!(!output.contains("Check failed"), "{output}");
    assert!(!output.contains("Ctrl-C"), "--no-wait exits without Ctrl-C");
}

#[test]
fn demo_that_keeps_running_dates_all_responses_by_its_clock() {
    let mut demo = Program::start(&DEMO);
    let addresses = loop {
        let line = demo.read_line();
        if let Some(addresses) = line.trim().strip_prefix("http://") {
            break addresses.to_owned();
        }
    };
    let (listen, admin) = addresses.split_once(", admin http://").expect("two addresses");
    assert!(admin.starts_with("127.0.0.1:"), "{addresses}");
    let mut client = Client::connect(listen.parse().expect("an address"));
    let admitted = client.get("/item/1", "User-Agent: Mozilla/5.0 (X11) Gecko/20100101 Firefox/144.0\r\n");
    let refused = client.get("/item/1", "X-Forwarded-For: 203.0.113.9\r\nUser-Agent: Googlebot/2.1\r\n");
    assert_eq!((admitted.status, refused.status), (200, 429));
    for response in [admitted, refused] {
        assert!(response.field("date").starts_with("Sat, 05 Sep 2026 "), "{}", response.field("date"));
    }
    demo.signal("INT");
    assert_eq!(demo.wait_for_exit().code, 0);
}

#[test]
fn demo_leaves_nothing_in_its_working_directory_and_names_the_live_page_first() {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::create_dir(dir.path().join("state")).expect("an empty directory");
    let outcome = program::run_in(dir.path(), &[&DEMO[..], &["--no-wait"]].concat());
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    let entries = |path: &std::path::Path| std::fs::read_dir(path).expect("a directory").count();
    assert_eq!((entries(dir.path()), entries(&dir.path().join("state"))), (1, 0));
    let output = outcome.output;
    assert!(output.starts_with("Live page\n  open http://127.0.0.1:"), "{output}");
    let place = |text: &str| output.find(text).unwrap_or_else(|| panic!("{text} in {output}"));
    assert!(place("The day is over.") < place("Without it, the quota"));
    assert!(place("Without it, the quota") < place("Refusals by client"));
}

#[test]
fn help_of_commands_without_a_file_has_no_option_for_one() {
    for command in ["demo", "init", "schema", "completions", "man"] {
        let help = program::run(&[command, "--help"], b"").output;
        assert!(help.contains("Usage:") && !help.contains("--config"), "{command}: {help}");
    }
    let refused = program::run(&["demo", "--config", "x.yaml"], b"");
    assert_eq!(refused.code, 2);
    assert!(refused.errors.contains("--config has no effect here"), "{}", refused.errors);
    assert_eq!(program::run(&["--config", "x.yaml", "schema"], b"").code, 2);
    assert!(program::run(&["check", "--help"], b"").output.contains("--config"));
}

#[test]
fn demo_ends_well_when_its_reader_leaves() {
    let mut demo = Program::start(&[&DEMO[..], &["--no-wait"]].concat());
    demo.read_line();
    demo.close_output();
    let outcome = demo.wait_for_exit();
    assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""));
}

#[test]
fn zero_second_demo_is_an_error() {
    assert_eq!(program::run(&["demo", "--seconds", "0"], b"").code, 2);
}
