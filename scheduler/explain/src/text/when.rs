//! The estimated start of a pod as text.

use super::table;
use crate::answer::when::{PlayedStart, WhenAnswer};
use crate::words::ago;
use std::fmt::Write as _;

/// The estimated start of a pod.
pub fn when(answer: &WhenAnswer) -> String {
    let mut text = String::new();
    line!(
        text,
        "Pod {}/{}: estimated start",
        answer.namespace,
        answer.name
    );
    let span = |start: &PlayedStart| ago(start.seconds as f64);
    match (&answer.earliest, &answer.latest) {
        (Some(earliest), Some(latest)) if earliest.seconds == latest.seconds => {
            line!(text, "  in {}", span(earliest));
        }
        (Some(earliest), Some(latest)) => {
            line!(text, "  in {} to {}", span(earliest), span(latest));
        }
        (Some(earliest), None) => {
            line!(
                text,
                "  in {} at the earliest; the latest start is not known",
                span(earliest)
            );
        }
        (None, _) => line!(text, "  not known"),
    }
    if let Some(unknown) = &answer.unknown {
        line!(text, "  {unknown}");
    }
    let starts = [("earliest", &answer.earliest), ("latest", &answer.latest)];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (name, start) in starts {
        let Some(start) = start else {
            continue;
        };
        let after = match (&start.after, start.ended_pods) {
            (Some(after), 1) => after.clone(),
            (Some(after), ended) => format!("{after} and {} more", ended - 1),
            (None, _) => String::new(),
        };
        rows.push(vec![
            name.to_owned(),
            start.at.clone(),
            span(start),
            start.node.clone(),
            after,
        ]);
    }
    if !rows.is_empty() {
        line!(text);
        let head = ["START", "TIME", "IN", "NODE", "AFTER THE END OF"];
        rows.insert(0, head.map(str::to_owned).to_vec());
        text += &table(&rows, "  ");
    }
    let running = &answer.running;
    let counts = [
        (running.by_run_times, "with known run times"),
        (running.by_deadline, "with a deadline"),
        (running.overdue, "longer than usual"),
        (running.without_end, "without a known end"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !counts.is_empty() {
        line!(text);
        line!(text, "Running pods: {}", counts.join(", "));
    }
    if !answer.assumptions.is_empty() {
        line!(text);
        line!(text, "Assumptions");
        for assumption in &answer.assumptions {
            line!(text, "  - {assumption}");
        }
    }
    text
}
