//! The UI message stream of the AI SDK, for `useChat`: `POST /api/chat` sends, `GET /api/chat/{id}/stream` resumes.
//!
//! One UI message is one turn. The chunks are a pure function of the records, so the n-th chunk of a run is always the
//! same one, and a client may continue by a count (`startIndex`), by a position, or by a replay of the whole message.

mod handler;
mod input;
mod projector;
#[cfg(test)]
mod tests;

pub(crate) use handler::{
    __path_cancel, __path_resume, __path_send, cancel, own_message, resume, send,
};
