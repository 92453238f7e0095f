//! Plan → solve → aggregate, played without children: inputs in, events out.

mod plans;
mod play;
mod promises;
mod prompts;
mod walk;
