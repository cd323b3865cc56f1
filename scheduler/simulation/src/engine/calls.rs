//! The calls of the scheduler: they are answered after a latency, and controllers and kubelets react to them.

use super::Simulation;
use super::events::{CallAnswer, Event};
use berth_explain::engine::{Effect, claim_to_bind};
use berth_scheduler::ScheduleOutcome;

impl Simulation {
    /// Lets the scheduler try a pod. Its calls are answered later.
    pub(super) fn attempt(&mut self) -> ScheduleOutcome {
        let (latency, rng) = (&self.plan.world.api_latency, &mut self.rng);
        let events = &mut self.events;
        self.engine.attempt(|engine, id, call| {
            let answer = Event::Answer(Box::new(CallAnswer { id, call }));
            events.push(engine.now() + latency.draw(rng), answer);
        })
    }

    /// Performs a call and answers it.
    pub(super) fn answer(&mut self, answer: CallAnswer) {
        match self.engine.answer(answer.id, answer.call) {
            Some(Effect::Bound(pod)) => {
                if let Some(index) = self.pods.index_of(&pod.uid) {
                    self.pod_bound(index);
                }
            }
            Some(Effect::Deleted(pod)) if self.daemons.has(&pod.uid) => self.end_daemon(&pod.uid),
            Some(Effect::Deleted(pod)) => {
                if let Some(index) = self.pods.existing(&pod.uid) {
                    self.delete_with_grace(index, true);
                }
            }
            Some(Effect::Written(object)) => {
                if let Some(claim) = claim_to_bind(&object) {
                    let latency = self.plan.world.api_latency.draw(&mut self.rng);
                    let at = self.engine.now() + latency;
                    self.events.push(at, Event::BindVolume(Box::new(claim)));
                }
            }
            None => {}
        }
    }
}
