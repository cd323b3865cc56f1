//! The explanation of a group as text.

use super::{headed, lacks, notes, pod_name, shortened, table};
use crate::answer::{GroupAnswer, GroupMember};
use crate::words::ago;
use std::fmt::Write as _;

/// The explanation of a group of pods.
pub fn group(answer: &GroupAnswer) -> String {
    let mut text = String::new();
    let (kind, state) = (&answer.kind, answer.state);
    line!(
        text,
        "{kind} {}/{}: {state:?}",
        answer.namespace,
        answer.name
    );
    line!(text, "  {}", answer.summary);
    line!(text);
    line!(text, "Members");
    text += &table(&counts(answer), "  ");
    if let Some(queue) = &answer.queue {
        line!(text);
        line!(text, "Queue");
        let mut rows = vec![vec![
            "since".to_owned(),
            format!("{} ({})", queue.since, ago(queue.seconds)),
        ]];
        let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
        if let Some(until) = &queue.backoff_until {
            row("backoff until", until.clone());
        }
        row("attempts", queue.attempts.to_string());
        if !queue.rejected_by.is_empty() {
            row("rejected by", queue.rejected_by.join(", "));
        }
        text += &table(&rows, "  ");
    }
    domains(&mut text, answer);
    children(&mut text, answer);
    members(&mut text, answer);
    if !answer.remedies.is_empty() {
        line!(text);
        let what = if answer.scheduled >= answer.need {
            "What would give its other pods a node"
        } else {
            "What would let it start"
        };
        line!(text, "{what} (each was tried on a copy of the cluster)");
        for (number, remedy) in answer.remedies.iter().enumerate() {
            line!(text, "  {}. {}", number + 1, remedy.text);
        }
    }
    if let Some(preemption) = &answer.preemption {
        line!(text);
        let message = preemption
            .message
            .trim_start_matches("pod group preemption: ");
        if preemption.victims.is_empty() {
            line!(text, "Preemption: {message}")
        } else {
            line!(text, "Preemption would evict");
            for victim in &preemption.victims {
                line!(text, "  {}", pod_name(victim));
            }
        }
    }
    notes(&mut text, &answer.notes);
    text
}

fn counts(answer: &GroupAnswer) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    row("needed", format!("{} ({})", answer.need, answer.policy));
    row("known", answer.known.to_string());
    if answer.kind == "PodGroup" {
        row("with a node", answer.scheduled.to_string())
    } else {
        row("started", answer.scheduled.to_string())
    }
    if let Some(places) = answer.places {
        row("room for", format!("{places} more"));
    }
    row("priority", answer.priority.to_string());
    if let Some(root) = &answer.root {
        row("scheduled with", format!("compositepodgroup {root}"));
    }
    if let Some(condition) = &answer.condition {
        let message = if condition.message.is_empty() {
            String::new()
        } else {
            format!(": {}", condition.message)
        };
        let status = if condition.status == "True" {
            "yes"
        } else {
            "no"
        };
        row(
            "scheduled once",
            format!("{status}, {}{message}", condition.reason),
        );
    }
    rows
}

fn domains(text: &mut String, answer: &GroupAnswer) {
    let Some(key) = &answer.topology_key else {
        return;
    };
    line!(text);
    line!(text, "Nodes that agree in {key}");
    let rows = answer.domains.iter().map(|domain| {
        vec![
            domain.name.clone(),
            domain.nodes.to_string(),
            domain.places.to_string(),
        ]
    });
    *text += &headed(&["VALUE", "NODES", "ROOM FOR"], rows, "  ");
    if answer.domain_count > answer.domains.len() {
        let (shown, all) = (answer.domains.len(), answer.domain_count);
        line!(text, "  {shown} of {all} are listed.");
    }
}

fn children(text: &mut String, answer: &GroupAnswer) {
    if answer.children.is_empty() {
        return;
    }
    line!(text);
    line!(text, "Groups below");
    let rows = answer.children.iter().map(|child| {
        let places = child.places.map(|places| places.to_string());
        vec![
            child.kind.clone(),
            child.name.clone(),
            child.parent.clone(),
            child.need.to_string(),
            child.known.to_string(),
            child.scheduled.to_string(),
            places.unwrap_or_default(),
        ]
    });
    let head = [
        "KIND",
        "NAME",
        "PARENT",
        "NEEDED",
        "KNOWN",
        "SCHEDULED",
        "ROOM FOR",
    ];
    *text += &headed(&head, rows, "  ");
}

/// The node of a member, or the obstacle.
fn place(member: &GroupMember) -> String {
    if let Some(node) = &member.node {
        return format!("on {node}");
    }
    if !member.gates.is_empty() {
        return shortened(&format!("gated by {}", member.gates.join(", ")));
    }
    match (&member.place, member.closest.first()) {
        (Some(node), _) => format!("fits on {node}"),
        (None, Some(closest)) => format!("closest {}: {}", closest.node, lacks(&closest.lacks)),
        (None, None) => String::new(),
    }
}

fn members(text: &mut String, answer: &GroupAnswer) {
    if answer.members.is_empty() {
        return;
    }
    line!(text);
    let rows = answer.members.iter().map(|member| {
        vec![
            member.name.clone(),
            member.group.clone(),
            format!("{:?}", member.state),
            place(member),
        ]
    });
    *text += &headed(&["POD", "GROUP", "STATE", ""], rows, "  ");
    if answer.member_count > answer.members.len() {
        let (shown, all) = (answer.members.len(), answer.member_count);
        line!(text, "  {shown} of {all} members are listed.");
    }
}
