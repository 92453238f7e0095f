//! A model that calls the tools of workers, some steps long, and then answers. It depends only on the prompt and on the
//! history, so a killed server asks the same again.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    fault::Fault,
    message::{Block, CallId, Message, ModelRequest, ModelStop, Piece, ToolUse, Usage, text_of},
};
use budao_models::{Model, PieceStream};
use futures::{StreamExt as _, stream};
use rand::RngExt as _;
use serde_json::json;

use crate::{script::pick, world::chance};

/// The model service, shared by all processes.
#[derive(Debug)]
pub(crate) struct WorkerModel {
    seed: u64,
}

impl WorkerModel {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { seed })
    }

    /// The calls of one step; empty if the model answers.
    fn calls(&self, mark: &str, step: usize) -> Vec<ToolUse> {
        let steps = chance(self.seed, &format!("steps {mark}")).random_range(1..=5);
        if step >= steps {
            return Vec::new();
        }
        let mut dice = chance(self.seed, &format!("step {mark} {step}"));
        let count = dice.random_range(1..=3);
        (0..count)
            .map(|index| {
                let tool = *pick(&mut dice, super::TOOLS);
                let id = format!("{mark}/{step}/{index}");
                let arguments = json!({ "id": id }).to_string();
                ToolUse { id: CallId(format!("c-{id}").into()), name: tool.to_owned(), arguments }
            })
            .collect()
    }
}

/// The mark of the last prompt, and the number of steps that the model took since.
fn position(messages: &[Arc<Message>]) -> (String, usize) {
    let is_prompt = |message: &Arc<Message>| text_of(&message.content).contains('«');
    let at = messages.iter().rposition(is_prompt).unwrap_or_default();
    let text = messages.get(at).map(|message| text_of(&message.content)).unwrap_or_default();
    let mark = text.split('«').next_back().and_then(|rest| rest.split('»').next());
    let calls = |message: &&Arc<Message>| {
        message.content.iter().any(|block| matches!(block, Block::ToolUse(_)))
    };
    let steps = messages.iter().skip(at).filter(calls).count();
    (mark.unwrap_or_default().to_owned(), steps)
}

#[async_trait]
impl Model for WorkerModel {
    fn provider(&self) -> &str {
        "calls"
    }

    fn name(&self) -> &str {
        "calls"
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let (mark, step) = position(&request.messages);
        let mut dice = chance(self.seed, &format!("pace {mark} {step}"));
        tokio::time::sleep(Duration::from_millis(*pick(&mut dice, &[0, 1, 40, 300]))).await;
        let calls = self.calls(&mark, step);
        let stop = if calls.is_empty() { ModelStop::EndTurn } else { ModelStop::ToolUse };
        let mut pieces: Vec<Result<Piece, Fault>> =
            calls.into_iter().map(|call| Ok(Piece::Block(Block::ToolUse(call)))).collect();
        if pieces.is_empty() {
            let text = format!("answer to «{mark}»");
            pieces.push(Ok(Piece::Text(text.clone())));
            pieces.push(Ok(Piece::Block(Block::Text(text))));
        }
        let usage = Usage { input_tokens: 9, output_tokens: 9, ..Usage::default() };
        pieces.push(Ok(Piece::End { stop, usage }));
        Ok(stream::iter(pieces).boxed())
    }
}
