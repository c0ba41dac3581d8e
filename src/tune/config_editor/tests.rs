use super::*;
use crate::config;
use crate::policy::pacing::PacingMode;
use crate::tune::{Goal, GoalContext};
use proptest::prelude::*;
use std::path::Path;

/// Common layouts of tiers and pacing.
const LAYOUTS: [&str; 7] = [
    "
    limit: 1000
    tiers:
      search:            # known ones
        - { above: 60%, shed: 50% }   # half
        - { above: 80%, shed: 75% }   # most
      bot:
        - { above: 300, shed: 100% }",
    "
    limit: 1000   # bought
    pacing: off   # for now
    tiers:
      search: [{ above: 60%, shed: 50% }, { above: 80%, shed: 75% }]
      bot: [{ above: 300, shed: 100% }]   # not many",
    "
    limit: 1000
    tiers:
      search:
      - above: 60%
        shed: 50%
      - shed: 75%
        above: \"80%\"
      bot: { enforce: true, steps: [{ above: 300, shed: 100% }] }",
    " { limit: 1000, tiers: { search: [{ above: 60%, shed: 50% }, { above: 80%, shed: 75% }],
             bot: [{ above: 300, shed: 100% }] }, window: { fixed: 1d } }",
    "
    limit: 1000
    pacing: { mode: even, weights: { search: 2, bot: 1 } }
    tiers:
      search:
        - { above: 60%, shed: 50% }
        - { above: 80%, shed: 75% }
      bot:
        steps:
          - { above: 300, shed: 100% }",
    "
    limit: 1000
    pacing: { mode: learned, burst: 4% }
    tiers: { search: [ { above: 60%, shed: 50% } , { above: 80%, shed: 75% } ], bot: [{ above: 300, shed: 100% }] }",
    "
    tiers: { search: [{ shed: 50%, above: 60% }, { above: 80%, shed: 75% }], bot: [{ above: 300, shed: 100% }] }
    limit: 1000",
];

proptest! {
    #[test]
    fn written_candidate_round_trips_in_every_layout(
        layout in 0..LAYOUTS.len(),
        seed in any::<u64>(),
        reach in 1..=16_u32,
        steps in proptest::collection::vec(any::<u16>(), 0..6),
        line_end in prop_oneof![Just("\n"), Just("\r\n")],
    ) {
        let text = config_file(LAYOUTS[layout]).replace('\n', line_end);
        let settings = settings(&text);
        let goal = goal();
        let space = SearchSpace::of(&settings, 0, &goal).expect("the file has tiers");
        let manuscript = ConfigEditor::new(&text, &settings);
        let mut draft = space.samples(3, &mut crate::rng::Rng::from_seed(seed, "test"))[0].clone();
        if seed % 2 == 0 {
            draft = space.present().clone();
        }
        if seed % 3 == 0 && let Some(paced) = space.with_other_pacing().pop() {
            draft = paced;
        }
        for step in steps {
            let neighbours = space.neighbours(&draft, reach);
            draft = neighbours[usize::from(step) % neighbours.len()].clone();
        }
        let written = manuscript.with(&space, &draft).expect("all values are in the file");
        prop_assert_eq!(space.draft(&self::settings(&written)), draft, "{}", written);
        prop_assert_eq!(written.matches('\n').count(), written.matches(line_end).count(), "{:?}", written);
    }
}

#[test]
fn unchanged_text_keeps_its_comments() {
    let written = |layout: &str, change: fn(&mut Candidate)| {
        let text = config_file(layout);
        let settings = settings(&text);
        let space = SearchSpace::of(&settings, 0, &goal()).expect("the file has tiers");
        let mut draft = space.present().clone();
        change(&mut draft);
        let written = ConfigEditor::new(&text, &settings).with(&space, &draft).expect("all values are in the file");
        (text, written)
    };
    let (text, same) = written(LAYOUTS[0], |_| {});
    assert_eq!(text, same);
    let (text, fewer) = written(LAYOUTS[0], |draft| draft.ladders[0].truncate(1));
    assert_eq!(fewer, text.replace("\n        - { above: 80%, shed: 75% }   # most", ""));
    let (text, moved) = written(LAYOUTS[1], |draft| draft.ladders[1][0].above = Units::from_whole(299));
    assert_eq!(moved, text.replace("above: 300", "above: 29.9%"));
    let (text, paced) = written(LAYOUTS[1], |draft| draft.pace.forecast = Some(PacingMode::Learned));
    assert_eq!(paced, text.replace("pacing: off ", "pacing: learned "));
    let (text, added) = written(LAYOUTS[0], |draft| draft.pace.forecast = Some(PacingMode::Even));
    assert_eq!(added, text.replace("limit: 1000", "limit: 1000\n    pacing: even"));
}

