//! Picture of the day: units by the hour, with and without the gateway.

use super::config::LIMIT;
use super::scoreboard::{ClientGroup, Scoreboard};
use super::screen::{Screen, time_of_day};
use super::traffic::UnitsByHour;
use super::unprotected::UnprotectedDay;
use tidegate_replay::terminal::{group_digits, sparkline, wrap};

/// Renders rows of bars, one for each hour, with one scale. `paced` has the units under learned pacing.
pub(super) fn day(scoreboard: &Scoreboard, paced: &UnitsByHour, without: &UnprotectedDay, screen: &Screen) -> String {
    let rows = [&scoreboard.units_by_hour, paced, &without.units_by_hour];
    let by_hour: Vec<f64> = rows.into_iter().flatten().map(|units| *units as f64).collect();
    let bars: Vec<char> = sparkline(&by_hour).chars().collect();
    let [with_bars, paced_bars, without_bars] =
        [&bars[..24], &bars[24..48], &bars[48..]].map(|bars| bars.iter().collect::<String>());
    let after_noon = |units: &UnitsByHour| group_digits(units[12..].iter().sum());
    let pacing = format!(
        "The row of pacing is a replay of the same day with pacing: learned in the quota, which has learned from the day \
         before: {} units are used after noon, with tiers alone {}.",
        after_noon(paced),
        after_noon(&scoreboard.units_by_hour)
    );
    let refused = group_digits(scoreboard.row(ClientGroup::People).refused);
    let end = match without.closed_at {
        Some(at) => format!(
            "Without it, the quota of {} units is gone at {}; after that, {} requests of people meet a closed site. With it, \
             {refused}.",
            group_digits(LIMIT),
            time_of_day(at),
            group_digits(without.people_refused)
        ),
        None => "The quota lasts in both cases.".into(),
    };
    let [end, pacing] = [end, pacing].map(|text| wrap(&text, 2, 2, screen.text_width()));
    format!(
        "{}\n  {:<18}{}\n  {:<18}{with_bars}\n  {:<18}{paced_bars}\n  {:<18}{without_bars}\n  {end}\n  {pacing}\n",
        screen.color_mode().bold("Units by the hour"),
        "",
        "0     6     12    18    ",
        "with Tidegate",
        "learned pacing",
        "without"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_replay::terminal::ColorMode;

    #[test]
    fn bars_of_all_days_have_one_scale_and_fit_60_columns() {
        let units_by_hour = std::array::from_fn(|hour| 10 * hour as u64);
        let scoreboard = Scoreboard { units_by_hour, ..Scoreboard::default() };
        let mut units_by_hour = [0; 24];
        units_by_hour[..5].copy_from_slice(&[400, 400, 400, 700, 100]);
        let closed_at = Some(Duration::from_secs(4 * 3600 + 600));
        let without = UnprotectedDay { closed_at, people_refused: 1234, units_by_hour };
        let screen = Screen::new(Box::new(std::io::sink()), Some(60), ColorMode::Plain);
        let text = day(&scoreboard, &[90; 24], &without, &screen);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        insta::assert_snapshot!(text);
    }
}
