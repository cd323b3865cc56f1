//! The results of a run, in numbers.

/// Declares the numbers, each with its name for people and its key for programs.
macro_rules! tally {
    ($($(#[$doc:meta])* $field:ident, $words:literal, $key:literal;)*) => {
        /// The results of a run.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Tally {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Tally {
            /// Adds another run's.
            pub fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            /// Each number that matters to users, with its words and its key.
            pub fn named(&self) -> Vec<(&'static str, &'static str, u64)> {
                let all = [$(($words, $key, self.$field)),*];
                all.into_iter().filter(|(words, _, _)| !words.is_empty()).collect()
            }
        }
    };
}

tally! {
    /// Pods that were created.
    pods_created, "pods created", "podsCreated";
    /// Attempts to place a pod.
    attempts, "attempts", "attempts";
    /// Placements that were judged.
    placements, "placements", "placements";
    /// Bindings that the API accepted.
    bindings, "bindings", "bindings";
    /// Calls that the scheduler made.
    calls, "calls", "calls";
    /// Calls that failed although they were correct.
    faults, "faults", "faults";
    /// Restarts of the scheduler.
    restarts, "restarts", "restarts";
    /// The number of times that another scheduler began to lead.
    failovers, "fail-overs", "failovers";
    /// Bindings that the API refused because another scheduler was faster, or the pod had changed.
    refused, "refused bindings", "refusedBindings";
    /// Claims and volumes that were written.
    volumes, "volume writes", "volumeWrites";
    /// Claims with allocated devices.
    devices, "allocations of devices", "deviceAllocations";
    /// Pods that were deleted as victims.
    preemptions, "preemptions", "preemptions";
    /// Groups of pods that started.
    groups, "groups started", "groupsStarted";
    /// Pods that were deleted as victims of groups.
    group_preemptions, "preemptions for groups", "groupPreemptions";
    /// Pods that kubelets rejected.
    rejections, "", "";
    /// Configurations that a running scheduler applied.
    configurations, "", "";
    /// Pods and gangs that deferred quotas admitted.
    quota_admissions, "", "";
    /// Rounds until everything is at rest.
    rounds_to_rest, "", "";
}
