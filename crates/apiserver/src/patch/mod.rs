//! The patch types: JSON patch, JSON merge patch, strategic merge patch.
