//! Models that take no images: a text takes the place of each image in their requests.

use std::sync::Arc;

use async_trait::async_trait;
use budao_core::{
    fault::Fault,
    gate::GateKey,
    message::{Block, ModelRequest},
};

use crate::{Model, PieceStream};

/// A model that takes no images, although its provider may.
#[derive(Debug)]
pub struct TextOnly(pub Arc<dyn Model>);

#[async_trait]
impl Model for TextOnly {
    fn provider(&self) -> &str {
        self.0.provider()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn gate_key(&self) -> GateKey {
        self.0.gate_key()
    }

    fn takes_images(&self) -> bool {
        false
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        self.0.stream(request).await
    }
}

/// Replaces every image by a text that names it. A request without images is not copied.
pub(crate) fn without_images(mut request: ModelRequest) -> ModelRequest {
    let is_image = |block: &Block| matches!(block, Block::Image { .. });
    if request.messages.iter().any(|message| message.content.iter().any(is_image)) {
        let messages = Arc::make_mut(&mut request.messages);
        for message in messages {
            if message.content.iter().any(is_image) {
                replace_images(&mut Arc::make_mut(message).content);
            }
        }
    }
    request
}

fn replace_images(content: &mut [Block]) {
    for block in content {
        if let Block::Image { media_type, data } = block {
            *block = Block::Text(placeholder(media_type, data.len()));
        }
    }
}

/// `encoded`: the length in base64, four characters for three bytes.
fn placeholder(media_type: &str, encoded: usize) -> String {
    let kilobytes = (encoded / 4 * 3).div_ceil(1_024);
    format!("[An image ({media_type}, {kilobytes} KiB) is here. This model takes no images.]")
}

#[cfg(test)]
mod tests {
    use budao_core::message::{Message, Role};

    use super::*;
    use crate::{Script, testing};

    #[test]
    fn a_model_without_images_reads_where_one_was() {
        let data = "A".repeat(4_096);
        let image = Block::Image { media_type: "image/png".into(), data };
        let content = vec![Block::Text("look".into()), image];
        let messages = Arc::new(vec![Arc::new(Message { role: Role::User, content })]);
        let clock = Arc::new(testing::InstantClock::default());
        let script = Arc::new(Script::new().say("ok").forever().into_model(clock).recording());
        let request =
            || ModelRequest { messages: Arc::clone(&messages), ..testing::request("look") };
        testing::ask_all(&TextOnly(Arc::clone(&script) as _), request()).unwrap();
        testing::ask_all(&*script, request()).unwrap();
        let requests = script.requests();
        let told = "[An image (image/png, 3 KiB) is here. This model takes no images.]";
        assert_eq!(
            requests[0].messages[0].content,
            [Block::Text("look".into()), Block::Text(told.into())]
        );
        assert_eq!(requests[1].messages, messages, "other models receive the image");
    }
}
