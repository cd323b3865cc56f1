//! `quota-gate KUBECONFIG PODS`: at most PODS pods of each namespace are scheduled at the same time.

// A program is the edge.
#![allow(clippy::disallowed_methods)]

use std::path::PathBuf;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let kubeconfig = arguments.next().map(PathBuf::from);
    let pods = arguments.next().and_then(|text| text.parse().ok());
    let (Some(kubeconfig), Some(pods)) = (kubeconfig, pods) else {
        eprintln!("usage: quota-gate KUBECONFIG PODS");
        return ExitCode::FAILURE;
    };
    let mut gate = match quota_gate::start(&kubeconfig).await {
        Ok(gate) => gate,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "new pods get the scheduling gate {}; Ctrl-C ends the program",
        quota_gate::GATE
    );
    gate.control(pods);
    let _ = tokio::signal::ctrl_c().await;
    match gate.end().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
