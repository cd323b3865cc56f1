//! A scheduler with one plugin: nodes under maintenance get no pods.

use berth::Berth;
use berth_framework::plugin::Context;
use berth_framework::registry::{ArgsError, Extensions, FactoryContext};
use berth_framework::requirement::NodeFilter;
use berth_framework::{NodeView, PodInfo, Status};
use std::process::ExitCode;

/// Rejects nodes with the label `example.com/maintenance`.
struct Maintenance;

impl NodeFilter for Maintenance {
    type Requirement = ();
    const READS_PODS: bool = false;

    fn requirement(&self, _cx: &Context<'_>, _pod: &PodInfo) -> Result<Option<()>, Status> {
        Ok(Some(()))
    }

    fn check(&self, _requirement: &(), node: NodeView<'_>) -> Status {
        match node.labels().get("example.com/maintenance") {
            Some(_) => Status::unresolvable("node(s) were under maintenance"),
            None => Status::success(),
        }
    }
}

fn make(_cx: &FactoryContext<'_>) -> Result<Extensions, ArgsError> {
    Ok(Extensions::of(Maintenance).node_filter().build())
}

fn main() -> ExitCode {
    match Berth::new().with_plugin("Maintenance", make) {
        Ok(berth) => berth.main(),
        Err(error) => {
            eprintln!("first-plugin: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::testing::{World, node, pod};
    use berth_framework::{Code, CycleState};

    #[test]
    fn a_node_under_maintenance_is_rejected() {
        let world = World::default()
            .node(node("open"))
            .node(node("closed").label("example.com/maintenance", "true"));
        let answers = world.filter(&Maintenance, &CycleState::default(), &pod("p").info());
        let codes: Vec<Code> = answers.iter().map(Status::code).collect();
        assert_eq!(codes, [Code::Success, Code::UnschedulableAndUnresolvable]);
    }
}
