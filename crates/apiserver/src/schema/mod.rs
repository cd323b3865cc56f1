//! The schemas of the served kinds: what a field is called, what type it has, what is unknown.
