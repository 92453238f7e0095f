//! The built-in tools, called the way a model calls them.

mod background;
mod bombs;
mod commands;
mod confinement;
mod documents;
mod edits;
mod files;
mod injection;
mod reconcile;
mod reconcile_edits;
mod search;
mod specs;
mod supervised;
mod support;
mod todos;
