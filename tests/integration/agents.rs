//! How many bots are heard, and how many people are taken for bots.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use tidegate::cli::classify;
use tidegate::policy::Claim;
use tidegate::user_agents::UserAgentMatcher;
use tidegate::verify::OperatorTable;

#[test]
fn the_bots_of_the_sample_are_heard() {
    let agents = agents();
    let sample: Vec<_> = lines(include_str!("../data/bots.txt")).collect();
    let missed: Vec<_> = sample.iter().filter(|agent| !is_bot(&agents, agent)).collect();
    assert!(missed.len() * 200 <= sample.len(), "{} of {} missed: {missed:#?}", missed.len(), sample.len());
}

#[test]
fn the_people_of_the_sample_are_left_alone() {
    let agents = agents();
    for agent in lines(include_str!("../data/people.txt")) {
        assert!(!is_bot(&agents, agent), "{agent}");
    }
}

#[test]
fn the_labelled_user_agents_are_told_apart() {
    let Some(shared) = crate::support::shared() else { return };
    let agents = agents();
    let bots = std::fs::read_to_string(shared.join("data/ua/ua_dev_bots.tsv")).expect("a labelled list");
    let people = unzip(&shared.join("data/ua/ua_dev_humans.tsv.gz"));
    let share = |list: &str| {
        let called = list.lines().map(|line| is_bot(&agents, line.rsplit('\t').next().expect("one field at least")));
        let (bots, all) = called.fold((0_u32, 0_u32), |(bots, all), bot| (bots + u32::from(bot), all + 1));
        f64::from(bots) / f64::from(all)
    };
    assert!(share(&bots) >= 0.995, "only {} of the bots are heard", share(&bots));
    assert!(share(&people) <= 0.0005, "{} of the people are called bots", share(&people));
}

#[test]
fn classify_answers_every_line_in_order() {
    let input = b"Googlebot/2.1\n\n-\nMozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\xff\xfe\nunheard-of/1.0";
    let expected = "declared_bot\tGooglebot\nhuman\t-\nhuman\t-\nhuman\t-\nhuman\t-\ndeclared_bot\t-\n";
    assert_eq!(classified(input, false), expected);
    let json = r#"{"kind":"declared_bot","bot":"Googlebot"}"#.to_owned() + "\n";
    assert_eq!(classified(b"Googlebot/2.1\n", true), json);
}

#[test]
fn classify_reads_lines_of_any_length() {
    let mut input = b"Googlebot/2.1 ".repeat(10_000);
    input.push(b'\n');
    assert_eq!(classified(&input, false), "declared_bot\tGooglebot\n");
}

fn classified(input: &[u8], json: bool) -> String {
    let mut output = Vec::new();
    classify::run(&agents(), &[], input, &mut output, json).expect("memory does not fail");
    String::from_utf8(output).expect("the answer is text")
}

fn agents() -> UserAgentMatcher {
    UserAgentMatcher::builtin(OperatorTable::builtin().tokens())
}

fn is_bot(agents: &UserAgentMatcher, agent: &str) -> bool {
    matches!(agents.claim(agent.as_bytes()), Claim::Bot { .. })
}

fn lines(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter(|line| !line.starts_with('#'))
}

fn unzip(path: &Path) -> String {
    let mut gzip = Command::new("gzip").arg("-dc").arg(path).stdout(Stdio::piped()).spawn().expect("gzip");
    let mut text = String::new();
    gzip.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    gzip.wait().expect("gzip ends");
    text
}
