//! Scoring the feasible nodes.

use super::search::broken;
use super::{Evaluation, Evaluator, Tally};
use berth_api::Str;
use berth_framework::plugin::MAX_NODE_SCORE;
use berth_framework::{Code, Slot, Status};
use berth_profile::Point;

/// The scores of one plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginScores {
    /// The plugin.
    pub plugin: Str,
    /// The weight of its normalised score.
    pub weight: i64,
    /// Its score of each node before normalisation, in the order of [`Scores::nodes`]. Kept answers do not have it: it
    /// is empty then.
    pub raw: Vec<i64>,
    /// Its normalised score of each node times its weight, in the order of [`Scores::nodes`].
    pub weighted: Vec<i64>,
}

/// The scores of every feasible node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scores {
    /// The nodes with their totals.
    pub nodes: Vec<(Slot, i64)>,
    /// The scores by plugin.
    pub plugins: Vec<PluginScores>,
    /// The plugins whose PreScore returned Skip, in order.
    pub skipped: Vec<Str>,
}

impl Evaluator<'_> {
    /// Runs PreScore, Score and NormalizeScore on the feasible nodes (F-11, F-12).
    ///
    /// # Errors
    /// When a plugin breaks or a score is out of range.
    pub fn score(&mut self, feasible: &[Slot]) -> Result<Scores, Status> {
        if self.profile.score.is_empty() {
            // C-25: no plugin scores.
            return Ok(Scores {
                nodes: feasible.iter().map(|node| (*node, 1)).collect(),
                ..Scores::default()
            });
        }
        let skipped = self.timed(Point::PreScore, |this| this.run_pre_score(feasible))?;
        let mut scores = self.timed(Point::Score, |this| this.run_score(feasible))?;
        scores.skipped = skipped;
        Ok(scores)
    }

    fn timed<T>(
        &mut self,
        point: Point,
        run: impl FnOnce(&mut Self) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let began = self.stopwatch.last_nanos();
        let result = run(self);
        let code = result.as_ref().err().map_or(Code::Success, Status::code);
        let nanos = self.stopwatch.nanos().saturating_sub(began);
        self.evaluation.tally.span(point, code, nanos);
        result
    }

    fn run_pre_score(&mut self, feasible: &[Slot]) -> Result<Vec<Str>, Status> {
        let mut skipped = Vec::new();
        let (profile, pod, stopwatch) = (self.profile, self.pod, self.stopwatch);
        let (cx, evaluation) = self.split();
        for (at, member) in profile.pre_score.iter().enumerate() {
            let Evaluation { state, tally, .. } = &mut *evaluation;
            let (name, point) = (&member.name, Point::PreScore.as_str());
            let status = tally.timed(stopwatch, name, point, Status::code, || {
                member.plugin.pre_score(&cx, state, pod, feasible)
            });
            if status.is_skip() {
                evaluation.skip_score.insert(member.id);
                skipped.push(member.name.clone());
                continue;
            }
            Tally::count(&mut tally.pre_score, at);
            if !status.is_success() {
                let what = format!("running PreScore plugin {:?}", member.name.as_str());
                return Err(broken(&what, &member.name, &status));
            }
        }
        Ok(skipped)
    }

    fn run_score(&mut self, feasible: &[Slot]) -> Result<Scores, Status> {
        let (profile, pod, stopwatch) = (self.profile, self.pod, self.stopwatch);
        let (cx, evaluation) = self.split();
        let mut scores = Scores {
            nodes: feasible.iter().map(|node| (*node, 0)).collect(),
            ..Scores::default()
        };
        let mut raw: Vec<(Slot, i64)> = Vec::with_capacity(feasible.len());
        for (at, scorer) in profile.score.iter().enumerate() {
            let member = &scorer.member;
            if evaluation.skip_score.contains(member.id) {
                continue;
            }
            let Evaluation { state, tally, .. } = &mut *evaluation;
            let failed = |what: &str, status: &Status| {
                let what = format!("{what} plugin {:?} failed with", member.name.as_str());
                broken(&what, &member.name, status)
            };
            raw.clear();
            for node in feasible {
                let Some(view) = cx.cluster.nodes.get(*node) else {
                    let gone = Status::error("the node is gone");
                    return Err(failed("running Score plugins:", &gone));
                };
                Tally::count(&mut tally.score, at);
                let code = |score: &Result<i64, Status>| match score {
                    Ok(_) => Code::Success,
                    Err(status) => status.code(),
                };
                let (name, point) = (&member.name, Point::Score.as_str());
                let score = tally.timed(stopwatch, name, point, code, || {
                    member.plugin.score(&cx, state, pod, view)
                });
                let score = score.map_err(|status| failed("running Score plugins:", &status))?;
                raw.push((*node, score));
            }
            // Explanations show them too, and normalisation overwrites them.
            let before = raw.iter().map(|(_, score)| *score).collect();
            let (name, point) = (&member.name, "ScoreExtensionNormalize");
            let status = tally.timed(stopwatch, name, point, Status::code, || {
                member.plugin.normalize(&cx, state, pod, &mut raw)
            });
            if !status.is_success() {
                return Err(failed("running Normalize on Score plugins:", &status));
            }
            let mut weighted = Vec::with_capacity(raw.len());
            for ((_, score), (_, total)) in raw.iter().zip(&mut scores.nodes) {
                if !(0..=MAX_NODE_SCORE).contains(score) {
                    return Err(Status::error(format!(
                        "applying score defaultWeights on Score plugins: plugin {:?} returns an invalid score \
                         {score}, it should in the range of [0, {MAX_NODE_SCORE}] after normalizing",
                        member.name.as_str(),
                    ))
                    .from_plugin(&member.name));
                }
                let value = score * scorer.weight;
                *total += value;
                weighted.push(value);
            }
            scores.plugins.push(PluginScores {
                plugin: member.name.clone(),
                weight: scorer.weight,
                raw: before,
                weighted,
            });
        }
        Ok(scores)
    }
}
