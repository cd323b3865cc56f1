//! The core from its inputs to its outputs, in virtual time, with fake plugins and a small stand-in for the API.

mod cycles;
mod world;

use world::{fits, world};
