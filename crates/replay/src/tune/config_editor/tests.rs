use super::*;
use crate::tune::{Goal, GoalContext};
use proptest::prelude::*;
use std::path::Path;
use tidegate_config as config;
use tidegate_policy::pacing::PacingMode;

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
        step in 1..=16_u32,
        choices in proptest::collection::vec(any::<u16>(), 0..6),
        line_end in prop_oneof![Just("\n"), Just("\r\n")],
    ) {
        let text = config_file(LAYOUTS[layout]).replace('\n', line_end);
        let settings = settings(&text);
        let goal = goal();
        let space = SearchSpace::new(&settings, QuotaId(0), &goal).expect("the file has tiers");
        let editor = ConfigEditor::new(&text, &settings);
        let mut candidate = space.samples(3, &mut tidegate_policy::rng::Rng::from_seed(seed, "test"))[0].clone();
        if seed % 2 == 0 {
            candidate = space.present().clone();
        }
        if seed % 3 == 0 && let Some(paced) = space.with_other_pacing().pop() {
            candidate = paced;
        }
        for choice in choices {
            let neighbours = space.neighbors(&candidate, step);
            candidate = neighbours[usize::from(choice) % neighbours.len()].clone();
        }
        let edited = editor.apply(&space, &candidate).expect("all values are in the file");
        prop_assert_eq!(space.candidate(&self::settings(&edited)), candidate, "{}", edited);
        prop_assert_eq!(edited.matches('\n').count(), edited.matches(line_end).count(), "{:?}", edited);
    }
}

#[test]
fn unchanged_text_keeps_its_comments() {
    let edited = |layout: &str, change: fn(&mut Candidate)| {
        let text = config_file(layout);
        let settings = settings(&text);
        let space = SearchSpace::new(&settings, QuotaId(0), &goal()).expect("the file has tiers");
        let mut candidate = space.present().clone();
        change(&mut candidate);
        let edited = ConfigEditor::new(&text, &settings).apply(&space, &candidate).expect("all values are in the file");
        (text, edited)
    };
    let (text, same) = edited(LAYOUTS[0], |_| {});
    assert_eq!(text, same);
    let (text, fewer) = edited(LAYOUTS[0], |candidate| candidate.tier_sets[0].truncate(1));
    assert_eq!(fewer, text.replace("\n        - { above: 80%, shed: 75% }   # most", ""));
    let (text, moved) = edited(LAYOUTS[1], |candidate| candidate.tier_sets[1][0].threshold = Units::from_whole(299));
    assert_eq!(moved, text.replace("above: 300", "above: 29.9%"));
    let (text, paced) = edited(LAYOUTS[1], |candidate| candidate.pacing.mode = Some(PacingMode::Learned));
    assert_eq!(paced, text.replace("pacing: off ", "pacing: learned "));
    let (text, added) = edited(LAYOUTS[0], |candidate| candidate.pacing.mode = Some(PacingMode::Even));
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
    let space = SearchSpace::new(&settings, QuotaId(0), &goal()).expect("the file has tiers");
    let mut candidate = space.present().clone();
    candidate.tier_sets.iter_mut().for_each(|tiers| tiers[0].threshold = Units::from_whole(250));
    let error = ConfigEditor::new(&text, &settings).apply(&space, &candidate).expect_err("one text for two values");
    assert!(error.to_string().contains("without an anchor"), "{error}");
}

#[test]
fn changed_line_replaces_its_comment() {
    let text = config_file(LAYOUTS[0]);
    let settings = settings(&text);
    let space = SearchSpace::new(&settings, QuotaId(0), &goal()).expect("the file has tiers");
    let mut candidate = space.present().clone();
    candidate.tier_sets[0][0].shed_share = Share::from_millionths(400_000);
    let annotated =
        ConfigEditor::new(&text, &settings).apply_annotated(&space, &candidate).expect("all values are in the file");
    assert_eq!(annotated, text.replace("shed: 50% }   # half", "shed: 40% }   # by tidegate tune"));
    assert_eq!(space.candidate(&self::settings(&annotated)), candidate);
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
    let space = SearchSpace::new(&settings, QuotaId(0), &goal()).expect("the file has tiers");
    let mut candidate = space.present().clone();
    candidate.tier_sets[1][0].threshold = Units::from_whole(500);
    let editor = ConfigEditor::new(&text, &settings);
    let is_refused = match editor.apply(&space, &candidate) {
        Err(_) => true,
        Ok(edited) => config::load(Path::new("x.yaml"), &edited, &[], &[], &[])
            .map_or(true, |settings| space.candidate(&settings) != candidate),
    };
    assert!(is_refused, "an alias would change both classes");
    let error = editor.edit_error(&space).to_string();
    assert!(error.starts_with("quotas.api.tiers.search (x.yaml:"), "{error}");
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
    config::load(Path::new("x.yaml"), text, &[], &[], &[]).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

fn goal() -> Goal {
    let context =
        GoalContext { classes: vec!["search", "bot", "person"], quotas: vec![("api", None)], default_quota: "api" };
    Goal::read("unused <= 2 %", &context).expect("a goal")
}
