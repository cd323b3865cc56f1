//! Leaders that end in every way while pods are in flight. Each pod is bound once, none is lost, and no node gets more
//! pods than it has room for: the nodes are exactly full at the end.

use super::{SHORT_TERMS, config, create_pods, scheduler};
use crate::e2e::server::{Server, on_each};
use crate::e2e::watch_log::WatchLog;
use crate::e2e::{Running, eventually};
use std::time::{Duration, Instant};

/// The default of `--leader-elect-lease-duration`.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// The time that a leader that was killed may be missing beyond the lease.
const AFTER_LEASE: Duration = Duration::from_secs(2);
/// The same after a lease was released.
const AFTER_RELEASE: Duration = Duration::from_secs(1);

/// The load, and the interval at which leaders end.
struct Load {
    nodes: usize,
    pods_per_node: usize,
    /// Requests a second of each leader: with fewer, more is in flight when it ends.
    qps: u32,
    kills: usize,
    releases: usize,
    /// The flags of leader election. Without any, its defaults.
    terms: &'static [&'static str],
    /// Whether time limits are asserted. They are derived from the default lease durations.
    is_timed: bool,
}

impl Load {
    fn pods(&self) -> usize {
        self.nodes * self.pods_per_node
    }
}

/// Two schedulers; one of them leads.
pub(super) struct Pair<'a> {
    server: &'a Server,
    config: String,
    terms: &'static [&'static str],
    both: Vec<Running>,
}

impl<'a> Pair<'a> {
    pub(super) fn start(server: &'a Server, qps: u32, terms: &'static [&'static str]) -> Self {
        let mut pair = Self {
            server,
            config: config(server, qps, qps / 4),
            terms,
            both: Vec::new(),
        };
        pair.add();
        pair.add();
        pair
    }

    /// Starts another standby.
    pub(super) fn add(&mut self) {
        let args = [&[&*self.config][..], self.terms].concat();
        let started = scheduler(&self.server.kubeconfig(), &args);
        super::ready(&started);
        self.both.push(started);
    }

    /// Removes the leader from the pair.
    pub(super) fn take_leader(&mut self) -> Running {
        let is_leading = |s: &Running| s.metric("leader_election_master_status", "") == 1.0;
        let at = eventually("one of them leads", || {
            self.both.iter().position(is_leading)
        });
        self.both.remove(at)
    }
}

/// The end of a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// SIGKILL.
    Killed,
    /// SIGTERM: it releases the lease.
    Released,
}

/// Ends the leader. Returns the time from then (or from the release of the lease) to the first binding by the standby.
fn fail_over(pair: &mut Pair, log: &WatchLog, end: End) -> Duration {
    let leader = pair.take_leader();
    let terms = log.holders().len();
    let began = Instant::now();
    match end {
        End::Killed => drop(leader),
        End::Released => assert_eq!(leader.stop("-TERM"), Some(0)),
    }
    let next = eventually("another one leads", || {
        let holders = log.holders().into_iter().skip(terms);
        holders.into_iter().find(|h| !h.identity.is_empty())
    });
    let first = eventually("the new leader binds a pod", || {
        log.first_binding_after(next.at)
    });
    let released = log.holders().into_iter().skip(terms);
    let released = released.into_iter().find(|h| h.identity.is_empty());
    let from = match (end, released) {
        (End::Killed, _) | (_, None) => began,
        (End::Released, Some(released)) => released.at,
    };
    let took = first.at.saturating_duration_since(from);
    let since_signal = first.at.saturating_duration_since(began);
    eprintln!("{end:?}: bound again after {took:?} ({since_signal:?} after the signal)");
    // A new standby runs before the next leader ends.
    pair.add();
    took
}

fn leaders_end(server: &Server, load: &Load) {
    let pods = load.pods();
    server.create_nodes(load.nodes, load.pods_per_node);
    let log = WatchLog::start(&server.api);
    create_pods(&server.api, "p", pods, "1m");
    let mut pair = Pair::start(server, load.qps, load.terms);
    let ends = [
        vec![End::Killed; load.kills],
        vec![End::Released; load.releases],
    ]
    .concat();
    let terms = ends.len() + 1;
    let mut slowest = [Duration::ZERO; 2];
    for (term, end) in ends.into_iter().enumerate() {
        let share = pods * (term + 1) / terms;
        eventually("the leader binds its share", || {
            (log.bound() >= share).then_some(())
        });
        assert!(log.bound() < pods, "pods are in flight when a leader ends");
        let took = fail_over(&mut pair, &log, end);
        let slowest = &mut slowest[end as usize];
        *slowest = took.max(*slowest);
    }
    eventually("every pod is bound", || (log.bound() >= pods).then_some(()));
    log.assert_each_bound_once(pods, load.pods_per_node);
    let [killed, released] = slowest;
    eprintln!(
        "{}: {pods} pods, {} leaders killed and {} stopped; the next one bound after {killed:?} and {released:?} at most",
        server.name, load.kills, load.releases
    );
    if load.is_timed {
        assert!(killed <= LEASE_DURATION + AFTER_LEASE, "{killed:?}");
        assert!(released <= AFTER_RELEASE, "{released:?}");
    }
}

#[test]
fn pods_are_bound_once_when_leaders_are_killed_or_stopped() {
    let load = Load {
        nodes: 20,
        pods_per_node: 16,
        qps: 60,
        kills: 1,
        releases: 1,
        terms: &SHORT_TERMS,
        is_timed: false,
    };
    on_each("failover", |server| leaders_end(server, &load));
}

#[test]
#[ignore = "long, and with limits of time; a step of .ci/run"]
fn five_thousand_pods_are_bound_once_when_leaders_are_killed_ten_times() {
    let load = Load {
        nodes: 50,
        pods_per_node: 100,
        qps: 150,
        kills: 10,
        releases: 3,
        terms: &[],
        is_timed: true,
    };
    on_each("failover-full", |server| leaders_end(server, &load));
}

/// A leader that is suspended for longer than its lease writes nothing when it continues, and exits.
#[test]
fn a_leader_that_was_suspended_binds_nothing_more() {
    on_each("suspended", |server| {
        let (nodes, room) = (20, 15);
        server.create_nodes(nodes, room);
        let log = WatchLog::start(&server.api);
        create_pods(&server.api, "p", nodes * room, "1m");
        let mut pair = Pair::start(server, 40, &SHORT_TERMS);
        eventually("the leader has bound some", || {
            (log.bound() >= nodes).then_some(())
        });
        let suspended = pair.take_leader();
        let terms = log.holders().len();
        suspended.signal("-STOP");
        let next = eventually("the other one leads", || {
            log.holders().into_iter().nth(terms)
        });
        eventually("the new leader binds a pod", || {
            log.first_binding_after(next.at)
        });
        assert!(log.bound() < nodes * room, "pods are in flight");
        suspended.signal("-CONT");
        assert_eq!(suspended.exit_code(), Some(1), "it has lost the lease");
        eventually("every pod is bound", || {
            (log.bound() >= nodes * room).then_some(())
        });
        log.assert_each_bound_once(nodes * room, room);
        assert_eq!(log.holders().len(), terms + 1, "{:?}", log.holders());
    });
}
