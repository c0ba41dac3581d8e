//! Address lists from files: who stands on one, what happens when a file changes, and when it is wrong.

use crate::support::gate::Gate;
use crate::support::origin::Origin;
use std::path::Path;
use tidegate::cli::check;

#[test]
fn who_stands_on_a_list_is_in_its_class_until_the_file_says_otherwise() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hosting.txt");
    let write = |text: &str| std::fs::write(&file, text).expect("it can be written");
    write("# rented machines\n192.0.2.0/24\n2001:db8:7::/48\n");
    let origin = Origin::plain();
    let gate = Gate::before(origin.address(), &rules(&file));
    let mut client = gate.connect();
    let mut status =
        |from: &str| client.get("/", &format!("X-Forwarded-For: {from}\r\nUser-Agent: Mozilla/5.0\r\n")).status;
    assert_eq!(["192.0.2.7", "2001:db8:7::1", "198.51.100.7"].map(&mut status), [429, 429, 200]);
    assert_eq!(gate.metric(r#"tidegate_list_networks{list="hosting"}"#), 2.0);

    write("198.51.100.7\n");
    gate.look_at_lists();
    assert_eq!(["192.0.2.7", "198.51.100.7"].map(&mut status), [200, 429]);
    assert_eq!(gate.metric(r#"tidegate_list_networks{list="hosting"}"#), 1.0);

    write("198.51.100\n");
    gate.look_at_lists();
    assert_eq!(["192.0.2.7", "198.51.100.7"].map(&mut status), [200, 429], "what was read before stays in force");
    let notes = |gate: &Gate| gate.state()["notes"].to_string();
    assert!(notes(&gate).contains("lists.hosting: ") && notes(&gate).contains("hosting.txt:1: "), "{}", notes(&gate));
    assert_eq!(gate.metric(r#"tidegate_list_stale{list="hosting"}"#), 1.0);
    let told = gate.reload(origin.address(), &rules(&file)).expect_err("the file is wrong");
    assert!(told.contains("hosting.txt:1: \"198.51.100\" is no address or network; write it like"), "{told}");

    write("203.0.113.0/24\n");
    gate.reload(origin.address(), &rules(&file)).expect("it is right again");
    assert_eq!(["203.0.113.1", "198.51.100.7"].map(&mut status), [429, 200]);
    assert!(!notes(&gate).contains("lists.hosting"), "{}", notes(&gate));
    assert_eq!(gate.metric(r#"tidegate_list_stale{list="hosting"}"#), 0.0);
    drop(client);
    let log = gate.into_log();
    let evidence = |line: usize| log[line]["evidence"].to_string();
    assert_eq!(
        (evidence(0), evidence(2)),
        (r#"["names_no_bot","on_list:hosting"]"#.into(), r#"["names_no_bot"]"#.into())
    );
}

#[test]
fn check_tells_every_bad_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, yaml) = (folder.path().join("hosting.txt"), folder.path().join("tidegate.yaml"));
    std::fs::write(&yaml, format!("origin: {{ url: 'http://127.0.0.1:3000' }}\n{}", rules(&file))).expect("written");
    let told = check::check(&yaml, &[], &[]).expect_err("there is no such file");
    assert!(told.contains(":3:27: lists.hosting.file: ") && told.contains("hosting.txt cannot be read: "), "{told}");
    std::fs::write(&file, "10.0.0.0/8\n10.0.0.0/33\n\nnobody\n").expect("written");
    let told = check::check(&yaml, &[], &[]).expect_err("two lines are wrong");
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(told.lines().nth(1).is_some_and(|line| line.contains("hosting.txt:4: \"nobody\"")), "{told}");
    std::fs::write(&file, "10.0.0.0/8\n").expect("written");
    let summary = check::check(&yaml, &[], &[]).expect("all is right");
    assert!(summary.contains("  rented: on the list hosting; priority 0; blocked"), "{summary}");
    assert!(summary.contains(&format!("  hosting: 1 network in {}", file.display())), "{summary}");
}

fn rules(file: &Path) -> String {
    format!(
        "workers: 1\nlists: {{ hosting: {{ file: '{}' }} }}\n\
         classes: [ {{ name: rented, when: {{ list: hosting }}, block: true }}, {{ name: person }} ]",
        file.display()
    )
}
