//! The controllers that ordinary manifests need.
