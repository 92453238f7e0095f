//! What an agent takes as its model: a model, a shared model, or a script.

use std::sync::Arc;

use budao_core::world::World;

use crate::{Model, Script};

/// Converts to a model that sessions can share.
pub trait IntoModel {
    /// The shared model; a script's delays wait on the world's clock.
    fn into_shared(self, world: &World) -> Arc<dyn Model>;
}

impl<M: Model + 'static> IntoModel for M {
    fn into_shared(self, _: &World) -> Arc<dyn Model> {
        Arc::new(self)
    }
}

impl IntoModel for Arc<dyn Model> {
    fn into_shared(self, _: &World) -> Arc<dyn Model> {
        self
    }
}

impl IntoModel for Script {
    fn into_shared(self, world: &World) -> Arc<dyn Model> {
        Arc::new(self.into_model(world.clock.clone()))
    }
}
