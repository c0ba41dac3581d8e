//! Picture of the day: units by the hour, with and without the gateway.

use super::config::LIMIT;
use super::scoreboard::{ClientGroup, Scoreboard};
use super::screen::{Screen, time_of_day};
use super::unprotected::UnprotectedDay;
use tidegate_replay::terminal::{group_digits, sparkline, wrap};

/// Renders two rows of bars, one for each hour, with one scale.
pub(super) fn day(scoreboard: &Scoreboard, without: &UnprotectedDay, screen: &Screen) -> String {
    let by_hour = scoreboard.units_by_hour.iter().chain(&without.units_by_hour);
    let by_hour: Vec<f64> = by_hour.map(|units| *units as f64).collect();
    let bars: Vec<char> = sparkline(&by_hour).chars().collect();
    let [with_bars, without_bars] = [&bars[..24], &bars[24..]].map(|bars| bars.iter().collect::<String>());
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
    let end = wrap(&end, 2, 2, screen.text_width());
    format!(
        "{}\n  {:<18}{}\n  {:<18}{with_bars}\n  {:<18}{without_bars}\n  {end}\n",
        screen.color_mode().bold("Units by the hour"),
        "",
        "0     6     12    18    ",
        "with Tidegate",
        "without"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_replay::terminal::ColorMode;

    #[test]
    fn bars_of_both_days_have_one_scale_and_fit_60_columns() {
        let units_by_hour = std::array::from_fn(|hour| 10 * hour as u64);
        let scoreboard = Scoreboard { units_by_hour, ..Scoreboard::default() };
        let mut units_by_hour = [0; 24];
        units_by_hour[..5].copy_from_slice(&[400, 400, 400, 700, 100]);
        let closed_at = Some(Duration::from_secs(4 * 3600 + 600));
        let without = UnprotectedDay { closed_at, people_refused: 1234, units_by_hour };
        let screen = Screen::new(Box::new(std::io::sink()), Some(60), ColorMode::Plain);
        let text = day(&scoreboard, &without, &screen);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        insta::assert_snapshot!(text);
    }
}
