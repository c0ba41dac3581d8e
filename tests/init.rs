//! A first YAML from a log, with the real program: what it proposes is a file that it accepts.

mod support;

use support::program::{Ended, run};
use tidegate::demo::day;

#[test]
fn what_is_proposed_is_accepted() {
    let Ended { code, output: yaml, errors } = run(&["init", "-"], made_up_day().as_bytes());
    assert_eq!((code, errors.as_str()), (0, ""));
    let summary = checked(&yaml);
    for told in ["/item/*: 1 of pages", "/category/*: 1 of pages", "/search: 1 of pages", "bingbot or googlebot"] {
        assert!(summary.contains(told), "{told}\n{yaml}\n{summary}");
    }
}

#[test]
fn logs_of_real_sites_lead_to_files_that_are_accepted() {
    let Some(shared) = support::shared() else { return };
    for name in ["semicomplete-2015", "wordpress-2022"] {
        let log = shared.join(format!("data/logs/{name}.combined.log.gz"));
        let log = log.to_str().expect("a path as text");
        let [once, twice] = [(); 2].map(|()| run(&["init", log], b""));
        assert_eq!((once.code, once.errors.as_str()), (0, ""), "{name}");
        assert_eq!(once.output, twice.output, "{name}");
        checked(&once.output);
    }
}

#[test]
fn a_log_without_requests_leads_nowhere() {
    let Ended { code, output, errors } = run(&["init", "-"], b"\n");
    assert_eq!((code, output.as_str()), (2, ""));
    assert!(errors.starts_with("-: no request in 1 lines; give an access log"), "{errors}");
    assert_eq!(run(&["init", "nowhere.log"], b"").code, 1);
    assert_eq!(run(&["init"], b"").code, 2);
}

/// What `tidegate check` says of it.
fn checked(yaml: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder of its own");
    let file = folder.path().join("proposed.yaml");
    std::fs::write(&file, yaml).expect("it can be written");
    let Ended { code, output, errors } = run(&["check", file.to_str().expect("a path as text")], b"");
    assert_eq!((code, errors.as_str()), (0, ""), "{yaml}");
    output
}

fn made_up_day() -> String {
    tidegate::demo::log::lines(1, &day::generate(1, 0.1)).collect()
}
