//! Talks to any Kubernetes API: transport, reflectors, leases and event publishing.
