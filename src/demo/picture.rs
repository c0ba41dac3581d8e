//! Picture of the day: units by the hour, with and without the gateway.

use super::config::LIMIT;
use super::scoreboard::{ClientGroup, Scoreboard};
use super::screen::{Screen, time_of_day};
use super::traffic::{UnitsByHour, carry_forward};
use super::unprotected::UnprotectedDay;
use tidegate_replay::terminal::{group_digits, sparkline, wrap};

/// Renders two rows of bars, one for each hour, with one scale.
pub(super) fn day(scoreboard: &Scoreboard, without: &UnprotectedDay, screen: &Screen) -> String {
    let mut used = scoreboard.used_by_hour;
    carry_forward(&mut used);
    let by_hour: Vec<f64> = [used, without.used].iter().flat_map(units_of_hours).collect();
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

fn units_of_hours(used: &UnitsByHour) -> impl Iterator<Item = f64> {
    (0..used.len()).map(|hour| (used[hour] - hour.checked_sub(1).map_or(0, |before| used[before])) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_replay::terminal::ColorMode;

    #[test]
    fn bars_of_both_days_have_one_scale_and_fit_60_columns() {
        let used_by_hour = std::array::from_fn(|hour| 80 * hour as u64);
        let scoreboard = Scoreboard { used_by_hour, ..Scoreboard::default() };
        let mut used = [2000; 24];
        used[..4].copy_from_slice(&[400, 800, 1200, 1900]);
        let without =
            UnprotectedDay { closed_at: Some(Duration::from_secs(4 * 3600 + 600)), people_refused: 1234, used };
        let screen = Screen::new(Box::new(std::io::sink()), Some(60), ColorMode::Plain);
        let text = day(&scoreboard, &without, &screen);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        insta::assert_snapshot!(text);
    }
}
