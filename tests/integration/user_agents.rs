//! Error rates of user agent classification: bots that are missed, people that are classified as bots.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use tidegate::cli::classify;
use tidegate_crawlers::user_agents::UserAgentMatcher;
use tidegate_crawlers::verify::OperatorTable;
use tidegate_policy::Claim;
use tidegate_policy::class::UserAgentRules;

#[test]
fn sample_bot_user_agents_are_declared_bots() {
    let agents = builtin_matcher();
    let sample: Vec<_> = lines(include_str!("../data/bots.txt")).collect();
    let missed: Vec<_> = sample.iter().filter(|agent| !is_bot(&agents, agent)).collect();
    assert!(missed.len() * 200 <= sample.len(), "{} of {} missed: {missed:#?}", missed.len(), sample.len());
}

#[test]
fn sample_human_user_agents_are_not_bots() {
    let agents = builtin_matcher();
    for agent in lines(include_str!("../data/people.txt")) {
        assert!(!is_bot(&agents, agent), "{agent}");
    }
}

#[test]
fn labeled_user_agents_stay_within_error_rates() {
    let Some(shared) = crate::support::shared_data() else { return };
    let agents = builtin_matcher();
    let bots = std::fs::read_to_string(shared.join("data/ua/ua_dev_bots.tsv")).expect("labeled user agents");
    let humans = unzip(&shared.join("data/ua/ua_dev_humans.tsv.gz"));
    let bot_ratio = |list: &str| {
        let classified =
            list.lines().map(|line| is_bot(&agents, line.rsplit('\t').next().expect("at least one field")));
        let (bots, total) = classified.fold((0_u32, 0_u32), |(bots, total), bot| (bots + u32::from(bot), total + 1));
        f64::from(bots) / f64::from(total)
    };
    assert!(bot_ratio(&bots) >= 0.995, "detection rate of bots is only {}", bot_ratio(&bots));
    assert!(bot_ratio(&humans) <= 0.0005, "false positive rate of people is {}", bot_ratio(&humans));
}

#[test]
fn classify_outputs_one_line_per_input_in_order() {
    let input = b"Googlebot/2.1\n\n-\nMozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\xff\xfe\nunheard-of/1.0";
    let expected = "declared_bot\tGooglebot\nhuman\t-\nhuman\t-\nhuman\t-\nhuman\t-\ndeclared_bot\t-\n";
    assert_eq!(run_classify(input, false), expected);
    let json = r#"{"kind":"declared_bot","bot":"Googlebot"}"#.to_owned() + "\n";
    assert_eq!(run_classify(b"Googlebot/2.1\n", true), json);
}

#[test]
fn classify_reads_lines_of_any_length() {
    let mut input = b"Googlebot/2.1 ".repeat(10_000);
    input.push(b'\n');
    assert_eq!(run_classify(&input, false), "declared_bot\tGooglebot\n");
}

fn run_classify(input: &[u8], json: bool) -> String {
    let mut output = Vec::new();
    classify::run(&builtin_matcher(), &UserAgentRules::default(), input, &mut output, json)
        .expect("writing to memory cannot fail");
    String::from_utf8(output).expect("output is UTF-8")
}

fn builtin_matcher() -> UserAgentMatcher {
    UserAgentMatcher::builtin(OperatorTable::builtin().product_tokens())
}

fn is_bot(agents: &UserAgentMatcher, agent: &str) -> bool {
    matches!(agents.claim(agent.as_bytes()), Claim::Bot { .. })
}

fn lines(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter(|line| !line.starts_with('#'))
}

fn unzip(path: &Path) -> String {
    let mut gzip = Command::new("gzip").arg("-dc").arg(path).stdout(Stdio::piped()).spawn().expect("gzip is installed");
    let mut text = String::new();
    gzip.stdout.take().expect("stdout is piped").read_to_string(&mut text).expect("gzip output is UTF-8");
    gzip.wait().expect("gzip exits");
    text
}