#[test]
fn aliased_tiers_cannot_be_changed_separately() {
    let text = config_file(
        "
    limit: 1000
    tiers:
      search: &usual
        - { above: 60%, shed: 50% }
      bot: *usual",
    );
    let settings = settings(&text);
    let space = SearchSpace::of(&settings, 0, &goal()).expect("the file has tiers");
    let mut draft = space.present().clone();
    draft.ladders.iter_mut().for_each(|tiers| tiers[0].above = Units::from_whole(250));
    let told = ConfigEditor::new(&text, &settings).with(&space, &draft).expect_err("one text for two values");
    assert!(told.to_string().contains("without an anchor"), "{told}");
}

#[test]
fn changed_line_replaces_its_comment() {
    let text = config_file(LAYOUTS[0]);
    let settings = settings(&text);
    let space = SearchSpace::of(&settings, 0, &goal()).expect("the file has tiers");
    let mut draft = space.present().clone();
    draft.ladders[0][0].shed = Share::from_millionths(400_000);
    let signed = ConfigEditor::new(&text, &settings).annotated(&space, &draft).expect("all values are in the file");
    assert_eq!(signed, text.replace("shed: 50% }   # half", "shed: 40% }   # by tidegate tune"));
    assert_eq!(space.draft(&self::settings(&signed)), draft);
    for (line, expected) in [
        ("a: 1\r\n", "a: 1   # by tidegate tune\r\n"),
        ("a: \"x # y\"  # z", "a: \"x # y\"   # by tidegate tune"),
        ("a: don't # know", "a: don't   # by tidegate tune"),
        ("a: 'begins here", "a: 'begins here"),
    ] {
        assert_eq!(super::annotated(line), expected);
    }
}

#[test]
fn aliased_value_error_names_its_location() {
    let text = config_file(LAYOUTS[1])
        .replace("search: [{ above: 60%, shed: 50% }, ", "search: &known [{ above: 60%, shed: 50% }, ");
    let text = text.replace("bot: [{ above: 300, shed: 100% }]", "bot: *known");
    let settings = settings(&text);
    let space = SearchSpace::of(&settings, 0, &goal()).expect("the file has tiers");
    let mut draft = space.present().clone();
    draft.ladders[1][0].above = Units::from_whole(500);
    let manuscript = ConfigEditor::new(&text, &settings);
    let is_refused = match manuscript.with(&space, &draft) {
        Err(_) => true,
        Ok(written) => config::load(Path::new("x.yaml"), &written, &[], &[], &[])
            .map_or(true, |settings| space.draft(&settings) != draft),
    };
    assert!(is_refused, "an alias would change both classes");
    let told = manuscript.edit_error(&space).to_string();
    assert!(told.starts_with("quotas.api.tiers.search (x.yaml:"), "{told}");
}

fn config_file(quota: &str) -> String {
    let window = if quota.contains("window") { "" } else { "\n    window: { fixed: 1d }" };
    format!(
        r#"origin: {{ url: "http://127.0.0.1:1" }}
quotas:
  api:{quota}{window}
classes:
  - {{ name: search, when: {{ kind: verified_bot }} }}
  - {{ name: bot, when: {{ kind: declared_bot }} }}
  - {{ name: person, when: {{}} }}
routes: [ {{ match: "/**", cost: {{ api: 1 }} }} ]
"#
    )
}

fn settings(text: &str) -> Settings {
    config::load(Path::new("x.yaml"), text, &[], &[], &[]).unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"))
}

fn goal() -> Goal {
    let known = GoalContext { classes: vec!["search", "bot", "person"], quotas: vec![("api", true)], tuned: "api" };
    Goal::read("unused <= 2 %", &known).expect("a goal")
}
