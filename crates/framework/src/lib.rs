//! The plugin API: extension points, statuses, cluster events, and the views plugins read.
