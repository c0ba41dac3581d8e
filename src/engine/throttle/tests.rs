mod promise;

use super::*;
use crate::policy::throttle::backoff::Backoff;
use crate::policy::throttle::spacing::Spacing;
use crate::policy::throttle::{self, Jitter, Outcome, Queue};
use proptest::prelude::*;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

const PERSON: u8 = 3;
const BOT: u8 = 1;

/// Rules of a scope that are as wide as can be.
fn wide() -> throttle::Throttle {
    throttle::Throttle {
        concurrency: None,
        spacing: Spacing::default(),
        autothrottle: None,
        backoff: None,
        queue: Queue { max_wait: seconds(2), max_length: 256 },
    }
}

fn slots(concurrency: u32) -> throttle::Throttle {
    throttle::Throttle { concurrency: NonZeroU32::new(concurrency), ..wide() }
}

fn patient(rules: throttle::Throttle) -> throttle::Throttle {
    throttle::Throttle { queue: Queue { max_wait: seconds(3600), ..rules.queue }, ..rules }
}

fn resting() -> throttle::Throttle {
    let backoff = Backoff {
        statuses: vec![429],
        factor: 2,
        min_delay: seconds(1),
        max_delay: seconds(60),
        jitter: Jitter(0.0),
        window: seconds(60),
    };
    throttle::Throttle { backoff: Some(backoff), ..wide() }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn ms(count: u64) -> Timestamp {
    Timestamp(count * 1_000_000)
}

fn answer(status: u16) -> Outcome {
    Outcome { status: Some(status), latency: Duration::from_millis(10), asked_for: None }
}

/// A throttle with scopes, and lanes of them.
struct Gate {
    throttle: Arc<Throttle>,
    scopes: Vec<Scope>,
}

impl Gate {
    fn with(scopes: &[(&str, throttle::Throttle)]) -> Self {
        let scope = |(name, rules): &(&str, throttle::Throttle)| Scope {
            name: (*name).to_owned(),
            throttle: Some(rules.clone()),
        };
        let scopes: Vec<Scope> = scopes.iter().map(scope).collect();
        let throttle = Arc::new(Throttle::default());
        throttle.follow(&scopes);
        Self { throttle, scopes }
    }

    fn lane(&self, names: &[&str]) -> LaneId {
        let named = self.scopes.iter().filter(|scope| names.contains(&scope.name.as_str()));
        self.throttle.lane(named).expect("it is throttled")
    }

    fn enter(&self, names: &[&str], client: u64, priority: u8, now: u64) -> Entrance {
        let comer = Comer { client: ClientKey::from_number(client), priority, chance: 0.0 };
        self.throttle.enter(self.lane(names), comer, ms(now))
    }

    fn passes(&self, names: &[&str], now: u64) -> Pass {
        match self.enter(names, 1, PERSON, now) {
            Entrance::Open(Some(pass)) => pass,
            _ => panic!("it is open at {now}"),
        }
    }

    fn waits(&self, names: &[&str], client: u64, priority: u8, now: u64) -> Guest {
        match self.enter(names, client, priority, now) {
            Entrance::Line(waiting) => Guest::new(waiting),
            _ => panic!("there is a line at {now}"),
        }
    }

    fn turned_away(&self, names: &[&str], priority: u8, now: u64) -> Closed {
        match self.enter(names, 1, priority, now) {
            Entrance::Closed(closed) => closed,
            _ => panic!("it is closed at {now}"),
        }
    }

    fn state(&self, name: &str, now: u64) -> ScopeState {
        let states = self.throttle.states(ms(now));
        states.into_iter().find(|state| state.name == name).expect("it is there")
    }
}

/// Somebody who waits.
struct Guest {
    waiting: Waiting,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Guest {
    fn new(waiting: Waiting) -> Self {
        Self { waiting, bell: Arc::default() }
    }

    fn is_called(&self) -> bool {
        self.bell.0.swap(false, Ordering::Relaxed)
    }

    fn looks(&mut self, now: u64) -> Turn {
        self.waiting.poll(&Waker::from(Arc::clone(&self.bell)), ms(now))
    }

    fn waits_until(&mut self, now: u64) -> u64 {
        match self.looks(now) {
            Turn::NotYet { look_again } => look_again.0 / 1_000_000,
            _ => panic!("it waits at {now}"),
        }
    }

    fn comes(&mut self, now: u64) -> Pass {
        match self.looks(now) {
            Turn::Come(pass) => pass,
            _ => panic!("its turn has come at {now}"),
        }
    }

    fn is_gone(&mut self, now: u64) -> Closed {
        match self.looks(now) {
            Turn::Gone(closed) => closed,
            _ => panic!("it is told to go at {now}"),
        }
    }
}

#[test]
fn a_slot_that_comes_free_is_the_next_one_s() {
    let gate = Gate::with(&[("api", slots(1))]);
    let first = gate.passes(&["api"], 0);
    let mut second = gate.waits(&["api"], 2, PERSON, 0);
    assert_eq!(second.waits_until(0), 2000, "there is nothing to look for before");
    drop(first);
    assert!(second.is_called());
    let second = second.comes(5);
    assert_eq!(gate.state("api", 5).in_flight, 1);
    drop(second);
    assert_eq!(gate.state("api", 5).in_flight, 0);
}

#[test]
fn one_who_leaves_frees_the_place_and_the_turn() {
    let gate = Gate::with(&[("api", slots(1))]);
    let first = gate.passes(&["api"], 0);
    let mut second = gate.waits(&["api"], 2, PERSON, 0);
    let mut third = gate.waits(&["api"], 3, PERSON, 0);
    second.waits_until(0);
    third.waits_until(0);
    drop(first);
    assert!(second.is_called());
    drop(second);
    assert!(third.is_called(), "the slot was given, and given back unused");
    drop(third);
    assert_eq!((gate.state("api", 0).waiting, gate.state("api", 0).in_flight), (0, 0));
}

#[test]
fn all_scopes_are_entered_or_none() {
    let gate = Gate::with(&[("a", slots(1)), ("b", slots(1))]);
    let in_b = gate.passes(&["b"], 0);
    let mut both = gate.waits(&["a", "b"], 2, PERSON, 0);
    both.waits_until(0);
    assert_eq!(gate.state("a", 0).in_flight, 0, "nothing is held while it waits for b");
    let in_a = gate.passes(&["a"], 0);
    drop(in_b);
    assert!(!both.is_called());
    drop(in_a);
    assert!(both.is_called());
    let _both = both.comes(0);
    assert_eq!((gate.state("a", 0).in_flight, gate.state("b", 0).in_flight), (1, 1));
}

#[test]
fn starts_are_a_delay_apart_and_one_of_those_who_wait_watches_the_clock() {
    let spacing = Spacing { delay: Duration::from_millis(100), jitter: Jitter(0.0) };
    let gate = Gate::with(&[("api", throttle::Throttle { spacing, ..wide() })]);
    let _first = gate.passes(&["api"], 0);
    let mut second = gate.waits(&["api"], 2, PERSON, 0);
    let mut third = gate.waits(&["api"], 3, PERSON, 0);
    assert_eq!((second.waits_until(0), third.waits_until(0)), (100, 2000));
    assert_eq!(second.waits_until(99), 100);
    let _second = second.comes(100);
    assert!(third.is_called(), "it is the watchman now");
    assert_eq!(third.waits_until(100), 200);
    let _third = third.comes(200);
}

#[test]
fn who_cannot_be_served_in_time_is_told_at_once_when_to_come() {
    let spacing = Spacing { delay: seconds(5), jitter: Jitter(0.0) };
    let gate = Gate::with(&[("api", throttle::Throttle { spacing, ..wide() })]);
    let _first = gate.passes(&["api"], 0);
    assert_eq!(gate.turned_away(&["api"], PERSON, 1000), Closed { reason: Reason::Throttle, wait: seconds(4) });

    let gate = Gate::with(&[("api", slots(1))]);
    let first = gate.passes(&["api"], 0);
    let mut second = gate.waits(&["api"], 2, PERSON, 0);
    let _ = first.heard(&Outcome { latency: seconds(3), ..answer(200) }, 0.0, ms(0));
    assert_eq!(second.waits_until(1999), 2000);
    assert_eq!(second.is_gone(2000), Closed { reason: Reason::Throttle, wait: seconds(3) }, "as long as one takes");
    assert_eq!(gate.state("api", 2000).waiting, 0);
}

#[test]
fn nobody_stands_in_line_whose_turn_cannot_come_in_time() {
    let spacing = Spacing { delay: seconds(1), jitter: Jitter(0.0) };
    let queue = Queue { max_wait: Duration::from_millis(2500), max_length: 256 };
    let gate = Gate::with(&[("api", throttle::Throttle { spacing, queue, ..wide() })]);
    let _first = gate.passes(&["api"], 0);
    let (_second, _third) = (gate.waits(&["api"], 2, BOT, 0), gate.waits(&["api"], 2, BOT, 0));
    assert!(matches!(gate.enter(&["api"], 2, BOT, 0), Entrance::Closed(Closed { wait, .. }) if wait == seconds(3)));
    let _other = gate.waits(&["api"], 3, BOT, 0);
    assert!(matches!(gate.enter(&["api"], 4, BOT, 0), Entrance::Closed(_)), "behind one of each of the two");
    let _person = gate.waits(&["api"], 4, PERSON, 0);
}

#[test]
fn a_full_line_has_room_only_for_somebody_more_important() {
    let rules = throttle::Throttle { queue: Queue { max_wait: seconds(2), max_length: 2 }, ..slots(1) };
    let gate = Gate::with(&[("api", rules)]);
    let _first = gate.passes(&["api"], 0);
    let mut older = gate.waits(&["api"], 2, BOT, 0);
    let mut younger = gate.waits(&["api"], 3, BOT, 0);
    older.waits_until(0);
    younger.waits_until(0);
    assert_eq!(gate.turned_away(&["api"], BOT, 0).reason, Reason::Throttle);
    let mut person = gate.waits(&["api"], 4, PERSON, 0);
    assert!(younger.is_called() && !older.is_called());
    assert_eq!(younger.is_gone(0).reason, Reason::Throttle);
    let _other_person = gate.waits(&["api"], 5, PERSON, 0);
    assert_eq!(gate.turned_away(&["api"], PERSON, 0).reason, Reason::Throttle, "only people wait");
    assert_eq!(person.waits_until(0), 2000);
}

#[test]
fn clients_of_one_priority_take_turns() {
    let gate = Gate::with(&[("api", patient(slots(1)))]);
    let mut pass = gate.passes(&["api"], 0);
    let mut line: Vec<(u64, Guest)> =
        [7, 7, 7, 7, 8, 9].map(|client| (client, gate.waits(&["api"], client, BOT, 0))).into();
    line.iter_mut().for_each(|(_, guest)| assert!(guest.waits_until(0) > 0));
    let mut order = Vec::new();
    while !line.is_empty() {
        drop(pass);
        let next = line.iter().position(|(_, guest)| guest.is_called()).expect("somebody is called");
        let (client, mut guest) = line.remove(next);
        order.push(client);
        pass = guest.comes(0);
    }
    assert_eq!(order, [7, 8, 9, 7, 7, 7]);
}

#[test]
fn a_complaint_turns_everybody_away_until_one_has_tried() {
    let gate = Gate::with(&[("api", patient(resting())), ("other", wide())]);
    let first = gate.passes(&["api"], 0);
    let rest = first.heard(&Outcome { asked_for: Some(seconds(5)), ..answer(429) }, 0.0, ms(0));
    assert_eq!(rest, Some(Closed { reason: Reason::Backoff, wait: seconds(5) }));
    drop(first);
    let _elsewhere = gate.passes(&["other"], 0);
    let mut probe = gate.waits(&["api"], 2, PERSON, 1000);
    let mut next = gate.waits(&["api"], 3, PERSON, 1000);
    assert_eq!(probe.waits_until(1000), 5000);
    next.waits_until(1000);
    let probe = probe.comes(5000);
    next.waits_until(5001);
    assert!(probe.heard(&answer(200), 0.0, ms(5100)).is_none());
    let _next = next.comes(5100);
    let state = gate.state("api", 5100);
    assert_eq!((state.level, state.rests_for), (1, Duration::ZERO));

    let gate = Gate::with(&[("api", resting())]);
    let first = gate.passes(&["api"], 0);
    let mut second = match gate.enter(&["api"], 1, PERSON, 0) {
        Entrance::Open(Some(pass)) => pass,
        _ => panic!("it is open"),
    };
    let _ = first.heard(&Outcome { asked_for: Some(seconds(30)), ..answer(429) }, 0.0, ms(0));
    assert_eq!(gate.turned_away(&["api"], PERSON, 1000), Closed { reason: Reason::Backoff, wait: seconds(29) });
    drop(std::mem::replace(&mut second, first));
    assert_eq!(gate.state("api", 1000).in_flight, 1);
}

#[test]
fn a_rest_sends_those_away_who_cannot_wait_for_its_end() {
    let gate = Gate::with(&[("api", throttle::Throttle { concurrency: NonZeroU32::new(1), ..resting() })]);
    let first = gate.passes(&["api"], 0);
    let mut second = gate.waits(&["api"], 2, PERSON, 0);
    second.waits_until(0);
    let _ = first.heard(&Outcome { asked_for: Some(seconds(30)), ..answer(429) }, 0.0, ms(0));
    assert!(second.is_called(), "it is not left to find out by itself");
    assert_eq!(second.is_gone(0), Closed { reason: Reason::Backoff, wait: seconds(30) });
}

#[test]
fn state_survives_new_rules_by_name() {
    let gate = Gate::with(&[("api", resting())]);
    let pass = gate.passes(&["api"], 0);
    let _ = pass.heard(&Outcome { asked_for: Some(seconds(30)), ..answer(429) }, 0.0, ms(0));
    let scope = |name: &str| Scope { name: name.into(), throttle: Some(resting()) };
    gate.throttle.follow(&[scope("new"), scope("api")]);
    let state = gate.state("api", 0);
    assert_eq!((state.in_flight, state.rests_for), (1, seconds(30)));
    gate.throttle.follow(&[scope("new")]);
    drop(pass);
    gate.throttle.follow(&[scope("api")]);
    assert_eq!(gate.state("api", 0).in_flight, 0, "who left meanwhile has left");
}

/// 64 clients who ask again as soon as they are served, answers that take 100 ms, half a minute.
#[test]
fn four_slots_for_sixty_four_clients_of_three_classes() {
    const SERVICE_MS: u64 = 100;
    const END_MS: u64 = 30_000;
    let class = |client: u64| [(3u8, 16), (2, 40), (1, 64)].iter().find(|(_, below)| client < *below).expect("one").0;
    let gate = Gate::with(&[("api", patient(slots(4)))]);
    let mut guests: Vec<(u64, u64, Guest)> = Vec::new();
    let mut inside: Vec<(u64, u64, Pass)> = Vec::new();
    let mut served = [0u64; 64];
    let mut longest = [0u64; 4];
    let mut to_ask: Vec<u64> = (0..64).collect();
    for now in (0..END_MS).step_by(10) {
        for client in std::mem::take(&mut to_ask) {
            match gate.enter(&["api"], client, class(client), now) {
                Entrance::Open(Some(pass)) => inside.push((now + SERVICE_MS, client, pass)),
                Entrance::Line(waiting) => guests.push((now, client, Guest::new(waiting))),
                _ => panic!("the line has room for all"),
            }
        }
        let mut waiting = Vec::new();
        for (since, client, mut guest) in guests {
            match guest.looks(now) {
                Turn::Come(pass) => {
                    let longest = &mut longest[usize::from(class(client))];
                    *longest = (*longest).max(now - since);
                    inside.push((now + SERVICE_MS, client, pass));
                }
                Turn::NotYet { .. } => waiting.push((since, client, guest)),
                Turn::Gone(closed) => panic!("{closed:?}"),
            }
        }
        guests = waiting;
        assert!(inside.len() <= 4, "{} at {now}", inside.len());
        inside.retain(|(until, client, _)| {
            let stays = *until > now;
            if !stays {
                served[*client as usize] += 1;
                to_ask.push(*client);
            }
            stays
        });
    }
    let of_class =
        |priority: u8| (0..64).filter(move |&client| class(client) == priority).map(|client| served[client as usize]);
    let shares: Vec<u64> = [3, 2, 1].map(|priority| of_class(priority).sum()).into();
    let total: u64 = shares.iter().sum();
    assert!(total > 1050, "the origin is kept busy: {total}");
    assert!(shares[0] * 8 >= total * 6 && shares[0] > shares[1] + shares[2], "the first class goes first: {shares:?}");
    assert!((shares[1] + shares[2]) * 10 >= total, "and one start in eight is of the longest waiting: {shares:?}");
    assert!(served.iter().all(|&count| count > 0), "nobody starves: {served:?}");
    for priority in [1, 2, 3] {
        let (least, most) = (of_class(priority).min().expect("some"), of_class(priority).max().expect("some"));
        assert!(most - least <= 2, "clients of class {priority} fare alike: {least} to {most}");
    }
    // 63 before it, an eighth of 40 starts a second.
    assert!(longest.iter().all(|&wait| wait <= 8 * 64 * SERVICE_MS / 4), "{longest:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Enter { lane: usize, client: u64, priority: u8 },
    Look(usize),
    GiveUp(usize),
    Hear(usize, u16),
    Leave(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..3, 0u64..5, 0u8..3).prop_map(|(lane, client, priority)| Step::Enter { lane, client, priority }),
        4 => (0usize..20).prop_map(Step::Look),
        1 => (0usize..20).prop_map(Step::GiveUp),
        2 => (0usize..20, prop_oneof![Just(200u16), Just(429), Just(500)]).prop_map(|(who, status)| Step::Hear(who, status)),
        3 => (0usize..20).prop_map(Step::Leave),
        2 => (0u64..700).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_the_limits_hold_and_everything_is_given_back(steps in proptest::collection::vec(step(), 1..300)) {
        let spaced = Spacing { delay: Duration::from_millis(50), jitter: Jitter(0.0) };
        let limited = |concurrency| throttle::Throttle {
            concurrency: NonZeroU32::new(concurrency),
            queue: Queue { max_wait: seconds(2), max_length: 6 },
            ..resting()
        };
        let gate = Gate::with(&[("a", limited(3)), ("b", throttle::Throttle { spacing: spaced, ..limited(2) })]);
        let lanes: [&[&str]; 3] = [&["a"], &["b"], &["a", "b"]];
        let (mut guests, mut inside, mut now) = (Vec::new(), Vec::new(), 0);
        for step in steps {
            match step {
                Step::Enter { lane, client, priority } => match gate.enter(lanes[lane], client, priority, now) {
                    Entrance::Open(pass) => inside.extend(pass),
                    Entrance::Line(waiting) => guests.push(Guest::new(waiting)),
                    Entrance::Closed(_) => {}
                },
                Step::Look(who) if who < guests.len() => match guests[who].looks(now) {
                    Turn::Come(pass) => {
                        inside.push(pass);
                        guests.remove(who);
                    }
                    Turn::Gone(_) => drop(guests.remove(who)),
                    Turn::NotYet { look_again } => prop_assert!(look_again > ms(now)),
                },
                Step::GiveUp(who) if who < guests.len() => drop(guests.remove(who)),
                Step::Hear(who, status) if who < inside.len() => {
                    let _ = inside[who].heard(&answer(status), 0.5, ms(now));
                }
                Step::Leave(who) if who < inside.len() => drop(inside.remove(who)),
                Step::Pass(span) => now += span,
                _ => {}
            }
            for (name, limit) in [("a", 3), ("b", 2)] {
                let state = gate.state(name, now);
                prop_assert!(state.in_flight <= limit && state.waiting <= 6, "{state:?}");
            }
        }
        // Whoever still waits is served or told within its time, as long as it looks when it was told to.
        drop(inside);
        for _ in 0..2000 {
            now += 10;
            guests.retain_mut(|guest| matches!(guest.looks(now), Turn::NotYet { .. }));
        }
        prop_assert!(guests.is_empty());
        for name in ["a", "b"] {
            let state = gate.state(name, now);
            prop_assert_eq!((state.in_flight, state.waiting), (0, 0));
        }
    }
}
