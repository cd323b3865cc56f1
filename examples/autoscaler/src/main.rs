//! Prints the decisions of the autoscaler for a cluster in a file: `autoscaler cluster.yaml
//! small:cpu=4,memory=16Gi:0.2:10`.

// A program reads files and the clock; the library does neither.
#![allow(clippy::disallowed_methods)]

use autoscaler::{NodeGroup, ScalingDecision, scale_down, scale_up};
use berth_core::{ClusterObjects, Configuration, Time};
use std::process::ExitCode;
use std::time::SystemTime;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments
        .next()
        .ok_or("usage: autoscaler FILE NAME:SHAPE:PRICE:MAX…")?;
    let groups = arguments.map(|text| NodeGroup::parse(&text));
    let groups = groups.collect::<Result<Vec<_>, _>>()?;
    let text = std::fs::read_to_string(&file).map_err(|e| format!("failed to read {file}: {e}"))?;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = Time::EPOCH + since.map_err(|e| e.to_string())?;
    let failed = |error: berth_core::InputError| error.to_string();
    let mut cluster = ClusterObjects::from_yaml(&file, &text).map_err(failed)?;
    let configuration = Configuration::default();
    let mut decisions = scale_up(&mut cluster, &configuration, &groups, now).map_err(failed)?;
    decisions.extend(scale_down(&cluster, &configuration, now).map_err(failed)?);
    for decision in decisions {
        match decision {
            ScalingDecision::Add { group, nodes, pods } => {
                println!("grow {group} by {nodes}, for {pods} pods")
            }
            ScalingDecision::Remove { node } => println!("remove {node}"),
            ScalingDecision::Hopeless { pods } => {
                for (pod, reason) in pods {
                    println!("{pod} waits: {reason}");
                }
            }
        }
    }
    Ok(())
}
