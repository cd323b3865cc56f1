//! Replays recorded answers of the real components against Berth.
