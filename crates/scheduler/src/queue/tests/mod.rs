//! The rules of the queue, one test or table row each.
