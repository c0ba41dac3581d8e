use super::*;
use crate::policy::throttle::simulated::wide;

fn autothrottle(target_concurrency: f64) -> Controller {
    Controller::Autothrottle(Autothrottle {
        target_concurrency,
        start_delay: Duration::ZERO,
        max_delay: Duration::from_secs(5),
        good_statuses: vec![200],
        debug: false,
    })
}

#[test]
fn a_controller_keeps_what_it_learned_only_under_settings_of_its_kind() {
    let now = Timestamp::from_seconds(1000);
    let slow = Throttle { controller: Some(autothrottle(1.0)), ..wide() };
    let learned = Course::Autothrottle(Duration::from_secs(9));
    assert_eq!(slow.course(learned, now), Course::Autothrottle(Duration::from_secs(5)), "within the new bounds");
    assert_eq!(wide().course(learned, now), Course::Fixed);
    assert_eq!(slow.course(Course::Fixed, now), Course::Autothrottle(Duration::ZERO));
}
