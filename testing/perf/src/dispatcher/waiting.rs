//! Bindings and status patches in virtual time.

use super::report::WaitingFigures;
use super::{bind, patch, pod};
use berth_api::{Duration, Time};
use berth_framework::{ApiCall, CallId};
use berth_scheduler::dispatcher::Dispatcher;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Instant;

/// The time that the server takes for a call.
const ANSWERED_AFTER: Duration = Duration::from_millis(5);

/// The arrivals of bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// A thousand a second, one by one.
    Steady,
    /// Sixty-four at once, every 20 ms.
    Bursts,
    /// Four times as many at once as may be on their way, every 50 ms.
    Floods,
}

impl Arrivals {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Steady, Self::Bursts, Self::Floods];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steady => "1000/s, one by one",
            Self::Bursts => "64 at once, every 20 ms",
            Self::Floods => "512 at once, every 50 ms",
        }
    }

    fn due(self, binding: usize) -> Duration {
        let millis = match self {
            Self::Steady => binding,
            Self::Bursts => binding / 64 * 20,
            Self::Floods => binding / 512 * 50,
        };
        Duration::from_millis(millis as u64)
    }
}

/// Calls on their way, by when they are answered.
type OnTheirWay = BinaryHeap<Reverse<(Time, CallId)>>;

struct WaitingRun {
    dispatcher: Dispatcher,
    now: Time,
    on_their_way: OnTheirWay,
    /// Bindings that were made and not sent: when, and how many calls had been sent by then.
    made: HashMap<CallId, (Time, u64)>,
    waits: Vec<Duration>,
    sent_before: u64,
    patches_sent: u64,
}

impl WaitingRun {
    /// Sends what may be sent.
    fn send(&mut self) {
        let sent_so_far = self.dispatcher.counts().sent;
        for ((id, call), sent) in self
            .dispatcher
            .next_calls(self.now)
            .into_iter()
            .zip(sent_so_far..)
        {
            self.on_their_way
                .push(Reverse((self.now + ANSWERED_AFTER, id)));
            if matches!(call, ApiCall::PatchPodStatus { .. }) {
                self.patches_sent += 1;
            }
            if let Some((made_at, sent_then)) = self.made.remove(&id) {
                self.waits.push(self.now.since(made_at));
                self.sent_before += sent.saturating_sub(sent_then);
            }
        }
    }

    /// Lets time pass until `until`: calls are answered, and others sent.
    fn pass(&mut self, until: Time) {
        while let Some(Reverse((at, id))) = self.on_their_way.peek().copied()
            && at <= until
        {
            self.on_their_way.pop();
            self.now = at;
            self.dispatcher.complete(id, Ok(()), at);
            self.dispatcher.take_finished();
            self.send();
        }
        self.now = until;
    }
}

pub(super) fn measure(arrivals: Arrivals, bindings: usize, patches: usize) -> WaitingFigures {
    let begin = Time::from_secs(1_000);
    let mut run = WaitingRun {
        dispatcher: Dispatcher::default(),
        now: begin,
        on_their_way: BinaryHeap::new(),
        made: HashMap::new(),
        waits: Vec::with_capacity(bindings),
        sent_before: 0,
        patches_sent: 0,
    };
    for n in 0..patches {
        let call = patch(&pod(n), "0/5000 nodes are available");
        run.dispatcher.enqueue(call, begin);
    }
    run.send();
    let mut micros = Vec::with_capacity(bindings);
    let mut patched = patches;
    for n in 0..bindings {
        run.pass(begin + arrivals.due(n));
        // As many pods fail again as patches were written: the burst does not end.
        while patches > 0 && patched - (run.patches_sent as usize) < patches {
            let call = patch(&pod(patched), "0/5000 nodes are available");
            run.dispatcher.enqueue(call, run.now);
            patched += 1;
        }
        let call = bind(&pod(usize::MAX - n));
        let sent = run.dispatcher.counts().sent;
        let began = Instant::now();
        let id = run.dispatcher.enqueue(call, run.now);
        run.made.insert(id, (run.now, sent));
        run.send();
        micros.push(began.elapsed().as_secs_f64() * 1e6);
    }
    while !run.made.is_empty()
        && let Some(Reverse((at, _))) = run.on_their_way.peek().copied()
    {
        run.pass(at);
    }
    run.waits.sort_unstable();
    micros.sort_by(f64::total_cmp);
    let wait_at = |share: f64| {
        let last = run.waits.len().saturating_sub(1);
        let wait = run.waits.get((last as f64 * share) as usize);
        wait.map_or(0.0, |wait| wait.as_secs_f64() * 1e3)
    };
    WaitingFigures {
        arrivals: arrivals.name(),
        patches,
        bindings: run.waits.len(),
        wait_millis_median: wait_at(0.5),
        wait_millis_p99: wait_at(0.99),
        sent_before_mean: run.sent_before as f64 / run.waits.len().max(1) as f64,
        patches_sent: run.patches_sent,
        patches_left: patched - run.patches_sent as usize,
        micros_median: micros.get(micros.len() / 2).copied().unwrap_or(0.0),
    }
}
