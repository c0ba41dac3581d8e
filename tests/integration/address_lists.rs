//! Address lists from files: membership, changes of a file, and invalid files.

use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use std::path::Path;
use tidegate::cli::check;

#[test]
fn list_membership_follows_the_file() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("hosting.txt");
    let write = |text: &str| std::fs::write(&file, text).expect("file is writable");
    write("# rented machines\n192.0.2.0/24\n2001:db8:7::/48\n");
    let origin = Origin::plain();
    let gateway = TestGateway::with_rules(origin.address(), &rules(&file));
    let mut client = gateway.connect();
    let mut status =
        |from: &str| client.get("/", &format!("X-Forwarded-For: {from}\r\nUser-Agent: Mozilla/5.0\r\n")).status;
    assert_eq!(["192.0.2.7", "2001:db8:7::1", "198.51.100.7"].map(&mut status), [429, 429, 200]);
    assert_eq!(gateway.metric(r#"tidegate_address_list_networks{list="hosting"}"#), 2.0);

    write("198.51.100.7\n");
    gateway.reload_files();
    assert_eq!(["192.0.2.7", "198.51.100.7"].map(&mut status), [200, 429]);
    assert_eq!(gateway.metric(r#"tidegate_address_list_networks{list="hosting"}"#), 1.0);

    write("198.51.100\n");
    gateway.reload_files();
    assert_eq!(["192.0.2.7", "198.51.100.7"].map(&mut status), [200, 429], "the previous list stays current");
    let notes = |gateway: &TestGateway| gateway.state()["notes"].to_string();
    assert!(
        notes(&gateway).contains("address_lists.hosting: ") && notes(&gateway).contains("hosting.txt:1: "),
        "{}",
        notes(&gateway)
    );
    assert_eq!(gateway.metric(r#"tidegate_address_list_stale{list="hosting"}"#), 1.0);
    let error = gateway.reload(origin.address(), &rules(&file)).expect_err("the file is invalid");
    assert!(error.contains("hosting.txt:1: \"198.51.100\" is not an address or network; write e.g."), "{error}");

    write("203.0.113.0/24\n");
    gateway.reload(origin.address(), &rules(&file)).expect("the file is valid again");
    assert_eq!(["203.0.113.1", "198.51.100.7"].map(&mut status), [429, 200]);
    assert!(!notes(&gateway).contains("address_lists.hosting"), "{}", notes(&gateway));
    assert_eq!(gateway.metric(r#"tidegate_address_list_stale{list="hosting"}"#), 0.0);
    drop(client);
    let log = gateway.read_log();
    let evidence = |line: usize| log[line]["evidence"].to_string();
    assert_eq!(
        (evidence(0), evidence(2)),
        (r#"["user_agent_no_match","address_list:hosting"]"#.into(), r#"["user_agent_no_match"]"#.into())
    );
}

#[test]
fn check_reports_every_invalid_line() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (file, yaml) = (dir.path().join("hosting.txt"), dir.path().join("tidegate.yaml"));
    std::fs::write(&yaml, format!("origin: {{ url: 'http://127.0.0.1:3000' }}\n{}", rules(&file)))
        .expect("file is writable");
    let errors = check::check(&yaml, &[], &[]).expect_err("the file does not exist");
    assert!(
        errors.contains(":3:35: address_lists.hosting.file: ") && errors.contains("hosting.txt cannot be read: "),
        "{errors}"
    );
    std::fs::write(&file, "10.0.0.0/8\n10.0.0.0/33\n\nnobody\n").expect("file is writable");
    let errors = check::check(&yaml, &[], &[]).expect_err("two lines are invalid");
    assert_eq!(errors.lines().count(), 2, "{errors}");
    assert!(errors.lines().nth(1).is_some_and(|line| line.contains("hosting.txt:4: \"nobody\"")), "{errors}");
    std::fs::write(&file, "10.0.0.0/8\n").expect("file is writable");
    let summary = check::check(&yaml, &[], &[]).expect("the file is valid");
    assert!(summary.contains("  rented: on address list hosting; priority 0; blocked"), "{summary}");
    assert!(summary.contains(&format!("  hosting: 1 network in {}", file.display())), "{summary}");
}

fn rules(file: &Path) -> String {
    format!(
        "workers: 1\naddress_lists: {{ hosting: {{ file: '{}' }} }}\n\
         classes: [ {{ name: rented, when: {{ address_list: hosting }}, block: true }}, {{ name: person }} ]",
        file.display()
    )
}
